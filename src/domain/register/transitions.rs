//! The register's calls as transitions of a [`Shard`]: no I/O, no clock.
//!
//! These functions are the protocol of `docs/register.md`. The Lua scripts make the same changes in Redis, and tests
//! compare them with these functions step by step.

use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use super::{
    Cancel, Cancelled, Claim, ClaimAnswer, CopyVersion, DedupSlot, End, Later, Postponed, Record, Release, Renew,
    Renewed, Reserve, Reserved, Settle, Subject, Terms,
    state::{self, END_OF_TIME, LAST_GENERATION, Lease, MOST_CRASHES, Mark, Shard, SlotState, due_millis, millis},
};

/// The time of a call, and the topology's retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The register's time, in µs.
    pub micros: i64,
    /// How long a slot that is still open is kept, counted from its due time.
    pub backlog_retention: Duration,
}

impl At {
    const fn millis(self) -> i64 {
        self.micros.div_euclid(1000)
    }
}

/// The slot, version and generation with which the register counts a copy.
struct Counted {
    key: (String, String),
    version: i64,
    generation: i64,
    /// Whether the copy counts in the slot that it names. If not, it counts in the event's `e:` slot.
    as_named: bool,
}

impl Shard {
    /// Carries out [`Reserve`].
    pub fn reserve(&mut self, at: At, call: &Reserve) -> Reserved {
        if let Some(asker) = &call.asked_by {
            let asker = self.counted(at, &call.subject, asker);
            if self.load(at, &asker.key).stale(asker.version, asker.generation) {
                return Reserved::Stale;
            }
        }
        let version = self.give(at);
        let key = call.subject.key(&call.slot);
        let mut slot = self.load(at, &key);
        slot.due = slot.due.max(due_millis(call.due));
        stay_open(&mut slot, at);
        self.slots.insert(key, slot);
        Reserved::Version(version)
    }

    /// Carries out [`Record`].
    pub fn record(&mut self, at: At, call: &Record) {
        // A claim treats a version that was never given out as absent. If `newest` rose to such a version, all events
        // below it would count as replaced.
        if matches!(call.slot, DedupSlot::Event(_)) || !self.was_given(at, call.version) {
            return;
        }
        let key = call.subject.key(&call.slot);
        let mut slot = self.load(at, &key);
        let latest = slot.newest.max(slot.mark.version).max(slot.covered);
        slot.overtaken |= call.version < latest && call.version != slot.mark.version;
        slot.newest = slot.newest.max(call.version);
        if slot.since == 0 && call.version > slot.mark.version {
            slot.since = at.millis();
        }
        keep(&mut slot, at, &call.terms, None);
        self.slots.insert(key, slot);
    }

