//! Cancelling: one call of the register. The broker is not involved; a delivered copy of a cancelled event is stale.
//!
//! The call gives the slot a new version, so it may be lost or repeated. A repeated call also cancels events that were published
//! in between. Once the call has returned, no event that was published before it starts. If its first reply was lost, the second
//! one finds the slot cancelled; which event had waited is then known from the preceding *show*.

use std::sync::Arc;

use futures_util::Stream;
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    backend::{Backend, Events},
    bulk::BATCH,
    error::EventsError,
    selector::{EventQuery, EventSelector},
};
use crate::domain::{
    life_cycle::TransitionName,
    register::{Cancel, Cancelled, DedupSlot, Subject, event_info::EventInfo, event_state::State, filter::Filter},
};

/// Batches at a time, so that Redis has work during each round trip.
const IN_FLIGHT: usize = 4;

impl Events {
    /// Cancels the selected events, and returns the content of each of their slots. The worker of a run that has begun is told when
    /// it renews its lease; nothing of the outcome is carried out ([`Run::is_cancelled`](crate::Run::is_cancelled)).
    ///
    /// An event that is not in the register, because Redis was unreachable when it was published, can be cancelled by its id.
    /// The register remembers such a cancel for the longest delay of the ladder or a hatchery plus `backlog-retention`. The same
    /// holds for the slot of [`EventSelector::immediate`], and of [`EventSelector::at`] in a type with `delayed: each-time`.
    ///
    /// # Errors
    /// If the register does not answer, the selection is invalid, or the event waits under another reference.
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
        // With one shard, an id is found without its reference.
        open.retain(|event| match (&asked.subject.reference, &event.reference) {
            (Some(asked), Some(known)) => asked == known,
            _ => true,
        });
        if let (true, Some(id)) = (open.is_empty(), asked.id()) {
            self.refuse_another_name(&asked, id).await?;
            if asked.subject.reference.is_none() {
                // The shard depends on the reference, which the caller did not give.
                let alone = self.shared.cancel(asked.subject.clone(), Some(DedupSlot::Event(id.to_owned())), None);
                let found = self.shared.register.cancel_anywhere(&alone).await?;
                if !found.iter().all(|found| found.already) {
                    self.shared.tell(TransitionName::Cancelled, &asked.subject, |_| {});
                }
                return Ok(found);
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
            // A run that was cancelled by an earlier call is known by its lease only.
            Some(event) => Cancelled { running: found.running || event.running, ..told(found, event) },
            None => found,
        });
        let answers: Vec<Cancelled> = answers.collect();
        for found in &answers {
            let event = shown.iter().find(|event| event.slot == found.slot).map(EventInfo::subject);
            self.shared.tell_cancelled(event.as_ref().unwrap_or(&asked.subject), found);
        }
        Ok(answers)
    }

    /// Returns the events whose cancelled run has not ended: its worker has not been told, or is ending it. An event whose worker was
    /// killed is not among them. Ask only for events that [`cancel`](Self::cancel) has called running: in a type with `exclusive: on`
    /// another event of the reference may hold the lease.
    ///
    /// # Errors
    /// If the register does not answer.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
    /// use std::time::Duration;
    /// use hatchery::EventSelector;
    ///
    /// let of_1234 = EventSelector::reference("hr-import", "1234");
    /// let mut ending = events.show(&of_1234).await?;
    /// let cancelled = events.cancel(&of_1234).await?;
    /// ending.retain(|event| cancelled.iter().any(|slot| slot.running && slot.slot == event.slot));
    /// while !ending.is_empty() {
    ///     tokio::time::sleep(Duration::from_millis(250)).await;
    ///     ending = events.cancelled_runs(ending).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cancelled_runs(&self, events: Vec<EventInfo>) -> Result<Vec<EventInfo>, EventsError> {
        let mut left = Vec::new();
        let mut events = events.into_iter().peekable();
        while events.peek().is_some() {
            let batch: Vec<EventInfo> = events.by_ref().take(BATCH).collect();
            let places = batch.iter().map(|event| {
                let (_, spec) = self.shared.registered(event.event_type.as_str())?;
                Ok((event.subject(), event.slot.clone(), spec.terms(&self.shared.topology.redis)))
            });
            let places = places.collect::<Result<Vec<_>, EventsError>>()?;
            let run = self.shared.index.cancelled_runs(&places).await?;
            left.extend(batch.into_iter().zip(run).filter_map(|(event, runs)| runs.then_some(event)));
        }
        Ok(left)
    }

    /// The selected slot is unknown. Fails if the event waits under another name, because cancelling this one would be useless.
    async fn refuse_another_name(&self, asked: &EventQuery<'_>, id: &str) -> Result<(), EventsError> {
        let event_type = asked.subject.event_type.as_str();
        // A UUID has one form on the wire, but people write it in others.
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

    /// Cancels all events that a search finds, and returns the result of each. Events are cancelled as the stream is read, so
    /// read it to its end. After an error, the stream still returns the results of calls that had started.
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
                // One slot was selected, so there is one answer.
                let answered = batch.into_iter().zip(answers);
                Ok(answered
                    .filter_map(|(event, mut answer)| {
                        let found = told(answer.pop()?, &event);
                        shared.tell_cancelled(&event.subject(), &found);
                        Some((event, found))
                    })
                    .collect())
            }
        })
    }
}

/// Returns what the slot held, from the *show* just before. An event that was handled in between is finished, and its mark is not
/// that of a cancel.
fn told(found: Cancelled, shown: &EventInfo) -> Cancelled {
    let waited = shown.copy.is_some() && shown.state != State::Running;
    Cancelled {
        id: shown.id.clone(),
        waiting: found.waiting || found.already && waited,
        running: found.running || found.already && shown.running,
        ..found
    }
}

impl Backend {
    /// Returns the call that cancels a slot. `due` is the known due time of an event beyond the longest delay; the
    /// slot of a date has it in its name.
    fn cancel(&self, subject: Subject, slot: Option<DedupSlot>, due: Option<Timestamp>) -> Cancel {
        let date = match slot {
            Some(DedupSlot::DatedAt(at) | DedupSlot::RequeuedAt(at)) => Timestamp::from_millisecond(at).ok(),
            _ => None,
        };
        Cancel { subject, slot, due: due.max(date), horizon: self.horizon() }
    }
}
