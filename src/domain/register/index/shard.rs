//! The index of a shard in memory, with the rules of `docs/register.md`.

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;
use jiff::Timestamp;

use super::{Cursor, Entry, Find, Found, IndexPosition, Shown, TypeCounts};
use crate::domain::{
    reason::cut_reason,
    register::{
        Cancel, Cancelled, DedupSlot, End, Later, Note, Postponed, Record, Settle, Stage, Subject,
        state::{Shard, due_millis, millis},
        transitions::At,
    },
    words::EventType,
};

/// The index of one shard of the register in memory: entries and kept messages by home and field.
#[derive(Clone, Debug, Default)]
pub struct Index {
    entries: BTreeMap<(String, String), Entry>,
    kept: BTreeMap<(String, String), Bytes>,
}

impl Index {
    /// Removes the expired entries of a home. Each call that writes into the home calls this first, because an expired
    /// entry must not reappear with a new slot of the same name.
    pub fn expire(&mut self, at: At, shard: &Shard, home: &str) {
        let of_home = self.entries.range((home.to_owned(), String::new())..).take_while(|((name, _), _)| name == home);
        let dead = of_home.filter(|(key, entry)| !lives(at, shard, key, entry)).map(|(key, _)| key.clone());
        for key in dead.collect::<Vec<_>>() {
            self.forget(&key);
        }
    }

    /// Updates the index after [`Shard::record`]. An event that is handled, or older than another of its slot, does not
    /// wait and gets no entry. An event that was started before this call gets its entry here. One that has failed before this
    /// call has an entry, and only its message is added.
    pub fn record(&mut self, at: At, shard: &Shard, call: &Record) {
        let key = call.subject.key(&call.slot);
        let slot = shard.slot(at, &key);
        let (is_newest, is_new) = match &call.slot {
            DedupSlot::Event(_) => (slot.mark.version == 0, false),
            _ if !shard.was_given(at, call.version) => return,
            _ => (call.version == slot.newest, call.version > slot.mark.version.max(slot.covered)),
        };
        let is_at = matches!(call.slot, DedupSlot::Event(_)) || call.version == slot.mark.version;
        if !is_newest || !(is_new || is_at && !slot.mark.finished) {
            return;
        }
        if !is_new && slot.mark.generation > 0 {
            let known = self.entries.get(&key).is_some_and(|entry| entry.subject.id == call.subject.id);
            if let Some(message) = call.kept.as_ref().filter(|_| known) {
                self.kept.entry(key).or_insert_with(|| message.clone());
            }
            return;
        }
        match &call.kept {
            Some(message) => drop(self.kept.insert(key.clone(), message.clone())),
            None => drop(self.kept.remove(&key)),
        }
        let note = Note { stage: Stage::Waiting, attempts: 0, reason: call.reason.clone() };
        self.note(key, &call.subject, &call.slot, call.due, &note);
    }

    /// Updates the index after [`Shard::settle`]. If the entry belongs to a newer event by now, it stays.
    pub fn settle(&mut self, at: At, shard: &Shard, call: &Settle) {
        let (key, version) = shard.counted_key(at, &call.subject, &call.stamp);
        let slot = shard.slot(at, &key);
        if call.fence < slot.covered || slot.cancelled || slot.newest.max(slot.mark.version) > version {
            return;
        }
        match &call.end {
            End::Finished => self.forget(&key),
            // No entry is written if a later copy is known, or if the event was handled.
            End::Copied { due, note } if slot.is_at(version, call.stamp.counted_next()) => {
                let alone = DedupSlot::Event(call.subject.id.clone());
                let counts_alone = key.1 == "e" && !matches!(call.stamp.slot, DedupSlot::Event(_));
                let slot = if counts_alone { &alone } else { &call.stamp.slot };
                // The kept message belongs to the event that was recorded.
                if self.entries.get(&key).is_none_or(|entry| entry.subject.id != call.subject.id) {
                    self.kept.remove(&key);
                }
                self.note(key, &call.subject, slot, *due, note);
            }
            End::Copied { .. } => {}
        }
    }

    /// Updates the index after [`Shard::later`].
    pub fn later(&mut self, at: At, shard: &Shard, call: &Later, answer: Postponed) {
        let (key, _) = shard.counted_key(at, &call.subject, &call.stamp);
        if answer == Postponed::Until
            && let Some(entry) = self.entries.get_mut(&key)
        {
            entry.due = in_millis(call.at);
        }
    }

    /// Updates the index, and the answer, after [`Shard::cancel`]. An event in an `e:` slot that was not claimed yet is
    /// known to the index alone.
    pub fn cancel(&mut self, call: &Cancel, answer: &mut [Cancelled]) {
        for cancelled in answer {
            let key = call.subject.key(&cancelled.slot);
            cancelled.waiting |= !cancelled.running && self.entries.contains_key(&key);
            self.forget(&key);
        }
    }