    /// Carries out [`Claim`].
    pub fn claim(&mut self, at: At, call: &Claim) -> ClaimAnswer {
        let now = at.millis();
        let lease_key = call.subject.leaseholder(&call.terms).lease();
        let held = self.held(at, &lease_key);
        if let Some(lease) = held.filter(|lease| lease.token == call.token) {
            let key = call.subject.key(&call.stamp.slot);
            let as_named = lease.field == key.1;
            let slot = if as_named { key } else { own_key(&call.subject) };
            // The first answer to this claim was lost, and the event has been cancelled since. The lease is not removed: if
            // the first answer did arrive, the worker runs the event and still needs the lease.
            if self.load(at, &slot).stale(lease.version, lease.generation) {
                return ClaimAnswer::Stale;
            }
            return ClaimAnswer::run(call, lease.fence, lease.crashes, as_named);
        }
        let busy = held.is_some();
        let Counted { key, version, generation, as_named } = self.counted(at, &call.subject, &call.stamp);
        let mut slot = self.load(at, &key);
        if slot.stale(version, generation) {
            return ClaimAnswer::Stale;
        }
        let overdue = key.1 == "i"
            && version > slot.mark.version
            && slot.since > 0
            && now - slot.since > millis(call.terms.max_wait);
        if slot.replaces(&key.1, version) && !overdue {
            return ClaimAnswer::Replaced;
        }
        if let Some(later) = slot.later
            && later.at > now
            && slot.postpones(&key.1, later, version, generation)
        {
            return ClaimAnswer::Later(Timestamp::from_millisecond(later.at).unwrap_or(Timestamp::MAX));
        }
        if busy {
            return ClaimAnswer::Busy;
        }
        let crashes = match slot.is_at(version, generation) {
            true if slot.begun => (slot.crashes + 1).min(MOST_CRASHES),
            true => slot.crashes,
            false => 0,
        };
        if crashes >= 2 && !call.alone {
            return ClaimAnswer::Alone;
        }
        let fence = self.give(at);
        let until = (now + millis(call.terms.lease)).min(END_OF_TIME);
        let lease = Lease { token: call.token, until, field: key.1.clone(), version, generation, fence, crashes };
        self.leases.insert(lease_key, lease);
        // Only the first run of a version covers. Example: a run of version 1 began, version 2 was published, and a second
        // claim of version 1 arrives so late that its worker is gone. If that claim covered, the first run's settle would
        // not count, no run would serve version 2, and version 2 would count as replaced.
        if key.1 == "f" && version > slot.mark.version {
            slot.covered = slot.covered.max(fence);
        }
        slot.raise(Mark { version, finished: false, generation });
        (slot.begun, slot.crashes) = (true, crashes);
        slot.since = if slot.newest > version { now } else { 0 };
        stay_open(&mut slot, at);
        self.slots.insert(key, slot);
        ClaimAnswer::run(call, fence, crashes, as_named)
    }

    /// Carries out [`Renew`].
    pub fn renew(&mut self, at: At, call: &Renew) -> Renewed {
        let Some(lease) = self.own_lease(at, &call.subject, &call.terms, call.token) else {
            return Renewed::Lost;
        };
        lease.until = (at.millis() + millis(call.terms.lease)).min(END_OF_TIME);
        let Counted { key, version, .. } = self.counted(at, &call.subject, &call.stamp);
        let mut slot = self.load(at, &key);
        let answer = if slot.cancels(version) { Renewed::Cancelled } else { Renewed::Held };
        // If Redis has lost the slot there is nothing to extend. The settlement writes the slot again.
        if slot.until > 0 {
            keep(&mut slot, at, &call.terms, Some(call.due));
            self.slots.insert(key, slot);
        }
        answer
    }

    /// Carries out [`Release`].
    pub fn release(&mut self, at: At, call: &Release) {
        if !self.give_back(at, &call.subject, &call.terms, call.token) {
            return;
        }
        let Counted { key, version, generation, .. } = self.counted(at, &call.subject, &call.stamp);
        let mut slot = self.load(at, &key);
        if slot.begun && slot.is_at(version, generation) {
            slot.begun = false;
            keep(&mut slot, at, &call.terms, Some(call.due));
            self.slots.insert(key, slot);
        }
    }

    /// Carries out [`Settle`].
    pub fn settle(&mut self, at: At, call: &Settle) {
        let Counted { key, version, generation, .. } = self.counted(at, &call.subject, &call.stamp);
        let mut slot = self.load(at, &key);
        // A run that began before a covered event was published must not finish that event: a later run serves it.
        let counts = call.fence >= slot.covered;
        let mark = match &call.end {
            End::Finished => Mark { version, finished: true, generation },
            End::Copied { due, .. } => {
                slot.due = slot.due.max(due_millis(*due));
                Mark { version, finished: false, generation: (generation + 1).min(LAST_GENERATION) }
            }
        };
        if counts {
            slot.raise(mark);
            // At the last generation the copy has the same generation, so the mark does not rise. The copy has not been
            // started all the same.
            if !mark.finished && mark.generation == generation && slot.mark == mark {
                (slot.begun, slot.crashes) = (false, 0);
            }
        }
        keep(&mut slot, at, &call.terms, Some(call.due));
        self.slots.insert(key, slot);
        self.give_back(at, &call.subject, &call.terms, call.token);
    }

