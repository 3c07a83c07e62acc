//! The Lua scripts. The text of a short one is here, that of any other in a file.

use std::sync::LazyLock;

use redis::Script;

/// Defines a script by its own text, which follows what all scripts share.
macro_rules! lua {
    ($name:ident, $($text:expr),+) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!(include_str!("scripts/common.lua"), $($text),+)));
    };
}

/// Defines a script whose text is in files.
macro_rules! script {
    ($name:ident, $file:literal) => {
        lua!($name, include_str!($file));
    };
}

/// Defines a script that writes into the index or reads it.
macro_rules! indexed {
    ($name:ident, $($file:literal),+) => {
        lua!($name, include_str!("scripts/index.lua"), $(include_str!($file)),+);
    };
}

script!(STATES, "scripts/states.lua");
script!(REPORTS, "scripts/reports.lua");
script!(OWN, "scripts/own.lua");
script!(RESERVE, "scripts/reserve.lua");
script!(RENEW, "scripts/renew.lua");
script!(RELEASE, "scripts/release.lua");
indexed!(RECORD, "scripts/record.lua");
indexed!(LATER, "scripts/later.lua");
indexed!(SETTLE_AND_CLAIM, "scripts/settle.lua", "scripts/claim.lua", "scripts/settle_and_claim.lua");
indexed!(CANCEL, "scripts/cancel.lua");
script!(FIND, "scripts/find.lua");
script!(LOOK, "scripts/look.lua");
script!(LOOK_AT, "scripts/look_at.lua");

// `PING`: no item. Answers 0. It writes the counter, which may always grow, because a server that answers and takes no writes (a replica,
// or one that is out of memory) must count as down.
lua!(PING, "give() return answer_all(function() reply(0) end)");

// `TRY_WRITE`: no item. Answers 0. Fails as `PING` does on a server that takes no writes, and changes nothing: it writes the counter as it
// is. A counter that is missing stays missing, so that workers and publishers still learn that Redis was emptied.
lua!(
    TRY_WRITE,
    "
return answer_all(function()
  redis_call('SET', KEYS[1], counter)
  if given == 0 then
    redis_call('DEL', KEYS[1])
  end
  reply(0)
end)
"
);

// `NOW`: an item is empty. Answers Redis's time in us.
lua!(NOW, "return each(function() reply(now_us) end)");

// `COUNT`: types. Answers three numbers for each: the events that are due, those that are not, and the due time of the next of these (ms;
// -1 if there is none).
lua!(
    COUNT,
    "
local counts = {}
for i = 5, #ARGV do
  local index = base .. ARGV[i] .. ':x'
  local due, all = ask('ZCOUNT', index, '-inf', text(now)), ask('ZCOUNT', index, '-inf', '+inf')
  local following = all > due and ask('ZRANGE', index, due, due)[1]
  counts[#counts + 1] = due
  counts[#counts + 1] = all - due
  counts[#counts + 1] = following and tonumber(ask('ZSCORE', index, following)) or -1
end
return counts
"
);

// `CANCELLED_RUN`: field, place and the lease's place (empty if it is the place). Answers 1 if a run that a cancel of the slot has reached
// still holds its lease, else 0.
lua!(
    CANCELLED_RUN,
    "
return each(function(item)
  local field, place, lease_place = unpack_numbers('<I2c0I2c0I2c0', item)
  local slot = load(place, field)
  local lease = holder(lease_at(slot, place, field, lease_place == '' and place or lease_place))
  return reply(slot.cancelled and lease and lease.field == field and lease.fence < slot.version and 1 or 0)
end)
"
);

// `KEPT`: place, field. Answers the message, or false if none is kept.
lua!(
    KEPT,
    include_str!("scripts/index.lua"),
    "
return each(function(item)
  local place, field = unpack_numbers('<I2c0I2c0', item)
  local slot = load(place, field)
  reply(is_kept(slot.details) and ask('HGET', kept_key(place), field) or false)
end)
"
);
