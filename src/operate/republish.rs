//! Publishes a new copy in place of a waiting one: chooses its slot, and follows the order of effects in `moving`.

use std::collections::{BTreeMap, HashMap};

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;

use super::{
    backend::Backend,
    error::EventsError,
    move_outcome::{MoveOutcome, To},
};
use crate::{
    domain::{
        event::Event,
        reason,
        register::{
            CopyVersion, DedupSlot, End, Note, Record, Reserve, Reserved, Settle, Stage, Subject, Terms,
            event_info::EventInfo,
        },
        time::{self, millis_text},
        wire::kept,
        words::{EventType, Reference},
    },
    publish::{
        published::{PUBLISH_LIMIT, PublishError},
        send,
    },
};

/// Unconfirmed publishes of one batch at a time.
const UNCONFIRMED: usize = 256;

/// Slots that are looked at beyond the number of events. An event may already be in one of them, behind slots that became free
/// since.
const NEAR: i64 = 4;

/// A copy to publish in place of a waiting one.
pub(super) struct Sending {
    pub(super) subject: Subject,
    pub(super) former: CopyVersion,
    pub(super) former_due: Timestamp,
    pub(super) copy: Event,
    pub(super) at: Timestamp,
    pub(super) terms: Terms,
}

impl Backend {
    /// Gives each event that moves to a slot of its date a free slot of its reference, because only the newest event of a slot
    /// runs. An event that is already there is not sent.
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