    /// Carries out [`Later`].
    pub fn later(&mut self, at: At, call: &Later) -> Postponed {
        let Counted { key, version, generation, .. } = self.counted(at, &call.subject, &call.stamp);
        let mut slot = self.load(at, &key);
        if slot.stale(version, generation) || slot.replaces(&key.1, version) {
            return Postponed::Unwanted;
        }
        if slot.begun && slot.is_at(version, generation) {
            return Postponed::Running;
        }
        // At least 1, because 0 means never.
        let date = due_millis(call.at).clamp(1, END_OF_TIME);
        slot.later = Some(state::Later { at: date, version, generation });
        slot.due = slot.due.max(date);
        stay_open(&mut slot, at);
        self.slots.insert(key, slot);
        Postponed::Until
    }

    /// Carries out [`Cancel`].
    pub fn cancel(&mut self, at: At, call: &Cancel) -> Vec<Cancelled> {
        let slots = match &call.slot {
            Some(slot) => vec![slot.clone()],
            None if call.subject.reference.is_none() => vec![DedupSlot::Event(call.subject.id.clone())],
            None => self.slots_of(at, &call.subject),
        };
        if slots.is_empty() {
            return Vec::new();
        }
        // One version for all slots. It is above every version that was given out until now.
        let version = self.give(at);
        slots.into_iter().map(|slot| self.cancel_slot(at, call, slot, version)).collect()
    }

    fn cancel_slot(&mut self, at: At, call: &Cancel, which: DedupSlot, version: i64) -> Cancelled {
        let key = call.subject.key(&which);
        let mut slot = self.load(at, &key);
        let (seen, already) = (slot.until > 0, slot.cancelled);
        let running = slot.begun && !slot.mark.finished;
        let waiting = seen && slot.open() && (!running || slot.newest > slot.mark.version);
        slot.raise(Mark { version, finished: true, generation: 0 });
        slot.cancelled = true;
        slot.since = 0;
        slot.later = None;
        slot.due = slot.due.max(call.due.map_or(0, due_millis));
        if !seen {
            // Copies that the register does not know may exist, and the ladder delays them by the horizon at most.
            slot.due = slot.due.max((at.millis() + millis(call.horizon)).min(END_OF_TIME));
        }
        stay_open(&mut slot, at);
        self.slots.insert(key, slot);
        Cancelled { slot: which, id: None, waiting, running, already }
    }

    /// Tells whether a run that a cancel of this slot has reached still holds its lease.
    #[must_use]
    pub fn has_cancelled_run(&self, at: At, subject: &Subject, slot: &DedupSlot, terms: &Terms) -> bool {
        let key = subject.key(slot);
        let slot = self.load(at, &key);
        let lease = self.held(at, &subject.leaseholder(terms).lease());
        slot.cancelled && lease.is_some_and(|lease| lease.field == key.1 && lease.fence < slot.mark.version)
    }

    /// Returns the slots of a reference that have not expired.
    pub(super) fn slots_of(&self, at: At, subject: &Subject) -> Vec<DedupSlot> {
        let home = subject.home(&DedupSlot::Immediate).to_string();
        let slots = self.slots.iter().filter(|((name, _), slot)| *name == home && slot.until > at.millis());
        slots.filter_map(|((_, field), _)| field.parse().ok()).collect()
    }

    /// Returns the time in ms at which a home expires: with its last slot.
    #[must_use]
    #[cfg(any(test, feature = "internals"))]
    pub fn until(&self, home: &str) -> Option<i64> {
        self.slots.iter().filter(|((name, _), _)| name == home).map(|(_, slot)| slot.until).max()
    }

