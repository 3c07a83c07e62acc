//! Replays letters: publishes their events to the scheduler, as if they had not failed.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use hatchery::{
    Event, Events, TransitionName,
    internals::{
        names::Names,
        ports::Receipt,
        reason::was,
        register::{End, Note, Settle, Stage},
        time::{ceil_millis, millis_text},
        wire::{self, Message, REPLAYS, Value},
    },
    parse_duration,
};
use jiff::Timestamp;

use super::{
    error::DeadLettersError,
    letter::Letter,
    queues::DeadLetters,
    standing::Standing,
    sweep::{Act, Held, Sweep, Swept, acknowledge},
};

/// When replayed events are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At the date of each event. A date in the past, or no date, means now.
    AsBefore,
    /// At this time.
    At(Timestamp),
}

impl Due {
    /// Returns whether a replay leaves letters of this standing.
    #[must_use]
    pub const fn leaves(self, standing: &Standing) -> bool {
        match standing {
            Standing::Obsolete(_) | Standing::Unreadable(_) | Standing::Unknown => true,
            Standing::Open | Standing::Unregistered => false,
            // It goes back to the queue of its source, which makes no delay.
            Standing::Message => matches!(self, Self::At(_)),
        }
    }
}

impl DeadLetters {
    /// Replays the selected letters of a queue. The attempts of an event begin at 0, and its history stays in its headers.
    /// Letters that are obsolete or no events are left.
    ///
    /// The sweep ends after as many letters as were in the queue when it began. It may be stopped and run again.
    pub async fn replay(&self, sweep: Sweep<'_>, due: Due) -> Swept {
        self.sweep(sweep, Replay { events: self.0.clone(), due }).await
    }
}

struct Replay {
    events: Events,
    due: Due,
}

/// A letter on its way back.
struct Sending {
    receipt: Box<dyn Receipt>,
    copy: Event,
    /// The settlement of the letter's copy, if its type uses the register.
    settle: Option<Settle>,
}

#[async_trait]
impl Act for Replay {
    const BATCHES: usize = 4;

    fn leaves(&self, standing: &Standing) -> bool {
        self.due.leaves(standing)
    }

    /// The order of effects. A crash before the confirm changes nothing that matters. After it, the letter and its copy
    /// exist: the copy has the higher generation, so the register drops whatever a second replay publishes once one of
    /// them has run, and shows the letter as obsolete. A type with `register: off` runs twice then.
    async fn act(&self, batch: Vec<Held>) -> (u64, Result<(), DeadLettersError>) {
        let now = ceil_millis(self.events.shared.clock.shared());
        let (messages, batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(|held| held.letter.source.is_some());
        let (returned, result) = self.give_back(messages).await;
        if result.is_err() {
            return (returned, result);
        }
        let sending = batch.into_iter().filter_map(|held| self.sending(held, now)).collect();
        let (mut confirmed, published) = self.publish(sending).await;
        for Sending { copy, .. } in &confirmed {
            self.events.shared.tell(TransitionName::Replayed, &copy.subject(), |record| record.due = Some(copy.due()));
        }
        fail_point!("replay.confirmed");
        let settles: Vec<Settle> = confirmed.iter_mut().filter_map(|sent| sent.settle.take()).collect();
        if !settles.is_empty()
            && let Err(error) = self.events.shared.register.settle(&settles).await
        {
            return (returned, Err(DeadLettersError::Register(error)));
        }
        fail_point!("replay.settled");
        (returned + acknowledge(confirmed.into_iter().map(|sent| sent.receipt).collect()).await, published)
    }
}

impl Replay {
    /// Publishes messages to the queue of their source, by the default exchange.
    async fn give_back(&self, messages: Vec<Held>) -> (u64, Result<(), DeadLettersError>) {
        if messages.is_empty() {
            return (0, Ok(()));
        }
        let topology = &self.events.shared.topology;
        let names = Names::new(topology.name.clone());
        let queue = |held: &Held| {
            let (name, spec) = topology.sources.get_key_value(held.letter.source.as_ref()?)?;
            Some(spec.queue(&names, name))
        };
        let messages = messages.into_iter().filter_map(|held| Some((queue(&held)?, held)));
        let send = |(queue, held): (String, Held)| async move {
            let published = self.events.shared.confirmed(|| returned(&held.letter, &queue)).await;
            (held, published)
        };
        let (mut confirmed, mut result) = (Vec::new(), Ok(()));
        for (held, answer) in join_all(messages.map(send)).await {
            match answer {
                Ok(()) => confirmed.push(held.held),
                Err(error) => result = result.and(Err(DeadLettersError::Publish(error))),
            }
        }
        fail_point!("replay.confirmed");
        (acknowledge(confirmed).await, result)
    }

