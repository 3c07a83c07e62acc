//! Cancelling: the register's call and nothing else. What arrives of a cancelled event is stale.
//!
//! The call marks the slot with a fresh version, so it may be lost or repeated: repeated, it also cancels what was
//! published in between. Once it has returned, nothing that was published before it starts any more. Where its first answer was
//! lost the second one finds it cancelled, and what had waited is known from what was shown before.

use std::sync::Arc;

use futures_util::Stream;
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    error::EventsError,
    shared::{Events, Shared},
    which::{Asked, EventSelector},
};
use crate::domain::register::{
    Cancel, Cancelled, DedupSlot, Subject,
    search::{EventInfo, Filter, State},
};

/// Batches under way at a time, so that no round trip is waited for in vain.
const IN_FLIGHT: usize = 4;

impl Events {
    /// Cancels events that are named one by one, and says for each slot what was in it. A run that has begun goes on; it is
    /// neither tried again nor run later.
    ///
    /// An event that the register has never heard of, because Redis was away when it was published, can be cancelled by its
    /// id alone: that is remembered for as long as one round through the ladder or the longest hatchery takes, and
    /// `backlog-retention`. The slot of [`EventSelector::immediate`], and of [`EventSelector::at`] where
    /// the type says `delayed: each-time`, is remembered likewise, for what Redis has forgotten.
    ///
    /// # Errors
    /// When the register does not answer, there cannot be such an event, or the event waits under another reference.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), Box<dyn std::error::Error>> {
    /// use hatchery::{EventSelector, parse_time};
    ///
    /// let change = EventSelector::reference("hr-import", "1234").at(parse_time("2026-06-01T00:00:00Z")?);
    /// let cancelled = events.cancel(&change).await?;
    /// println!("{} cancelled", cancelled.iter().filter(|slot| slot.waiting).count());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cancel(&self, which: &EventSelector) -> Result<Vec<Cancelled>, EventsError> {
        let asked = self.shared.asked(which)?;
        let mut open = self.show(which).await?;
        open.retain(|event| event.copy.is_some() || event.running);
        // In one shard an id is found whatever reference it is asked for with.
        open.retain(|event| match (&asked.subject.reference, &event.reference) {
            (Some(asked), Some(known)) => asked == known,
            _ => true,
        });
        if let (true, Some(id)) = (open.is_empty(), asked.id()) {
            self.refuse_another_name(&asked, id).await?;
            if asked.subject.reference.is_none() {
                // Its reference, which nobody has told, says in which shard it would be.
                let alone = self.shared.cancel(asked.subject.clone(), Some(DedupSlot::Event(id.to_owned())), None);
                return Ok(self.shared.register.cancel_anywhere(&alone).await?);
            }
        }
        let slots = asked.slots(!open.is_empty())?;
        let shown = open.clone();
        let call = |slot| self.shared.cancel(asked.subject.clone(), slot, None);
        let (whole, mut calls) = match slots {
            None => (true, vec![call(None)]),
            Some(slots) => (false, slots.into_iter().map(|slot| call(Some(slot))).collect()),
        };
        for event in open {
            let is_reached = whole && !matches!(event.slot, DedupSlot::Event(_));
            if !is_reached && calls.iter().all(|call| call.slot.as_ref() != Some(&event.slot)) {
                calls.push(self.shared.cancel(event.subject(), Some(event.slot), event.due));
            }
        }
        let answers = self.shared.register.cancel(&calls).await?.into_iter().flatten();
        let answers = answers.map(|found| match shown.iter().find(|event| event.slot == found.slot) {
            // A run that was cancelled before is known by its lease alone.
            Some(event) => Cancelled { running: found.running || event.running, ..told(found, event) },
            None => found,
        });
        Ok(answers.collect())
    }

    /// What is asked for is not known. Where the event waits under another name, remembering this one would be in vain.
    async fn refuse_another_name(&self, asked: &Asked<'_>, id: &str) -> Result<(), EventsError> {
        let event_type = asked.subject.event_type.as_str();
        // A UUID has one text on the wire, and people write it in others.
        let usual = id.parse::<Uuid>().ok().map(|uuid| uuid.to_string()).filter(|usual| usual != id);
        let same = asked.subject.reference.is_some().then(|| id.to_owned());
        for id in same.into_iter().chain(usual) {
            let known = self.show(&EventSelector::id(event_type, &id)).await?;
            if let Some(event) = known.into_iter().find(|event| event.copy.is_some() || event.running) {
                let of = event.reference.map_or_else(|| " without a reference".to_owned(), |r| format!(" of {r}"));
                return Err(EventsError::OtherName { known: format!("{id}{of}") });
            }
        }
        Ok(())
    }

    /// Cancels all events that a search finds, many at a time, and answers for each. The stream has to be read to its
    /// end: nothing is done that is not asked for. What comes after an error was begun before it, and nothing more is
    /// begun.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
    /// use futures_util::TryStreamExt;
    /// use hatchery::Filter;
    ///
    /// let department = Filter::default().event_type("hr-import").reference_prefix("12-");
    /// let cancelled: Vec<_> = events.cancel_all(&department).try_collect().await?;
    /// println!("{} cancelled", cancelled.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel_all(
        &self,
        filter: &Filter,
    ) -> impl Stream<Item = Result<(EventInfo, Cancelled), EventsError>> + Send + 'static + use<> {
        let shared = Arc::clone(&self.shared);
        self.each_batch(filter, IN_FLIGHT, move |batch: Vec<EventInfo>| {
            let shared = Arc::clone(&shared);
            async move {
                let call = |event: &EventInfo| shared.cancel(event.subject(), Some(event.slot.clone()), event.due);
                let calls: Vec<Cancel> = batch.iter().map(call).collect();
                let answers = shared.register.cancel(&calls).await?;
                // One slot was asked for, so there is one answer.
                let answered = batch.into_iter().zip(answers);
                Ok(answered
                    .filter_map(|(event, mut answer)| {
                        let found = told(answer.pop()?, &event);
                        Some((event, found))
                    })
                    .collect())
            }
        })
    }
}

/// What was found in a slot that was shown like this just before. Handled meanwhile it would be at its end, and its mark no
/// cancel's.
fn told(found: Cancelled, shown: &EventInfo) -> Cancelled {
    let waited = shown.copy.is_some() && shown.state != State::Running;
    Cancelled {
        waiting: found.waiting || found.already && waited,
        running: found.running || found.already && shown.running,
        ..found
    }
}

impl Shared {
    /// Where it is known when an event is due that may be later than what nobody knows of. A slot of a date says it itself.
    fn cancel(&self, subject: Subject, slot: Option<DedupSlot>, due: Option<Timestamp>) -> Cancel {
        let date = match slot {
            Some(DedupSlot::DatedAt(at) | DedupSlot::RequeuedAt(at)) => Timestamp::from_millisecond(at).ok(),
            _ => None,
        };
        Cancel { subject, slot, due: due.max(date), horizon: self.horizon() }
    }
}
