//! What people are told of the events that wait: where each is, when it is due, how often it failed and why.
//!
//! It is kept beside the protocol by the calls that change it, and may be wrong after a loss. Nothing is decided from it.

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;
use jiff::Timestamp;

use super::{
    Cancel, Cancelled, DedupSlot, End, Later, Note, Postponed, Record, Settle, Stage, Subject,
    state::{Shard, SlotState},
    transitions::{At, due_millis, millis},
};
use crate::domain::{
    wire::cut_reason,
    words::{EventType, Reference},
};

/// One event that waits, runs, or was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whom it is about. Without a reference where the event has none.
    pub subject: Subject,
    /// What it competes with.
    pub slot: DedupSlot,
    /// When its latest copy is due.
    pub due: Timestamp,
    /// Where that is, how often it failed, and why.
    pub note: Note,
}

impl Entry {
    /// Whether it is about this reference, and competes with nothing.
    #[must_use]
    pub fn is_alone_of(&self, reference: &Reference) -> bool {
        matches!(self.slot, DedupSlot::Event(_)) && self.subject.reference.as_ref() == Some(reference)
    }
}

/// A slot as people are shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// What it competes with.
    pub slot: DedupSlot,
    /// What decides; all zero where the register has not been asked for it yet.
    pub state: SlotState,
    /// A run of it holds the lease that goes by the reference, or by the id of an event that is looked at by itself: also a
    /// run that was cancelled. Not asked for in a list.
    pub leased: bool,
    /// What the index says. None for what is handled or cancelled, and where it was lost.
    pub entry: Option<Entry>,
}

/// Which events of a type are looked for, in the order of their due times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Find {
    /// Of this type.
    pub event_type: EventType,
    /// Due at this time or later.
    pub due_from: Option<Timestamp>,
    /// Due before this time.
    pub due_before: Option<Timestamp>,
    /// Of this reference only what competes with nothing, which is not kept with its reference. None: all events.
    pub alone_of: Option<Reference>,
    /// After what [`Found::next`] said before; none for the first page.
    pub after: Option<Cursor>,
    /// So many at most; at least 1.
    pub limit: usize,
}

/// Where a page ended: for each shard, the last event that was returned of it. What comes and goes meanwhile may be
/// missed or seen, what stays is seen once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub Vec<Option<Place>>);

/// The place of an event in a shard's index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When it is due, in ms.
    pub due: i64,
    /// Its name there.
    pub member: String,
}

/// A page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// In the order of their due times. Each has an entry.
    pub events: Vec<Shown>,
    /// There may be more after this.
    pub next: Option<Cursor>,
}

/// The index of one shard, as the register in memory keeps it: entries and kept messages by home and field.
#[derive(Clone, Debug, Default)]
pub struct Index {
    entries: BTreeMap<(String, String), Entry>,
    kept: BTreeMap<(String, String), Bytes>,
}

impl Index {
    /// Before a call writes into this home: what is past its time must not come back to life with a slot of the same name.
    pub fn expire(&mut self, at: At, shard: &Shard, home: &str) {
        let of_home = self.entries.range((home.to_owned(), String::new())..).take_while(|((name, _), _)| name == home);
        let dead = of_home.filter(|(key, entry)| !lives(at, shard, key, entry)).map(|(key, _)| key.clone());
        for key in dead.collect::<Vec<_>>() {
            self.forget(&key);
        }
    }