    /// Returns a page of a type's events.
    #[must_use]
    pub fn find(&self, at: At, shard: &Shard, find: &Find) -> Found {
        let mut places: Vec<(IndexPosition, &(String, String), &Entry)> = Vec::new();
        for (key, entry) in &self.entries {
            let due = due_millis(entry.due);
            let asked = find.due_from.is_none_or(|from| due >= due_millis(from))
                && find.due_before.is_none_or(|before| due < due_millis(before))
                && find.uncontested_of.as_ref().is_none_or(|asked| entry.is_uncontested_of(asked));
            if asked && entry.subject.event_type == find.event_type && lives(at, shard, key, entry) {
                let member = format!("{}\0{}", entry.subject.home(&entry.slot).place(), key.1);
                places.push((IndexPosition { due, member }, key, entry));
            }
        }
        places.sort_unstable_by(|(one, ..), (other, ..)| one.cmp(other));
        let after = find.after.as_ref().and_then(|cursor| cursor.0.first().cloned().flatten());
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page: Vec<_> = places
            .into_iter()
            .filter(|(place, ..)| match &from {
                Bound::Excluded(after) => place > after,
                _ => true,
            })
            .take(find.limit)
            .collect();
        let next = (page.len() == find.limit).then(|| Cursor(vec![page.last().map(|(place, ..)| place.clone())]));
        let shown = |(_, key, entry): (IndexPosition, &(String, String), &Entry)| Shown {
            slot: entry.slot.clone(),
            state: shard.slot(at, key),
            leased: None,
            entry: Some(entry.clone()),
        };
        Found { events: page.into_iter().map(shown).collect(), next }
    }

    /// Counts a type's events.
    #[must_use]
    pub fn count(&self, at: At, shard: &Shard, event_type: &EventType) -> TypeCounts {
        let now = at.micros.div_euclid(1000);
        let of_type = self
            .entries
            .iter()
            .filter(|(key, entry)| entry.subject.event_type == *event_type && lives(at, shard, key, entry));
        let mut counts = TypeCounts::default();
        for (_, entry) in of_type {
            let is_due = due_millis(entry.due) <= now;
            let next_due = (!is_due).then_some(entry.due);
            counts.add(&TypeCounts { due: is_due.into(), delayed: (!is_due).into(), next_due });
        }
        counts
    }

    /// Returns the known slots of a reference, or of an event without one.
    #[must_use]
    pub fn look(&self, at: At, shard: &Shard, subject: &Subject) -> Vec<Shown> {
        let slots = match &subject.reference {
            Some(_) => shard.slots_of(at, subject),
            None => vec![DedupSlot::Event(subject.id.clone())],
        };
        slots.iter().filter_map(|slot| self.look_at(at, shard, subject, slot)).collect()
    }

    /// Returns one slot, if it is known.
    #[must_use]
    pub fn look_at(&self, at: At, shard: &Shard, subject: &Subject, slot: &DedupSlot) -> Option<Shown> {
        let key = subject.key(slot);
        let entry = self.entries.get(&key).filter(|entry| lives(at, shard, &key, entry));
        let lease = shard.leases.get(&subject.home(slot).lease());
        let leased = Some(lease.is_some_and(|lease| lease.until > at.micros.div_euclid(1000) && lease.field == key.1));
        let shown = Shown { slot: slot.clone(), state: shard.slot(at, &key), leased, entry: entry.cloned() };
        (shown.state.until > 0 || shown.entry.is_some()).then_some(shown)
    }

    /// Returns the message of the newest event of a slot, if it was kept.
    #[must_use]
    pub fn kept(&self, at: At, shard: &Shard, subject: &Subject, slot: &DedupSlot) -> Option<Bytes> {
        let key = subject.key(slot);
        self.entries.get(&key).filter(|entry| lives(at, shard, &key, entry))?;
        self.kept.get(&key).cloned()
    }

    fn note(&mut self, key: (String, String), subject: &Subject, slot: &DedupSlot, due: Timestamp, note: &Note) {
        let reason = note.reason.as_deref().map(cut_reason).filter(|reason| !reason.is_empty());
        let note = Note { reason: reason.map(str::to_owned), ..*note };
        let entry = Entry { subject: subject.clone(), slot: slot.clone(), due: in_millis(due), note };
        self.entries.insert(key, entry);
    }

    fn forget(&mut self, key: &(String, String)) {
        self.entries.remove(key);
        self.kept.remove(key);
    }
}

/// Tells whether an entry has not expired. An entry lives as long as its slot. An event that competes with no other has
/// no slot until it is claimed. Until then its entry lives as long as an open slot would.
fn lives(at: At, shard: &Shard, key: &(String, String), entry: &Entry) -> bool {
    let now = at.micros.div_euclid(1000);
    shard.slot(at, key).until > 0 || (key.1 == "e" && due_millis(entry.due) + millis(at.backlog_retention) > now)
}

/// Rounds a time down to milliseconds, as the index stores it.
fn in_millis(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(due_millis(time)).unwrap_or(time)
}
