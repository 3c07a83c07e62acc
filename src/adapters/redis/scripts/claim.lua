-- claim: keys home, own home, lease; arguments field, version, generation, token, alone (1 or 0), lease, max-wait.
-- Answers what to do, the fence or the date of `later`, crashes, and 1 if the copy's own stamp counts.

-- A worker that claims has found its topology on its broker. So it may restore the owner of an emptied register, before
-- the next `apply` does.
if used_by.broker == '' then
  used_by.broker = broker
end

return each(3, 7, function(k, a)
  local lease_key = KEYS[k + 2]
  local field, generation, token = ARGV[a], tonumber(ARGV[a + 2]), ARGV[a + 3]
  local lease = holder(lease_key)
  if lease and lease.token == token then
    local own = lease.field == field
    local slot = load(own and KEYS[k] or KEYS[k + 1], own and field or 'e')
    -- A repeated claim: the caller did not get the first answer, and the event was cancelled since. The lease stays: if
    -- the call only arrived twice, the first answer was read and the handler runs.
    if stale(slot, lease.version, lease.generation) then
      return { 'stale', 0, 0, 0 }
    end
    return { 'run', lease.fence, lease.crashes, own and 1 or 0 }
  end

  local home, slot_field, version = counted(KEYS[k], KEYS[k + 1], field, tonumber(ARGV[a + 1]))
  local slot = load(home, slot_field)
  if stale(slot, version, generation) then
    return { 'stale', 0, 0, 0 }
  end
  local overdue = slot_field == 'i' and version > slot.version
    and slot.since > 0 and now - slot.since > tonumber(ARGV[a + 6])
  if replaced(slot, slot_field, version) and not overdue then
    return { 'replaced', 0, 0, 0 }
  end
  if slot.later > now and slot.later_version == version and slot.later_generation == generation then
    return { 'later', slot.later, 0, 0 }
  end
  if lease then
    return { 'busy', 0, 0, 0 }
  end
  local crashes = 0
  if is_at(slot, version, generation) then
    crashes = min(slot.crashes + (slot.begun and 1 or 0), MOST_CRASHES)
  end
  if crashes >= 2 and ARGV[a + 4] ~= '1' then
    return { 'alone', 0, 0, 0 }
  end

  local fence = give()
  hold(lease_key, {
    token = token, field = slot_field, version = version, generation = generation, fence = fence, crashes = crashes,
  }, tonumber(ARGV[a + 5]))
  -- Only the first run of a version covers. A later claim may come so late that its caller is gone and nothing runs.
  if slot_field == 'f' and version > slot.version then
    slot.covered = max(slot.covered, fence)
  end
  raise(slot, version, false, generation)
  slot.begun, slot.crashes = true, crashes
  slot.since = slot.newest > version and now or 0
  stay_open(slot)
  save(home, slot_field, slot)
  return { 'run', fence, crashes, slot_field == field and 1 or 0 }
end)
