//! Moves waiting events to another time: a reschedule, or a run now.
//!
//! If the register keeps the event's payload, the event is published again, in this order: *reserve*, which also checks that the
//! former copy is still wanted; publish; confirm; *record*; *settle* of the former copy. Its slot:
//!
//! - Reschedule: a new event in slot `q:<at>`, and the former one is settled as done. An event whose slot does not depend on its
//!   date (`d`, `e:<id>`) stays in its slot with the next generation, and the former copy is settled as a retry. The attempts
//!   start at 0. Several events of one reference get slots of their own: the time, and the following milliseconds.
//! - Run now: the next generation of the same event, due at once. The attempts stay.
//! - In slot `f` both are a new event of that slot, and nothing is settled: as soon as it runs, the former copy counts as served.
//!   A reschedule to a later date is a *later*.
//!
//! After a crash before the confirm, either nothing has changed, or the broker has a new copy that the register does not know.
//! After a crash between the confirm and *settle*, both copies exist: in one slot the first one to start makes the other stale; in
//! two slots both run, the former at its old time. After *settle* the former copy is stale. No crash loses the event, because the
//! former copy is given up last. Calling again repairs the rest: an event that already has a copy in `q:<at>` gets the same slot,
//! and the newer copy replaces the unknown one.
//!
//! Without the payload, an event can only be delayed, with *later*: the waiting copy is delivered at its old time and published
//! again with the remaining delay. That is one call, which may be repeated.

use std::sync::Arc;

use futures_util::Stream;
use jiff::Timestamp;

use super::{
    backend::{Backend, Events},
    error::EventsError,
    move_outcome::{MoveOutcome, PayloadNotKept, To},
    republish::{Sending, copy_of},
    selector::EventSelector,
};
use crate::domain::{
    event::Event,
    life_cycle::TransitionName,
    register::{DedupSlot, Later, Postponed, Subject, event_info::EventInfo, event_state::State, filter::Filter},
    time::ceil_millis,
    wire::{self, Incoming, kept},
};

/// The change to make to one event.
enum Plan {
    Answer(MoveOutcome),
    Later(Later),
    Send(Box<Sending>),
}

