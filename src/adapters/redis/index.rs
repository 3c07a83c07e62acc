//! Reads the index in Redis: pages of a type's events, the events of one home, and kept messages.

use std::{collections::VecDeque, ops::Range, vec};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, future::try_join_all, stream};
use jiff::Timestamp;

use super::{
    RedisRegister, TOGETHER,
    items::{Argument, Item},
    keys::Keys,
    packed, scripts,
};
use crate::{
    domain::{
        register::{
            DedupSlot, Subject, Terms,
            index::{Cursor, Find, Found, IndexPosition, Shown, TypeCounts},
            state::{END_OF_TIME, Home, due_millis},
        },
        words::EventType,
    },
    ports::{Index, RegisterError},
};

/// The highest number of members that one script looks at. Redis does nothing else meanwhile.
const PAGE: usize = 500;

/// The highest number of types that one script counts.
const TYPES: usize = 200;

/// The answer of `find.lua`: member, due time, slot and details of each event, then the due time and the member of the
/// last place that was looked at, and 1 if there may be more.
type Page = (Vec<(Vec<u8>, i64, Vec<u8>, Vec<u8>)>, i64, Vec<u8>, u8);

/// The events of one shard, in their order, as far as they were read.
struct Shard {
    number: u16,
    /// The place of the last event that the caller was given.
    given: Option<IndexPosition>,
    /// The place after which the next page begins.
    read: Option<IndexPosition>,
    /// Events that were read, and not yet given to the caller.
    ahead: VecDeque<(IndexPosition, Shown)>,
    ended: bool,
}

impl RedisRegister {
    /// Returns the shards to search. All events of a reference are in one shard.
    fn shards_of(&self, find: &Find) -> Range<u16> {
        let Some(reference) = find.uncontested_of.clone() else { return 0..self.keys.shards() };
        let subject = Subject { event_type: find.event_type.clone(), reference: Some(reference), id: String::new() };
        let shard = self.keys.shard(&subject);
        shard..shard + 1
    }

    /// Counts the events of these types in one shard.
    async fn count_shard(&self, shard: u16, types: &[EventType]) -> Result<Vec<TypeCounts>, RegisterError> {
        let mut script = self.begin(&scripts::COUNT, shard);
        for event_type in types {
            script.arg(self.keys.event_type(event_type));
        }
        let answer: Vec<i64> = self.client.call(&script, self.keys.slot(shard), self.limit.into()).await?;
        if answer.len() != types.len() * 3 {
            return Err(self.client.unexpected(format!("{} values answer {} questions", answer.len(), types.len())));
        }
        let count = |value: i64| u64::try_from(value).unwrap_or_default();
        let counts = answer.chunks_exact(3).map(|values| TypeCounts {
            due: count(values[0]),
            delayed: count(values[1]),
            next_due: Timestamp::from_millisecond(values[2]).ok().filter(|_| values[2] >= 0),
        });
        Ok(counts.collect())
    }

    /// Reads pages of a shard until there is an event, or no further page.
    async fn read_on(&self, find: &Find, shard: &mut Shard) -> Result<(), RegisterError> {
        while shard.ahead.is_empty() && !shard.ended {
            let mut script = self.begin(&scripts::FIND, shard.number);
            let end = find.due_before.map_or(END_OF_TIME + 1, due_millis);
            script.arg(self.keys.event_type(&find.event_type)).arg(find.due_from.map_or(0, due_millis)).arg(end);
            match &shard.read {
                Some(place) => script.arg(place.due).arg(&place.member),
                None => script.arg("").arg(""),
            };
            script.arg(find.limit.clamp(1, PAGE)).arg(u8::from(find.uncontested_of.is_some()));
            let (found, due, member, more): Page =
                self.client.call(&script, self.keys.slot(shard.number), self.limit.into()).await?;
            shard.ended = more == 0;
            if let Ok(member) = String::from_utf8(member)
                && !member.is_empty()
            {
                shard.read = Some(IndexPosition { due, member });
            } else {
                shard.ended = true;
            }
            shard.ahead.extend(found.into_iter().filter_map(|(member, due, slot, details)| {
                let member = String::from_utf8(member).ok()?;
                let (home, field) = member.rsplit_once('\0')?;
                let entry = packed::entry(&find.event_type, home, field, &details)?;
                if find.uncontested_of.as_ref().is_some_and(|asked| !entry.is_uncontested_of(asked)) {
                    return None;
                }
                let state = packed::state(&entry.slot, &slot).unwrap_or_default();
                Some((
                    IndexPosition { due, member },
                    Shown { slot: entry.slot.clone(), state, leased: None, entry: Some(entry) },
                ))
            }));
        }
        Ok(())
    }
}

