//! The index in Redis: a page of a type's events, all of one home, and the messages that are kept.

use std::{collections::VecDeque, ops::Range};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::try_join_all;
use redis::{Script, ScriptInvocation};

use super::{
    RedisRegister,
    keys::Keys,
    packed,
    scripts::{self, Call},
};
use crate::{
    domain::register::{
        Slot, Subject,
        index::{Cursor, Find, Found, Place, Shown},
        state::{END_OF_TIME, Home},
        transitions::due_millis,
    },
    ports::{Index, RegisterError},
};

/// So many members one script looks at, at most: Redis does nothing else meanwhile.
const PAGE: usize = 500;

/// Of each: member, due, slot, details. Then the last place that was looked at, and whether there may be more.
type Page = (Vec<(Vec<u8>, i64, Vec<u8>, Vec<u8>)>, i64, Vec<u8>, u8);

/// One shard's events, in their order, as far as they have been read.
struct Shard {
    number: u16,
    /// Where its last event was that the caller has got.
    given: Option<Place>,
    /// Where the next page begins.
    read: Option<Place>,
    ahead: VecDeque<(Place, Shown)>,
    ended: bool,
}

impl RedisRegister {
    /// All events of a reference are in one shard.
    fn shards_of(&self, find: &Find) -> Range<u16> {
        let Some(reference) = find.alone_of.clone() else { return 0..self.keys.shards() };
        let subject = Subject { event_type: find.event_type.clone(), reference: Some(reference), id: String::new() };
        let shard = self.keys.shard(&subject);
        shard..shard + 1
    }

    /// Reads on until there is something, or nothing more.
    async fn read_on(&self, find: &Find, shard: &mut Shard) -> Result<(), RegisterError> {
        while shard.ahead.is_empty() && !shard.ended {
            let mut script = self.begin(&scripts::FIND, shard.number);
            let end = find.due_before.map_or(END_OF_TIME + 1, due_millis);
            script
                .key(self.keys.index(shard.number, &find.event_type))
                // Homes that are elsewhere, while their hash slot is on its way, would be taken for gone.
                .key(self.keys.none(shard.number))
                .arg(self.keys.homes(shard.number, &find.event_type))
                .arg(find.due_from.map_or(0, due_millis))
                .arg(end);
            match &shard.read {
                Some(place) => script.arg(place.due).arg(&place.member),
                None => script.arg("").arg(""),
            };
            script.arg(find.limit.clamp(1, PAGE)).arg(u8::from(find.alone_of.is_some()));
            let (found, due, member, more): Page =
                self.link.call(&script, self.keys.slot(shard.number), self.limit.into()).await?;
            shard.ended = more == 0;
            if let Ok(member) = String::from_utf8(member)
                && !member.is_empty()
            {
                shard.read = Some(Place { due, member });
            } else {
                shard.ended = true;
            }
            shard.ahead.extend(found.into_iter().filter_map(|(member, due, slot, details)| {
                let member = String::from_utf8(member).ok()?;
                let (home, field) = member.rsplit_once('\0')?;
                let entry = packed::entry(&find.event_type, home, field, &details)?;
                if find.alone_of.as_ref().is_some_and(|asked| !entry.is_alone_of(asked)) {
                    return None;
                }
                let state = packed::slot(&slot).unwrap_or_default();
                Some((
                    Place { due, member },
                    Shown { slot: entry.slot.clone(), state, leased: false, entry: Some(entry) },
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

    async fn look(&self, batch: &[Subject]) -> Result<Vec<Vec<Shown>>, RegisterError> {
        let looks: Vec<_> = batch.iter().cloned().map(Look).collect();
        self.ask(&looks).await
    }

    async fn look_at(&self, batch: &[(Subject, Slot)]) -> Result<Vec<Option<Shown>>, RegisterError> {
        let looks: Vec<_> = batch.iter().cloned().map(|(subject, slot)| LookAt { subject, slot }).collect();
        self.ask(&looks).await
    }

    async fn kept(&self, batch: &[(Subject, Slot)]) -> Result<Vec<Option<Bytes>>, RegisterError> {
        let kept: Vec<_> = batch.iter().cloned().map(|(subject, slot)| Kept { subject, slot }).collect();
        self.ask(&kept).await
    }
}

const fn place((place, _): &(Place, Shown)) -> &Place {
    place
}

/// A look at one home.
struct Look(Subject);

impl Look {
    fn slot(&self) -> Slot {
        if self.0.reference.is_some() { Slot::Immediate } else { Slot::Event(self.0.id.clone()) }
    }
}

impl Call for Look {
    type Raw = Vec<Raw>;
    type Answer = Vec<Shown>;

    fn script() -> &'static Script {
        &scripts::LOOK
    }

    fn subject(&self) -> &Subject {
        &self.0
    }

    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>) {
        let slot = self.slot();
        to.key(keys.home(shard, &self.0, &slot)).key(keys.lease_of(shard, &self.0, &slot));
    }

    fn read(&self, mut raw: Self::Raw) -> Vec<Shown> {
        raw.sort_unstable();
        let slot = self.slot();
        let home = self.0.home(&slot);
        let shown = raw.iter().filter_map(|raw| shown(&self.0, &home, raw));
        // An event without a reference has one slot, whatever a foreign publisher wrote into its home.
        shown.filter(|shown| self.0.reference.is_some() || shown.slot == slot).collect()
    }
}

/// Field, slot, details, and 1 where it holds the lease.
type Raw = (String, Vec<u8>, Vec<u8>, u8);

fn shown(subject: &Subject, home: &Home<'_>, (field, state, details, leased): &Raw) -> Option<Shown> {
    Some(Shown {
        slot: packed::slot_of(home.name(), field)?,
        state: packed::slot(state).unwrap_or_default(),
        leased: *leased > 0,
        entry: packed::entry(&subject.event_type, &home.place(), field, details),
    })
}

/// A look at one slot.
struct LookAt {
    subject: Subject,
    slot: Slot,
}

impl Call for LookAt {
    type Raw = Vec<Raw>;
    type Answer = Option<Shown>;

    fn script() -> &'static Script {
        &scripts::LOOK_AT
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>) {
        to.key(keys.home(shard, &self.subject, &self.slot))
            .key(keys.lease_of(shard, &self.subject, &self.slot))
            .arg(self.slot.field());
    }

    fn read(&self, raw: Self::Raw) -> Option<Shown> {
        shown(&self.subject, &self.subject.home(&self.slot), raw.first()?)
    }
}

/// The message that is kept of a slot's newest event.
struct Kept {
    subject: Subject,
    slot: Slot,
}

impl Call for Kept {
    type Raw = Option<Vec<u8>>;
    type Answer = Option<Bytes>;

    fn script() -> &'static Script {
        &scripts::KEPT
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>) {
        to.key(keys.home(shard, &self.subject, &self.slot))
            .key(keys.kept(shard, &self.subject, &self.slot))
            .arg(self.slot.field());
    }

    fn read(&self, raw: Self::Raw) -> Option<Bytes> {
        raw.map(Bytes::from)
    }
}