impl Events {
    /// Moves the selected events to another time, and returns the outcome for each that waits or runs.
    ///
    /// An event whose payload is not kept (`keep-payload`) can only be delayed. The time is rounded up to milliseconds. A time in
    /// the past means now.
    ///
    /// # Errors
    /// If the register does not answer, the broker does not confirm, or the selection is invalid.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), Box<dyn std::error::Error>> {
    /// use hatchery::{MoveOutcome, EventSelector, parse_time};
    ///
    /// let july = parse_time("2026-07-01T00:00:00Z")?;
    /// for (event, moved) in events.reschedule(&EventSelector::reference("hr-import", "1234"), july).await? {
    ///     match moved {
    ///         MoveOutcome::Done => println!("{} waits until July", event.slot),
    ///         MoveOutcome::NotKept(why) => println!("{}: {why}", event.slot),
    ///         _ => println!("{}: too late", event.slot),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reschedule(
        &self,
        which: &EventSelector,
        at: Timestamp,
    ) -> Result<Vec<(EventInfo, MoveOutcome)>, EventsError> {
        self.move_these(which, To::At(ceil_millis(at))).await
    }

    /// Runs the selected events now, and returns the outcome for each that waits or runs. Their payloads have to be kept
    /// (`keep-payload`).
    ///
    /// # Errors
    /// If the register does not answer, the broker does not confirm, or the selection is invalid.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
    /// use hatchery::EventSelector;
    ///
    /// events.run_now(&EventSelector::id("mail", "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_now(&self, which: &EventSelector) -> Result<Vec<(EventInfo, MoveOutcome)>, EventsError> {
        self.move_these(which, To::Now(self.shared.now())).await
    }

    /// Moves all events that a search finds to another time, and returns the outcome of each. Events are moved as the stream is
    /// read, so read it to its end. After an error, the stream still returns the outcomes of calls that had started.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), Box<dyn std::error::Error>> {
    /// use futures_util::TryStreamExt;
    /// use hatchery::{Filter, MoveOutcome, State, parse_time};
    ///
    /// let monday = parse_time("2026-06-01T06:00:00Z")?;
    /// let retries = Filter::default().state(State::Retry);
    /// let mut answers = std::pin::pin!(events.reschedule_all(&retries, monday));
    /// while let Some((event, moved)) = answers.try_next().await? {
    ///     if moved != MoveOutcome::Done {
    ///         println!("{:?} does not wait until Monday", event.id);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn reschedule_all(
        &self,
        filter: &Filter,
        at: Timestamp,
    ) -> impl Stream<Item = Result<(EventInfo, MoveOutcome), EventsError>> + Send + 'static + use<> {
        self.move_all(filter, To::At(ceil_millis(at)))
    }

    /// Runs all events that a search finds now, and returns the outcome of each. Events are moved as the stream is read, so read
    /// it to its end. After an error, the stream still returns the outcomes of calls that had started.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
    /// use futures_util::TryStreamExt;
    /// use hatchery::{Filter, MoveOutcome, State};
    ///
    /// // The mail server works again.
    /// let failed = Filter::default().state(State::Retry).reason("connection refused");
    /// let answers: Vec<_> = events.run_now_all(&failed).try_collect().await?;
    /// let done = answers.iter().filter(|(_, moved)| *moved == MoveOutcome::Done).count();
    /// println!("{done} of {} run now", answers.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_now_all(
        &self,
        filter: &Filter,
    ) -> impl Stream<Item = Result<(EventInfo, MoveOutcome), EventsError>> + Send + 'static + use<> {
        self.move_all(filter, To::Now(self.shared.now()))
    }

    /// Returns which of these events could not be moved to this time (or run now, if it is `None`) because their payloads are not
    /// kept, in the order of the events. Changes nothing.
    ///
    /// # Errors
    /// If the register does not answer.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
    /// use hatchery::EventSelector;
    ///
    /// let known = events.show(&EventSelector::reference("hr-import", "1234")).await?;
    /// for (event, why_not) in known.iter().zip(events.not_kept(&known, None).await?) {
    ///     match why_not {
    ///         Some(why_not) => println!("{}: {why_not}", event.slot),
    ///         None => println!("{} can run now", event.slot),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn not_kept(
        &self,
        events: &[EventInfo],
        at: Option<Timestamp>,
    ) -> Result<Vec<Option<PayloadNotKept>>, EventsError> {
        let shared = &self.shared;
        let to = at.map_or_else(|| To::Now(shared.now()), |at| To::At(ceil_millis(at)));
        let slots: Vec<(Subject, DedupSlot)> =
            events.iter().map(|event| (event.subject(), event.slot.clone())).collect();
        let kept = shared.index.kept(&slots).await?;
        let missing = events.iter().zip(kept).map(|(event, kept)| {
            let message = kept.and_then(|kept| shared.message(event, &kept));
            match shared.plan(event, message, to) {
                Plan::Answer(MoveOutcome::NotKept(why)) => Some(why),
                _ => None,
            }
        });
        Ok(missing.collect())
    }

    async fn move_these(&self, which: &EventSelector, to: To) -> Result<Vec<(EventInfo, MoveOutcome)>, EventsError> {
        let mut known = self.show(which).await?;
        known.retain(|event| event.copy.is_some());
        let moved = self.shared.shift(known, to).await?;
        Ok(moved.into_iter().map(|(event, moved)| (event, moved.unwrap_or(MoveOutcome::Done))).collect())
    }

    fn move_all(
        &self,
        filter: &Filter,
        to: To,
    ) -> impl Stream<Item = Result<(EventInfo, MoveOutcome), EventsError>> + Send + 'static + use<> {
        let shared = Arc::clone(&self.shared);
        // One batch after the other: each has to see which slots the former one has taken, and events that run now keep the order
        // in which they were found.
        self.each_batch(filter, 1, move |mut batch: Vec<EventInfo>| {
            // Skip an event that is already at this time.
            batch.retain(|event| event.due != Some(to.time()));
            let shared = Arc::clone(&shared);
            async move {
                let moved = shared.shift(batch, to).await?;
                Ok(moved.into_iter().filter_map(|(event, moved)| Some((event, moved?))).collect())
            }
        })
    }
}

impl Backend {
    fn now(&self) -> Timestamp {
        ceil_millis(self.clock.shared())
    }