#[async_trait]
impl Index for RedisRegister {
    async fn find(&self, find: &Find) -> Result<Found, RegisterError> {
        let places = find.after.clone().unwrap_or_default().0;
        let mut shards: Vec<Shard> = self
            .shards_of(find)
            .map(|number| {
                let given = places.get(usize::from(number)).cloned().flatten();
                Shard { number, read: given.clone(), given, ahead: VecDeque::new(), ended: false }
            })
            .collect();
        try_join_all(shards.iter_mut().map(|shard| self.read_on(find, shard))).await?;
        let limit = find.limit.max(1);
        let mut events = Vec::new();
        while events.len() < limit {
            let heads = shards.iter_mut().filter(|shard| !shard.ahead.is_empty());
            let Some(first) =
                heads.min_by(|one, other| one.ahead.front().map(place).cmp(&other.ahead.front().map(place)))
            else {
                break;
            };
            if let Some((place, shown)) = first.ahead.pop_front() {
                first.given = Some(place);
                events.push(shown);
            }
            self.read_on(find, first).await?;
        }
        let full = events.len() == limit;
        let next = full.then(|| {
            let mut places = vec![None; usize::from(self.keys.shards())];
            for shard in shards {
                places[usize::from(shard.number)] = shard.given;
            }
            Cursor(places)
        });
        Ok(Found { events, next })
    }

    async fn count(&self, types: &[EventType]) -> Result<Vec<TypeCounts>, RegisterError> {
        let mut counts = vec![TypeCounts::default(); types.len()];
        for (counts, types) in counts.chunks_mut(TYPES).zip(types.chunks(TYPES)) {
            let shards = (0..self.keys.shards()).map(|shard| self.count_shard(shard, types));
            let answers: Vec<_> = stream::iter(shards).buffered(TOGETHER).collect().await;
            for answer in answers {
                for (count, of_shard) in counts.iter_mut().zip(answer?) {
                    count.add(&of_shard);
                }
            }
        }
        Ok(counts)
    }

    async fn look(&self, batch: &[Subject]) -> Result<Vec<Vec<Shown>>, RegisterError> {
        let (references, events): (Vec<_>, Vec<_>) =
            batch.iter().enumerate().partition(|(_, subject)| subject.reference.is_some());
        let looks: Vec<_> = references.iter().map(|(_, subject)| Look((*subject).clone())).collect();
        let slot = |subject: &Subject| DedupSlot::Event(subject.id.clone());
        let looks_at: Vec<_> =
            events.iter().map(|(_, subject)| LookAt { slot: slot(subject), subject: (*subject).clone() }).collect();
        let mut answers = vec![Vec::new(); batch.len()];
        for ((place, _), shown) in references.iter().zip(self.ask(&scripts::LOOK, &looks).await?) {
            answers[*place] = shown;
        }
        for ((place, _), shown) in events.iter().zip(self.ask(&scripts::LOOK_AT, &looks_at).await?) {
            answers[*place] = shown.into_iter().collect();
        }
        Ok(answers)
    }

    async fn look_at(&self, batch: &[(Subject, DedupSlot)]) -> Result<Vec<Option<Shown>>, RegisterError> {
        let looks: Vec<_> = batch.iter().cloned().map(|(subject, slot)| LookAt { subject, slot }).collect();
        self.ask(&scripts::LOOK_AT, &looks).await
    }