    /// After [`Shard::record`]. What is older than another, or handled, is not what waits. It may be started before it is
    /// recorded, and even have failed: then it is known already, and its message is not.
    pub fn record(&mut self, at: At, shard: &Shard, call: &Record) {
        let key = key(&call.subject, &call.slot);
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

    /// After [`Shard::settle`]. The entry may be a newer event's by now.
    pub fn settle(&mut self, at: At, shard: &Shard, call: &Settle) {
        let (key, version) = shard.counted_key(at, &call.subject, &call.stamp);
        let slot = shard.slot(at, &key);
        if call.fence < slot.covered || slot.cancelled || slot.newest.max(slot.mark.version) > version {
            return;
        }
        match &call.end {
            End::Finished => self.forget(&key),
            // Unless a later copy of it is known, or it was handled.
            End::Copied { due, note } if slot.is_at(version, call.stamp.counted_next()) => {
                let alone = DedupSlot::Event(call.subject.id.clone());
                let counts_alone = key.1 == "e" && !matches!(call.stamp.slot, DedupSlot::Event(_));
                let slot = if counts_alone { &alone } else { &call.stamp.slot };
                // What was kept is the message of the event that was recorded.
                if self.entries.get(&key).is_none_or(|entry| entry.subject.id != call.subject.id) {
                    self.kept.remove(&key);
                }
                self.note(key, &call.subject, slot, *due, note);
            }
            End::Copied { .. } => {}
        }
    }

    /// After [`Shard::later`].
    pub fn later(&mut self, at: At, shard: &Shard, call: &Later, answer: Postponed) {
        let (key, _) = shard.counted_key(at, &call.subject, &call.stamp);
        if answer == Postponed::Until
            && let Some(entry) = self.entries.get_mut(&key)
        {
            entry.due = in_millis(call.at);
        }
    }

    /// After [`Shard::cancel`]. What was published without a version is known here alone.
    pub fn cancel(&mut self, call: &Cancel, answer: &mut [Cancelled]) {
        for cancelled in answer {
            let key = key(&call.subject, &cancelled.slot);
            cancelled.waiting |= !cancelled.running && self.entries.contains_key(&key);
            self.forget(&key);
        }
    }

    /// A page of a type's events.
    #[must_use]
    pub fn find(&self, at: At, shard: &Shard, find: &Find) -> Found {
        let mut places: Vec<(Place, &(String, String), &Entry)> = Vec::new();
        for (key, entry) in &self.entries {
            let due = due_millis(entry.due);
            let asked = find.due_from.is_none_or(|from| due >= due_millis(from))
                && find.due_before.is_none_or(|before| due < due_millis(before))
                && find.alone_of.as_ref().is_none_or(|asked| entry.is_alone_of(asked));
            if asked && entry.subject.event_type == find.event_type && lives(at, shard, key, entry) {
                let member = format!("{}\0{}", entry.subject.home(&entry.slot).place(), key.1);
                places.push((Place { due, member }, key, entry));
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
        let shown = |(_, key, entry): (Place, &(String, String), &Entry)| Shown {
            slot: entry.slot.clone(),
            state: shard.slot(at, key),
            leased: false,
            entry: Some(entry.clone()),
        };
        Found { events: page.into_iter().map(shown).collect(), next }
    }

    /// All that is known of a reference, or of an event without one.
    #[must_use]
    pub fn look(&self, at: At, shard: &Shard, subject: &Subject) -> Vec<Shown> {
        let slots = match &subject.reference {
            Some(_) => shard.slots_of(at, subject),
            None => vec![DedupSlot::Event(subject.id.clone())],
        };
        slots.iter().filter_map(|slot| self.look_at(at, shard, subject, slot)).collect()
    }

    /// All that is known of one slot.
    #[must_use]
    pub fn look_at(&self, at: At, shard: &Shard, subject: &Subject, slot: &DedupSlot) -> Option<Shown> {
        let key = key(subject, slot);
        let entry = self.entries.get(&key).filter(|entry| lives(at, shard, &key, entry));
        let lease = shard.leases.get(&subject.home(slot).lease());
        let leased = lease.is_some_and(|lease| lease.until > at.micros.div_euclid(1000) && lease.field == key.1);
        let shown = Shown { slot: slot.clone(), state: shard.slot(at, &key), leased, entry: entry.cloned() };
        (shown.state.until > 0 || shown.entry.is_some()).then_some(shown)
    }

    /// The message of the newest event of a slot, where it was kept.
    #[must_use]
    pub fn kept(&self, at: At, shard: &Shard, subject: &Subject, slot: &DedupSlot) -> Option<Bytes> {
        let key = key(subject, slot);
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

/// It lasts as long as its slot. An event without coalescing has none until it is claimed, and lasts as one that is open
/// would.
fn lives(at: At, shard: &Shard, key: &(String, String), entry: &Entry) -> bool {
    let now = at.micros.div_euclid(1000);
    shard.slot(at, key).until > 0 || (key.1 == "e" && due_millis(entry.due) + millis(at.backlog_retention) > now)
}

/// As the index keeps it.
fn in_millis(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(due_millis(time)).unwrap_or(time)
}

fn key(subject: &Subject, slot: &DedupSlot) -> (String, String) {
    (subject.home(slot).to_string(), slot.field())
}