    /// Returns what a replay of this letter sends. `None` if it is no event.
    fn sending(&self, held: Held, now: Timestamp) -> Option<Sending> {
        let former = held.event?;
        let uses_register = held.standing == Standing::Open;
        let settled = uses_register.then(|| (former.subject(), former.stamp.clone(), former.due()));
        let copy = replayed(former, self.due, now, foreign_delay(&held.letter));
        let settle = settled.and_then(|(subject, stamp, due)| {
            let note = Note { stage: Stage::Waiting, attempts: 0, reason: copy.reason.clone() };
            let end = End::Copied { due: copy.nbf.unwrap_or(now), note };
            Some(Settle::by_a_person(
                subject,
                stamp,
                held.covered,
                due,
                end,
                self.events.shared.terms(&copy.event_type)?,
            ))
        });
        Some(Sending { receipt: held.held, copy, settle })
    }

    /// Publishes the events of a batch, and waits for the confirms. Returns those that are confirmed.
    async fn publish(&self, sending: Vec<Sending>) -> (Vec<Sending>, Result<(), DeadLettersError>) {
        let copies = sending.iter().map(|sending| &sending.copy);
        let answers =
            join_all(copies.map(|copy| self.events.shared.confirmed(move || self.events.shared.to_scheduler(copy))))
                .await;
        let (mut confirmed, mut result) = (Vec::with_capacity(sending.len()), Ok(()));
        for (sent, answer) in sending.into_iter().zip(answers) {
            match answer {
                Ok(()) => confirmed.push(sent),
                Err(error) => result = result.and(Err(DeadLettersError::Publish(error))),
            }
        }
        (confirmed, result)
    }
}

/// Returns the message that goes back to the queue of its source: as it came, and counted.
fn returned(letter: &Letter, queue: &str) -> Message {
    let mut properties = wire::unburied(letter.message.properties.clone());
    properties.headers.insert(REPLAYS.to_owned(), Value::I64(letter.replays().max(0).saturating_add(1)));
    let (exchange, routing_key) = (String::new(), queue.to_owned());
    Message { exchange, routing_key, properties, body: letter.message.body.clone() }
}

/// Returns the delay that another program has asked for by the routing key alone, as in `mail.30s`. Nothing tells when the message was
/// published, so the whole delay counts from now: late, and never early.
fn foreign_delay(letter: &Letter) -> Option<Duration> {
    // A message that RabbitMQ has dead-lettered has waited.
    if letter.message.properties.headers.contains_key("x-death") {
        return None;
    }
    let (_, delay) = letter.message.routing_key.split_once('.')?;
    parse_duration(delay).ok()
}

/// Returns the copy to publish. `delay` counts where the event has no date.
fn replayed(mut event: Event, due: Due, now: Timestamp, delay: Option<Duration>) -> Event {
    let was = event.reason.as_deref().and_then(was).unwrap_or_default();
    let headers = &mut event.properties.headers;
    let replays: i64 = headers.get(REPLAYS).and_then(Value::as_i64).unwrap_or(0).max(0);
    headers.insert(REPLAYS.to_owned(), Value::I64(replays.saturating_add(1)));
    event.nbf = match due {
        Due::AsBefore => {
            let after = |delay| ceil_millis(now.checked_add(delay).unwrap_or(Timestamp::MAX));
            event.nbf.or_else(|| delay.map(after))
        }
        Due::At(at) => Some(ceil_millis(at)),
    };
    (event.expires, event.attempts, event.busy, event.crashes, event.by_hand) = (None, 0, 0, 0, false);
    event.reason = Some(format!("replay: asked_at={}{was}", millis_text(now)));
    event.stamp = event.stamp.next();
    event
}