    async fn cancelled_runs(&self, batch: &[(Subject, DedupSlot, Terms)]) -> Result<Vec<bool>, RegisterError> {
        let runs = batch.iter().cloned().map(|(subject, slot, terms)| CancelledRun { subject, slot, terms });
        self.ask(&scripts::CANCELLED_RUN, &runs.collect::<Vec<_>>()).await
    }

    async fn kept(&self, batch: &[(Subject, DedupSlot)]) -> Result<Vec<Option<Bytes>>, RegisterError> {
        let kept: Vec<_> = batch.iter().cloned().map(|(subject, slot)| Kept { subject, slot }).collect();
        self.ask(&scripts::KEPT, &kept).await
    }
}

const fn place((place, _): &(IndexPosition, Shown)) -> &IndexPosition {
    place
}

/// Reads the slots of a reference. Each is in the hash of the slot `i`.
struct Look(Subject);

/// Field, slot, details, and 1 if the slot holds the lease.
type Raw = (String, Vec<u8>, Vec<u8>, u8);

fn shown(subject: &Subject, home: &Home<'_>, (field, state, details, leased): &Raw) -> Option<Shown> {
    let slot = packed::slot_of(home.name(), field)?;
    Some(Shown {
        state: packed::state(&slot, state).unwrap_or_default(),
        slot,
        leased: Some(*leased > 0),
        entry: packed::entry(&subject.event_type, &home.place(), field, details),
    })
}

impl Item for Look {
    type Raw = Vec<Raw>;
    type Answer = Vec<Shown>;

    fn subject(&self) -> &Subject {
        &self.0
    }

    fn argument(&self, keys: &Keys) -> Argument {
        Argument::new().text(keys.place(&self.0, &DedupSlot::Immediate))
    }

    fn read(&self, raw: &mut vec::IntoIter<Self::Raw>) -> Option<Vec<Shown>> {
        let mut raw = raw.next()?;
        raw.sort_unstable();
        let home = self.0.home(&DedupSlot::Immediate);
        Some(raw.iter().filter_map(|raw| shown(&self.0, &home, raw)).collect())
    }
}

/// Reads one slot.
struct LookAt {
    subject: Subject,
    slot: DedupSlot,
}

impl Item for LookAt {
    type Raw = Vec<Raw>;
    type Answer = Option<Shown>;

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn argument(&self, keys: &Keys) -> Argument {
        Argument::new().text(keys.place(&self.subject, &self.slot)).text(self.slot.field())
    }

    fn read(&self, raw: &mut vec::IntoIter<Self::Raw>) -> Option<Option<Shown>> {
        let raw = raw.next()?;
        Some(raw.first().and_then(|raw| shown(&self.subject, &self.subject.home(&self.slot), raw)))
    }
}

/// Asks whether a run that a cancel of the slot has reached still holds its lease.
struct CancelledRun {
    subject: Subject,
    slot: DedupSlot,
    terms: Terms,
}

impl Item for CancelledRun {
    type Raw = u8;
    type Answer = bool;

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn argument(&self, keys: &Keys) -> Argument {
        let Self { subject, slot, terms } = self;
        let is_beside = subject.leaseholder(terms) == subject.home(slot);
        let lease = if is_beside { String::new() } else { keys.lease_place(subject, terms) };
        Argument::new().text(subject.field(slot)).text(keys.place(subject, slot)).text(lease)
    }

    fn read(&self, raw: &mut vec::IntoIter<u8>) -> Option<bool> {
        raw.next().map(|raw| raw == 1)
    }
}

/// Reads the message that is kept of a slot's newest event.
struct Kept {
    subject: Subject,
    slot: DedupSlot,
}

impl Item for Kept {
    type Raw = Option<Vec<u8>>;
    type Answer = Option<Bytes>;

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn argument(&self, keys: &Keys) -> Argument {
        Argument::new().text(keys.place(&self.subject, &self.slot)).text(self.slot.field())
    }

    fn read(&self, raw: &mut vec::IntoIter<Self::Raw>) -> Option<Option<Bytes>> {
        raw.next().map(|raw| raw.map(Bytes::from))
    }
}