    /// Moves a batch, in the order of effects that the module's documentation describes. Returns no outcome for events that are
    /// already at the requested time.
    async fn shift(
        &self,
        mut batch: Vec<EventInfo>,
        to: To,
    ) -> Result<Vec<(EventInfo, Option<MoveOutcome>)>, EventsError> {
        batch.sort_by_key(|event| event.due);
        let slots: Vec<(Subject, DedupSlot)> =
            batch.iter().map(|event| (event.subject(), event.slot.clone())).collect();
        let kept = self.index.kept(&slots).await?;
        let mut answers: Vec<Option<MoveOutcome>> = Vec::with_capacity(batch.len());
        // Each event with its index in the batch.
        let (mut later, mut sending) = (Vec::new(), Vec::new());
        for (place, (event, kept)) in batch.iter().zip(kept).enumerate() {
            let message = kept.and_then(|kept| self.message(event, &kept));
            answers.push(Some(match self.plan(event, message, to) {
                Plan::Answer(answer) => answer,
                Plan::Later(call) => {
                    later.push((place, call));
                    MoveOutcome::Gone
                }
                Plan::Send(send) => {
                    sending.push((place, *send));
                    MoveOutcome::Gone
                }
            }));
        }
        let moved = async {
            self.put_off(later, &mut answers).await?;
            self.give_places(&mut sending, &mut answers).await?;
            self.send(sending, &mut answers).await
        };
        let moved = moved.await;
        let name = match to {
            To::Now(_) => TransitionName::RunNow,
            To::At(_) => TransitionName::Rescheduled,
        };
        for (event, _) in batch.iter().zip(&answers).filter(|(_, answer)| matches!(answer, Some(MoveOutcome::Done))) {
            self.tell(name.clone(), &event.subject(), |record| record.due = Some(to.time()));
        }
        moved?;
        Ok(batch.into_iter().zip(answers).collect())
    }

    /// Returns the event of a kept message, if the message belongs to this copy.
    fn message(&self, event: &EventInfo, kept: &bytes::Bytes) -> Option<Event> {
        let (properties, body) = kept::decode(kept)?;
        let incoming = Incoming { routing_key: event.event_type.to_string(), properties, body };
        let message = wire::decode(&event.event_type, incoming, self.clock.shared(), String::new).ok()?;
        let copy = event.copy.as_ref()?;
        (message.stamp.slot == copy.slot && message.stamp.version == copy.version).then_some(message)
    }

    fn plan(&self, known: &EventInfo, message: Option<Event>, to: To) -> Plan {
        let (Some(former), Some(terms)) = (known.copy.clone(), self.terms(&known.event_type)) else {
            return Plan::Answer(MoveOutcome::Gone);
        };
        if known.state == State::Running {
            return Plan::Answer(MoveOutcome::Running);
        }
        let now = self.now();
        let former_due = known.due.unwrap_or(now);
        let is_letter = known.state == State::DeadLetter;
        if let To::At(at) = to
            && at >= former_due
            && !is_letter
            && (message.is_none() || former.slot == DedupSlot::First)
        {
            return Plan::Later(Later { subject: known.subject(), stamp: former, at });
        }
        let Some(message) = message else {
            return Plan::Answer(MoveOutcome::NotKept(match to {
                _ if is_letter => PayloadNotKept::DeadLetter,
                To::Now(_) => PayloadNotKept::Now,
                To::At(_) => PayloadNotKept::Earlier,
            }));
        };
        let copy = copy_of(message, known, &former, to, now);
        let subject = copy.subject();
        Plan::Send(Box::new(Sending { subject, former, former_due, copy, at: to.time(), terms }))
    }

    async fn put_off(
        &self,
        later: Vec<(usize, Later)>,
        answers: &mut [Option<MoveOutcome>],
    ) -> Result<(), EventsError> {
        if later.is_empty() {
            return Ok(());
        }
        let (places, calls): (Vec<usize>, Vec<Later>) = later.into_iter().unzip();
        for (place, postponed) in places.into_iter().zip(self.register.later(&calls).await?) {
            answers[place] = Some(match postponed {
                Postponed::Until => MoveOutcome::Done,
                Postponed::Running => MoveOutcome::Running,
                Postponed::Unwanted => MoveOutcome::Gone,
            });
        }
        Ok(())
    }
}
