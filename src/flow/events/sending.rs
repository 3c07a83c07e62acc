//! A copy to publish in place of another: which place it gets, and its way in the order of effects that `moving` explains.

use std::collections::{BTreeMap, HashMap};

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    error::EventsError,
    moved::{MoveOutcome, To},
    shared::Shared,
};
use crate::{
    domain::{
        event::Event,
        register::{
            CopyVersion, DedupSlot, End, Note, Record, Reserve, Reserved, Settle, Stage, Subject, Terms,
            search::EventInfo,
        },
        time::{self, millis_text},
        wire::{self, kept},
        words::{EventType, Reference},
    },
    flow::publish,
};

/// Publishes of one batch that wait for their confirms at a time.
const UNCONFIRMED: usize = 256;

/// So many slots more are looked at than there are events for them: one of the events may be there already, and what was in those
/// before it gone since.
const NEAR: i64 = 4;

/// A copy to publish in place of another.
pub(super) struct Sending {
    pub(super) subject: Subject,
    pub(super) former: CopyVersion,
    pub(super) former_due: Timestamp,
    /// What the former slot had covered when it was looked at. A run that has begun since may serve this event, and must
    /// not be hidden.
    pub(super) covered: i64,
    pub(super) copy: Event,
    pub(super) at: Timestamp,
    pub(super) terms: Terms,
}

impl Shared {
    /// Gives each event that goes to a slot of its date one that no other event of its reference has: only the newest of a
    /// slot would run. What is there already is not sent.
    pub(super) async fn give_places(
        &self,
        sending: &mut Vec<(usize, Sending)>,
        answers: &mut [Option<MoveOutcome>],
    ) -> Result<(), EventsError> {
        let going = sending.iter().filter(|(_, send)| send.requeued_at().is_some());
        let mut places: HashMap<Object, Places> = going.map(|(_, send)| (send.object(), Places::new())).collect();
        if places.is_empty() {
            return Ok(());
        }
        self.look_for_places(sending, &mut places).await?;
        sending.retain_mut(|(answer, send)| {
            let Some(from) = send.requeued_at() else { return true };
            let at = take_place(places.entry(send.object()).or_default(), from, &send.subject.id);
            let is_there = send.former.slot == DedupSlot::RequeuedAt(at) && send.former_due.as_millisecond() == at;
            if is_there {
                answers[*answer] = None;
            }
            send.go_to(at);
            !is_there
        });
        Ok(())
    }

    /// Looks which slots are taken near the times that the events go to: so many of each reference that there is a free one for each of
    /// its events. A reference may have very many dates.
    async fn look_for_places(
        &self,
        sending: &[(usize, Sending)],
        places: &mut HashMap<Object, Places>,
    ) -> Result<(), EventsError> {
        let mut wanted: HashMap<Object, (i64, i64)> = HashMap::new();
        for (send, at) in sending.iter().filter_map(|(_, send)| Some((send, send.requeued_at()?))) {
            wanted.entry(send.object()).or_insert((at, NEAR)).1 += 1;
        }
        let (mut near, mut asked) = (wanted.values().map(|(_, many)| *many).max().unwrap_or(0), 0);
        while !wanted.is_empty() {
            let slots = wanted.iter().flat_map(|((event_type, reference), (from, _))| {
                let (event_type, reference) = (event_type.clone(), reference.clone());
                let subject = Subject { event_type, reference, id: String::new() };
                (asked..near).map(move |more| (subject.clone(), DedupSlot::RequeuedAt(from.saturating_add(more))))
            });
            for event in
                self.look_at(&slots.collect::<Vec<_>>()).await?.into_iter().filter(|event| event.copy.is_some())
            {
                if let DedupSlot::RequeuedAt(at) = event.slot {
                    places.entry((event.event_type, event.reference)).or_default().insert(at, event.id);
                }
            }
            wanted.retain(|object, (_, many)| {
                let taken = places.get(object).map_or(0, Places::len);
                i64::try_from(taken).is_ok_and(|taken| near < *many + taken)
            });
            (asked, near) = (near, near * 2);
        }
        Ok(())
    }