    /// Returns a slot. An expired slot counts as absent, and an absent slot is all zero.
    #[must_use]
    pub fn slot(&self, at: At, key: &(String, String)) -> SlotState {
        self.load(at, key)
    }

    /// Returns the home and field, and the version, with which a copy counts.
    pub(super) fn counted_key(&self, at: At, subject: &Subject, stamp: &CopyVersion) -> ((String, String), i64) {
        let Counted { key, version, .. } = self.counted(at, subject, stamp);
        (key, version)
    }

    fn give(&mut self, at: At) -> i64 {
        self.last = (self.last + 1).max(at.micros);
        self.last
    }

    /// Tells whether *reserve* can have given out this version. Any other version counts as absent. Otherwise a foreign
    /// publisher with a huge number would make the events of all other publishers stale.
    pub(super) fn was_given(&self, at: At, version: i64) -> bool {
        (1..=self.last.max(at.micros)).contains(&version)
    }

    fn counted(&self, at: At, subject: &Subject, stamp: &CopyVersion) -> Counted {
        let generation = stamp.counted_generation();
        let version = stamp.counted_version(subject);
        if self.was_given(at, version) {
            Counted { key: subject.key(&stamp.slot), version, generation, as_named: true }
        } else if matches!(stamp.slot, DedupSlot::Event(_)) {
            Counted { key: subject.key(&stamp.slot), version: 0, generation, as_named: true }
        } else {
            Counted { key: own_key(subject), version: 0, generation, as_named: false }
        }
    }

    fn load(&self, at: At, key: &(String, String)) -> SlotState {
        self.slots.get(key).filter(|slot| slot.until > at.millis()).cloned().unwrap_or_default()
    }

    fn held(&self, at: At, key: &str) -> Option<&Lease> {
        self.leases.get(key).filter(|lease| lease.until > at.millis())
    }

    fn own_lease(&mut self, at: At, subject: &Subject, terms: &Terms, token: Uuid) -> Option<&mut Lease> {
        let key = subject.leaseholder(terms).lease();
        self.leases.get_mut(&key).filter(|lease| lease.until > at.millis() && lease.token == token)
    }

    /// Removes a lease if the token holds it, and returns whether it did.
    fn give_back(&mut self, at: At, subject: &Subject, terms: &Terms, token: Uuid) -> bool {
        let held = self.own_lease(at, subject, terms, token).is_some();
        if held {
            self.leases.remove(&subject.leaseholder(terms).lease());
        }
        held
    }
}

/// Returns the key of the event's own `e:` slot.
fn own_key(subject: &Subject) -> (String, String) {
    (subject.own_home().to_string(), "e".to_owned())
}

fn stay_open(slot: &mut SlotState, at: At) {
    slot.until = (slot.due.max(at.millis()) + millis(at.backlog_retention)).min(END_OF_TIME);
}

/// Sets the time at which a slot expires.
///
/// - A slot that is open, cancelled, overtaken or not yet due expires like an open one: an overtaken copy is behind the
///   delivery for an unknown time.
/// - Any other expires after `dedup_retention` or twice the lateness of the caller's delivery, whichever is longer. Copies
///   that are still queued are about as late as that delivery. The lateness counts up to the backlog-retention, because a
///   foreign publisher may date its events back by years.
/// - A caller without a delivery passes `None` as `due`, and never shortens the time.
fn keep(slot: &mut SlotState, at: At, terms: &Terms, due: Option<Timestamp>) {
    let now = at.millis();
    if slot.open() || slot.cancelled || slot.overtaken || slot.due > now {
        return stay_open(slot, at);
    }
    let dedup = millis(terms.dedup_retention);
    let until = match due {
        Some(due) => now + dedup.max((2 * (now - due.as_millisecond())).min(millis(at.backlog_retention))),
        None => slot.until.max(now + dedup),
    };
    slot.until = until.min(END_OF_TIME);
}
