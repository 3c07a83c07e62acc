//! Another time for events that wait: a reschedule, or a run now.
//!
//! Where the register keeps an event's message, it is published again, in this order: *reserve*, which says whether the
//! former copy is still wanted; publish; confirm; *record*; *settle* of the former copy. Where it goes to:
//!
//! - a reschedule is a new event in slot `q:<at>`, and the former one is settled as done. What has one place whatever its date
//!   (`d`, `e:<id>`) stays there with the next generation, and is settled as a retry. It begins afresh, with 0 attempts. Of
//!   several events of one reference each has a slot of its own: the time, and the milliseconds that follow it.
//! - run now is the next generation of the same event, due at once, with the attempts that it has had.
//!
//! A crash before the confirm: nothing has changed, or the new copy is in the broker and nobody was told. A crash
//! between the confirm and *settle*: both copies are there. In one slot the first one to start makes the other stale; in
//! two slots both run, the former at its old time. After *settle* the former copy is stale. None of it loses the event:
//! the former copy is given up last. Asking again puts it right, for an event that has a copy in `q:<at>` already goes to the
//! same place, and the newer copy replaces the one that nobody was told of.
//!
//! Without the message an event can be put off alone, with *later*: the copy that waits comes when it was due and is sent
//! on. That is one call, which may be repeated.

use std::sync::Arc;

use futures_util::Stream;
use jiff::Timestamp;

use super::{
    error::EventsError,
    moved::{MoveOutcome, PayloadNotKept, To},
    sending::{Sending, copy_of},
    shared::{Events, Shared},
    which::EventSelector,
};
use crate::domain::{
    event::Event,
    register::{
        DedupSlot, Later, Postponed, Subject,
        search::{EventInfo, Filter, State},
    },
    time::ceil_millis,
    wire::{self, Incoming, kept},
};

/// What there is to do for one event.
enum Plan {
    Answer(MoveOutcome),
    Later(Later),
    Send(Box<Sending>),
}

impl Events {
    /// Gives events that are named one by one another time, and answers for each that waits or runs. An event whose
    /// message is not kept (`keep-payload`) can only be put off. The time counts in milliseconds, rounded up; one that
    /// is past is now.
    ///
    /// # Errors
    /// When the register does not answer, the broker does not confirm, or there cannot be such an event.
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

    /// Runs events that are named one by one now, and answers for each that waits or runs. Their messages have to be kept
    /// (`keep-payload`).
    ///
    /// # Errors
    /// When the register does not answer, the broker does not confirm, or there cannot be such an event.
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

    /// Gives all events that a search finds another time, many at once, and answers for each. The stream has to be read
    /// to its end; what comes after an error was begun before it.
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

    /// Runs all events that a search finds now, many at once, and answers for each. The stream has to be read to its
    /// end; what comes after an error was begun before it.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
    /// use futures_util::TryStreamExt;
    /// use hatchery::{Filter, MoveOutcome, State};
    ///
    /// // The mail server is there again.
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

    /// Which of these could not be given that time, or run now where there is none, because their messages are not kept. In
    /// the order of the events. It asks, and changes nothing.
    ///
    /// # Errors
    /// When the register does not answer.
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
        // One batch after the other: the next one has to see which places the last one has taken, and what runs now goes
        // in the order in which it was found.
        self.each_batch(filter, 1, move |mut batch: Vec<EventInfo>| {
            // What is there already, or was brought there a moment ago.
            batch.retain(|event| event.due != Some(to.time()));
            let shared = Arc::clone(&shared);
            async move {
                let moved = shared.shift(batch, to).await?;
                Ok(moved.into_iter().filter_map(|(event, moved)| Some((event, moved?))).collect())
            }
        })
    }
}

impl Shared {
    fn now(&self) -> Timestamp {
        ceil_millis(self.clock.now())
    }

    /// A batch, in the order of effects that stands above. There is no answer for what is there already.
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
        // Each with its place in the batch.
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
        self.put_off(later, &mut answers).await?;
        self.give_places(&mut sending, &mut answers).await?;
        self.send(sending, &mut answers).await?;
        Ok(batch.into_iter().zip(answers).collect())
    }

    /// An event from its kept message, if that is of the copy that is shown.
    fn message(&self, event: &EventInfo, kept: &bytes::Bytes) -> Option<Event> {
        let (properties, body) = kept::decode(kept)?;
        let incoming = Incoming { routing_key: event.event_type.to_string(), properties, body };
        let message = wire::decode(&event.event_type, incoming, self.clock.now(), String::new).ok()?;
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
        let Some(message) = message else {
            let missing = match to {
                To::Now(_) => PayloadNotKept::Now,
                To::At(_) if known.state == State::DeadLetter => PayloadNotKept::DeadLetter,
                To::At(at) if at < former_due => PayloadNotKept::Earlier,
                To::At(at) => return Plan::Later(Later { subject: known.subject(), stamp: former, at, terms }),
            };
            return Plan::Answer(MoveOutcome::NotKept(missing));
        };
        let copy = copy_of(message, known, &former, to, now);
        let subject = copy.subject();
        Plan::Send(Box::new(Sending {
            subject,
            former,
            former_due,
            covered: known.covered,
            copy,
            at: to.time(),
            terms,
        }))
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