    pub(super) async fn send(
        &self,
        mut sending: Vec<(usize, Sending)>,
        answers: &mut [Option<MoveOutcome>],
    ) -> Result<(), EventsError> {
        if sending.is_empty() {
            return Ok(());
        }
        let asked = self.clock.now();
        let reserves: Vec<Reserve> = sending.iter().map(|(_, send)| send.reserve()).collect();
        let reserved = self.register.reserve(&reserves).await?;
        let mut given = reserved.into_iter();
        sending.retain_mut(|(_, send)| match given.next() {
            Some(Reserved::Version(version)) => {
                // What stays in its slot keeps its version; this one was asked for to raise `due`.
                if send.copy.stamp.version == 0 && !matches!(send.copy.stamp.slot, DedupSlot::Event(_)) {
                    send.copy.stamp.version = version;
                }
                true
            }
            Some(Reserved::Stale) | None => false,
        });
        let (mut confirmed, mut failed) = (Vec::new(), None);
        for turn in turns(sending) {
            let published: Vec<_> = stream::iter(turn)
                .map(|(place, send)| async move {
                    let confirmed = self.publish(&send, asked).await;
                    (place, send, confirmed)
                })
                .buffered(UNCONFIRMED)
                .collect()
                .await;
            for (place, send, published) in published {
                match published {
                    Ok(()) => confirmed.push((place, send)),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            // What comes later of a reference does not overtake it.
            if failed.is_some() {
                break;
            }
        }
        // What is confirmed is settled, whatever became of the others.
        let records: Vec<Record> = confirmed.iter().filter_map(|(_, send)| send.record()).collect();
        if !records.is_empty() {
            self.register.record(&records).await?;
        }
        let settles: Vec<Settle> = confirmed.iter().map(|(_, send)| send.settle()).collect();
        if !settles.is_empty() {
            self.register.settle(&settles).await?;
        }
        for (place, _) in confirmed {
            answers[place] = Some(MoveOutcome::Done);
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Nothing is sent long after the register was asked about it: what was handled since may be forgotten.
    async fn publish(&self, send: &Sending, asked: Timestamp) -> Result<(), publish::PublishError> {
        let (copy, limit) = (&send.copy, time::due(asked, send.terms.dedup_retention / 2));
        let left = |limit| time::until(self.clock.now(), limit).min(publish::PUBLISH_LIMIT);
        let message = || {
            let now = self.clock.now();
            // The way that is left, each time it is tried.
            limit.is_none_or(|limit| now <= limit).then(|| self.routes.to_scheduler(copy, copy.early_by(now)))
        };
        publish::send(&*self.broker, &self.outage, limit.map_or(publish::PUBLISH_LIMIT, left), message).await
    }
}

/// What a reference's events compete within.
type Object = (EventType, Option<Reference>);

/// The times that slots `q:<at>` of one reference are taken for, each with the id of its event.
type Places = BTreeMap<i64, Option<String>>;

/// The first free time from this one on, or the one near it where the event is already: it was brought there by a call that
/// broke off, or a moment ago.
fn take_place(taken: &mut Places, from: i64, id: &str) -> i64 {
    let last = from.saturating_add(i64::try_from(taken.len()).unwrap_or(i64::MAX));
    if let Some((at, _)) = taken.range(from..=last).find(|(_, other)| other.as_deref() == Some(id)) {
        return *at;
    }
    let at = (from..last).find(|at| !taken.contains_key(at)).unwrap_or(last);
    taken.insert(at, Some(id.to_owned()));
    at
}

/// What is published together: of what runs now one event of each reference, and the next one after that is confirmed. So
/// they arrive in the order of their due times.
fn turns(sending: Vec<(usize, Sending)>) -> Vec<Vec<(usize, Sending)>> {
    let (mut turns, mut counts) = (Vec::<Vec<_>>::new(), HashMap::<Object, usize>::new());
    for (place, send) in sending {
        let mut turn = 0;
        if send.copy.nbf.is_none() && send.subject.reference.is_some() {
            let count = counts.entry(send.object()).or_default();
            turn = *count;
            *count += 1;
        }
        if turns.len() <= turn {
            turns.resize_with(turn + 1, Vec::new);
        }
        turns[turn].push((place, send));
    }
    turns
}

/// What is published in place of the former copy.
pub(super) fn copy_of(message: Event, known: &EventInfo, former: &CopyVersion, to: To, now: Timestamp) -> Event {
    let asked = millis_text(now);
    let was = known.reason.as_deref().and_then(was).unwrap_or_default();
    let copy = Event { busy: 0, crashes: 0, ..message };
    match to {
        To::Now(_) => Event {
            nbf: None,
            attempts: known.attempts,
            reason: Some(format!("run now: asked_at={asked}{was}")),
            stamp: former.next(),
            ..copy
        },
        To::At(at) => Event {
            nbf: Some(at),
            attempts: 0,
            reason: Some(format!("reschedule: asked_at={asked}{was}")),
            stamp: match former.slot {
                DedupSlot::Dated | DedupSlot::Event(_) => former.next(),
                // The version is yet to be given.
                _ => CopyVersion { slot: DedupSlot::RequeuedAt(at.as_millisecond()), version: 0, generation: 0 },
            },
            ..copy
        },
    }
}

/// What a reason says of the one before it. That of a person's move is what it says itself of an earlier one: ten moves
/// tell as much as the last.
fn was(reason: &str) -> Option<String> {
    if reason.starts_with("run now: ") || reason.starts_with("reschedule: ") {
        return reason.find(" was=\"").map(|at| reason[at..].to_owned());
    }
    let escaped = reason.replace('\\', "\\\\").replace('"', "\\\"");
    Some(format!(" was=\"{escaped}\""))
}

impl Sending {
    fn object(&self) -> Object {
        (self.subject.event_type.clone(), self.subject.reference.clone())
    }

    /// The time of the slot that it goes to, if that is one of a date.
    fn requeued_at(&self) -> Option<i64> {
        match self.copy.stamp {
            CopyVersion { slot: DedupSlot::RequeuedAt(at), version: 0, .. } => Some(at),
            _ => None,
        }
    }

    /// Goes to this time instead.
    fn go_to(&mut self, at: i64) {
        self.at = Timestamp::from_millisecond(at).unwrap_or(self.at);
        self.copy.nbf = Some(self.at);
        self.copy.stamp.slot = DedupSlot::RequeuedAt(self.at.as_millisecond());
    }

    /// Whether it is another copy of the same event.
    fn stays(&self) -> bool {
        self.copy.stamp.slot == self.former.slot && self.copy.stamp.version == self.former.version
    }

    /// Where it stays in its slot its mark has to outlast the former copy, which comes at its old date. Of what competes with
    /// nothing the register has not been told that date.
    fn reserve(&self) -> Reserve {
        Reserve {
            subject: self.subject.clone(),
            slot: self.copy.stamp.slot.clone(),
            due: if self.stays() { self.at.max(self.former_due) } else { self.at },
            asked_by: Some(self.former.clone()),
            terms: self.terms,
        }
    }

    /// A copy in the same slot is told by the settlement.
    fn record(&self) -> Option<Record> {
        (!self.stays()).then(|| Record {
            subject: self.subject.clone(),
            slot: self.copy.stamp.slot.clone(),
            version: self.copy.stamp.version,
            due: self.at,
            reason: self.copy.reason.clone(),
            kept: Some(kept::encode(&wire::encode(&self.copy), &self.copy.payload)),
            terms: self.terms,
        })
    }

    fn settle(&self) -> Settle {
        let stage = if self.copy.attempts > 0 { Stage::Retry } else { Stage::Waiting };
        let note = Note { stage, attempts: self.copy.attempts, reason: self.copy.reason.clone() };
        Settle {
            subject: self.subject.clone(),
            stamp: self.former.clone(),
            fence: self.covered,
            // Nobody's.
            token: Uuid::nil(),
            due: self.former_due,
            end: if self.stays() { End::Copied { due: self.at, note } } else { End::Finished },
            terms: self.terms,
        }
    }
}