    /// Reads which slots are taken near the requested times. Only as many slots of each reference are read as its events need,
    /// because a reference may have very many dates.
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
        let asked = self.clock.shared();
        let reserves: Vec<Reserve> = sending.iter().map(|(_, send)| send.reserve()).collect();
        let reserved = self.register.reserve(&reserves).await?;
        let mut given = reserved.into_iter();
        sending.retain_mut(|(_, send)| match given.next() {
            Some(Reserved::Version(version)) => {
                // A copy keeps its version; the reserve only raised `due`.
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
            // A later event of the reference must not overtake this one.
            if failed.is_some() {
                break;
            }
        }
        // Confirmed copies are settled, also if others failed.
        let records: Vec<Record> = confirmed.iter().filter_map(|(_, send)| send.record()).collect();
        if !records.is_empty() {
            self.register.record(&records).await?;
        }
        let settles: Vec<Settle> = confirmed.iter().filter_map(|(_, send)| send.settle()).collect();
        if !settles.is_empty() {
            self.register.settle(&settles).await?;
        }
        for (place, _) in confirmed {
            answers[place] = Some(MoveOutcome::Done);
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Publishes within a limit: the register may forget an event that is handled long after the reserve.
    async fn publish(&self, send: &Sending, asked: Timestamp) -> Result<(), PublishError> {
        let (copy, limit) = (&send.copy, time::due(asked, send.terms.sendable()));
        let left = |limit| time::until(self.clock.shared(), limit).min(PUBLISH_LIMIT);
        let message = || {
            let now = self.clock.shared();
            // Computed for each try, because the remaining delay shrinks.
            limit.is_none_or(|limit| now <= limit).then(|| self.routes.to_scheduler(copy, copy.early_by(now)))
        };
        send::send(&*self.broker, &self.outage, limit.map_or(PUBLISH_LIMIT, left), message).await
    }
}

/// The type and the reference within which events compete.
type Object = (EventType, Option<Reference>);

/// The taken slots `q:<at>` of one reference: each time with the id of its event.
type Places = BTreeMap<i64, Option<String>>;

/// Returns the first free time from this one on, or the nearby time at which the event already is, from an
/// interrupted call or from a moment ago.
fn take_place(taken: &mut Places, from: i64, id: &str) -> i64 {
    let last = from.saturating_add(i64::try_from(taken.len()).unwrap_or(i64::MAX));
    if let Some((at, _)) = taken.range(from..=last).find(|(_, other)| other.as_deref() == Some(id)) {
        return *at;
    }
    let at = (from..last).find(|at| !taken.contains_key(at)).unwrap_or(last);
    taken.insert(at, Some(id.to_owned()));
    at
}

/// Splits the copies into groups that are published together. Of the events that run now, a group has one of each reference, so
/// that they arrive in the order of their due times.
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

/// Returns the copy to publish in place of the former one.
pub(super) fn copy_of(message: Event, known: &EventInfo, former: &CopyVersion, to: To, now: Timestamp) -> Event {
    let asked = millis_text(now);
    let was = known.reason.as_deref().and_then(reason::was).unwrap_or_default();
    // The person who moves an event wants it to run.
    let copy = Event { expires: None, busy: 0, crashes: 0, ..message };
    match to {
        To::Now(_) => Event {
            nbf: None,
            attempts: known.attempts,
            reason: Some(format!("run now: asked_at={asked}{was}")),
            stamp: match former.slot {
                DedupSlot::First => anew(DedupSlot::First),
                _ => former.next(),
            },
            ..copy
        },
        To::At(at) => Event {
            nbf: Some(at),
            attempts: 0,
            reason: Some(format!("reschedule: asked_at={asked}{was}")),
            stamp: match former.slot {
                DedupSlot::Dated | DedupSlot::Event(_) => former.next(),
                DedupSlot::First => anew(DedupSlot::First),
                _ => anew(DedupSlot::RequeuedAt(at.as_millisecond())),
            },
            ..copy
        },
    }
}

/// Returns the stamp of a new event in this slot. Its version is set after the reserve.
const fn anew(slot: DedupSlot) -> CopyVersion {
    CopyVersion { slot, version: 0, generation: 0 }
}

impl Sending {
    fn object(&self) -> Object {
        (self.subject.event_type.clone(), self.subject.reference.clone())
    }

    /// Returns the time of the new slot, if the slot is one of a date.
    fn requeued_at(&self) -> Option<i64> {
        match self.copy.stamp {
            CopyVersion { slot: DedupSlot::RequeuedAt(at), version: 0, .. } => Some(at),
            _ => None,
        }
    }

    /// Changes the time of the copy.
    fn go_to(&mut self, at: i64) {
        self.at = Timestamp::from_millisecond(at).unwrap_or(self.at);
        self.copy.nbf = Some(self.at);
        self.copy.stamp.slot = DedupSlot::RequeuedAt(self.at.as_millisecond());
    }

    /// Whether this is another copy of the same event and not a new event.
    fn stays(&self) -> bool {
        self.copy.stamp.slot == self.former.slot && self.copy.stamp.version == self.former.version
    }

    /// The due time to settle with. In the same slot, the mark has to outlast the former copy, which is delivered at its old date.
    /// The register does not know that date for events that do not compete.
    fn reserve(&self) -> Reserve {
        Reserve {
            subject: self.subject.clone(),
            slot: self.copy.stamp.slot.clone(),
            due: if self.stays() { self.at.max(self.former_due) } else { self.at },
            asked_by: Some(self.former.clone()),
            terms: self.terms,
        }
    }

    /// Returns the record of the new copy, unless it stays in its slot: then the settlement records it.
    fn record(&self) -> Option<Record> {
        (!self.stays()).then(|| kept::record(&self.copy, self.at, Some(usize::MAX), self.terms))
    }

    /// Returns the settlement of the former copy. In slot `f` there is none: the run of the new event makes the former copy stale
    /// when it begins. A settlement could hide a run that has begun meanwhile and that serves other events too.
    fn settle(&self) -> Option<Settle> {
        if self.former.slot == DedupSlot::First {
            return None;
        }
        let stage = if self.copy.attempts > 0 { Stage::Retry } else { Stage::Waiting };
        let note = Note { stage, attempts: self.copy.attempts, reason: self.copy.reason.clone() };
        let end = if self.stays() { End::Copied { due: self.at, note } } else { End::Finished };
        let (subject, former) = (self.subject.clone(), self.former.clone());
        // Only slot `f` has a `covered`.
        Some(Settle::by_a_person(subject, former, 0, self.former_due, end, self.terms))
    }
}
