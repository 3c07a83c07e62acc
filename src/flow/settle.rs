//! After a handler: publish the follow-up, wait for the confirm, tell the register, and only then acknowledge.
//!
//! A crash before the confirm: the delivery comes again and the handler runs again. A crash after the confirm: both the
//! delivery and its follow-up are in the broker; after *settle* the register knows the delivery as stale, before it the
//! one that is claimed first makes the other stale or runs twice at worst. Nothing is lost at any point.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use fail::fail_point;
use jiff::Timestamp;
use uuid::Uuid;

use super::work::Lane;
use crate::{
    domain::{
        compile::BUSY,
        delay::Route,
        event::{self, Event},
        names,
        register::{End, Note, Record, Reserve, Reserved, Settle, Slot, Stage, Stamp},
        settlement::{Decision, Failed},
        ttl::Ttl,
        wire::{self, Message, kept},
    },
    ports::RegisterError,
};

/// The longest wait of a copy whose reference is busy.
const LONGEST_BUSY: Duration = Duration::from_secs(4);

/// A requeue takes at least this long.
const SOONEST: Duration = Duration::from_secs(1);

/// How late a copy may come back before a worker that stops when its queues are empty counts it as gone.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// The waits between tries that have no end: from a tenth of a second to five seconds, with jitter.
pub(super) fn patience() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(5))
        .without_max_times()
        .with_jitter()
}

/// A claim that is running, or was.
pub(super) struct Claimed {
    pub(super) token: Uuid,
    pub(super) fence: i64,
}

/// A copy to publish, and how the run ended by it; None where that is not this run's to say.
type FollowUp = (Option<Message>, Option<End>);

impl Lane {
    /// Carries out a decision, all but the acknowledgement. The register is told of what was claimed.
    pub(super) async fn carry_out(&self, event: &Event, decision: Decision, claimed: Option<&Claimed>) {
        let (message, end) = self.follow_up(event, decision).await;
        if let Some(message) = message {
            self.publish(message).await;
        }
        fail_point!("work.followed-up");
        let Some(claimed) = claimed else { return };
        let Some(end) = end else { return self.release(event, &event.stamp, claimed.token).await };
        let settle = Settle {
            subject: event.subject(),
            stamp: event.stamp.clone(),
            fence: claimed.fence,
            token: claimed.token,
            due: event.due(),
            end,
            terms: self.terms,
        };
        // While it waits it keeps its turn: were every turn kept so, no claim would tell that Redis is away.
        let away = |error: &RegisterError, _| self.common.register_is_away(error);
        let settled = (|| self.common.register.settle(settle.clone())).retry(patience()).notify(away).await;
        debug_assert!(settled.is_ok(), "there is no last try");
        fail_point!("work.settled");
    }

    async fn follow_up(&self, event: &Event, decision: Decision) -> FollowUp {
        let now = self.common.clock.now();
        let tally = &self.common.tally;
        match decision {
            Decision::Finish => (None, Some(End::Finished)),
            Decision::Drop { reason } => {
                tally.dropped();
                tracing::warn!(id = %event.id, event_type = %event.event_type, %reason, "dropped after a failure");
                (None, Some(End::Finished))
            }
            Decision::Retry { ttl, failed } => {
                tally.retried();
                let copy = after_failure(event, failed);
                let due = event::later(now, ttl.as_duration());
                (Some(self.to_retry(&copy, ttl)), Some(copied(&copy, due, Stage::Retry)))
            }
            Decision::RetryAfter { after, failed } => {
                tally.retried();
                let due = event::ceil_millis(event::later(now, after));
                self.raise_due(event, due).await;
                let copy = Event { nbf: Some(due), ..after_failure(event, failed) };
                (Some(self.to_scheduler(&copy, after)), Some(copied(&copy, due, Stage::Retry)))
            }
            Decision::DeadLetter(failed) => {
                tally.dead_lettered();
                tracing::warn!(id = %event.id, event_type = %event.event_type, reason = %failed.reason, "dead-lettered");
                let copy = after_failure(event, failed);
                (Some(self.to_dead_letter(&copy)), Some(copied(&copy, now, Stage::DeadLetter)))
            }
            Decision::Requeue { at, reason } => self.requeue(event, event::ceil_millis(at), reason).await,
        }
    }

    /// Again later, by the handler's wish: a publish like any other, into the slot of its date. An event that competes
    /// with nothing goes on doing so.
    async fn requeue(&self, event: &Event, at: Timestamp, reason: String) -> FollowUp {
        let now = self.common.clock.now();
        // A handler that asks for a time that is past would otherwise be run without a pause, for ever.
        let delay = event::until(now, at).max(SOONEST);
        let fresh = Event {
            nbf: Some(at),
            attempts: 0,
            reason: Some(reason),
            first_failure: None,
            last_failure: None,
            ..next(event)
        };
        let alone = Stamp::alone(&event.id, event.stamp.generation + 1);
        if !self.spec.register || matches!(event.stamp.slot, Slot::Event(_)) {
            self.common.tally.requeued();
            self.raise_due(event, at).await;
            let copy = Event { stamp: alone, ..fresh };
            return (Some(self.to_scheduler(&copy, delay)), Some(copied(&copy, at, Stage::Waiting)));
        }
        let slot = Slot::RequeuedAt(at.as_millisecond());
        let version = match self.reserve(event, slot.clone(), at, Some(event.stamp.clone())).await {
            Ok(Reserved::Version(version)) => Some(version),
            // Cancelled, or another run of it came to an end, by a copy perhaps: settled as done, that copy would be stale.
            Ok(Reserved::Stale) => return (None, None),
            Err(error) => {
                tracing::warn!(%error, id = %event.id, "requeued without a version: it competes with nothing");
                None
            }
        };
        self.common.tally.requeued();
        let stamp = match version {
            Some(version) => Stamp { slot: slot.clone(), version, generation: 0 },
            None => alone,
        };
        let fresh = Event { stamp, ..fresh };
        self.publish(self.to_scheduler(&fresh, delay)).await;
        if let Some(version) = version {
            let record = Record {
                subject: event.subject(),
                slot,
                version,
                due: at,
                reason: fresh.reason.clone(),
                kept: kept::of(&fresh, self.spec.keep_payload),
                terms: self.terms,
            };
            if let Err(error) = self.common.register.record(record).await {
                tracing::warn!(%error, "an older event of the same date may run too");
            }
        }
        (None, Some(End::Finished))
    }

    /// Before a copy that waits longer than the policy's own delays: what makes older copies stale must outlive it.
    async fn raise_due(&self, event: &Event, due: Timestamp) {
        if !self.spec.register {
            return;
        }
        if let Err(error) = self.reserve(event, event.stamp.slot.clone(), due, None).await {
            tracing::warn!(%error, id = %event.id, "the register may forget the event before it is due");
        }
    }

    async fn reserve(
        &self,
        event: &Event,
        slot: Slot,
        due: Timestamp,
        asked_by: Option<Stamp>,
    ) -> Result<Reserved, RegisterError> {
        let subject = event.subject();
        self.common.register.reserve(Reserve { subject, slot, due, asked_by, terms: self.terms }).await
    }

    /// The same copy again after this long: it came too early.
    pub(super) async fn send_on(&self, event: &Event, wait: Duration) {
        self.publish(self.to_scheduler(event, wait)).await;
    }

    /// The same copy again in a moment: its reference is busy. The wait doubles from 250 ms to 4 s.
    pub(super) async fn send_busy(&self, event: &Event) {
        let wait = BUSY.as_duration().saturating_mul(1 << event.busy.min(8)).min(LONGEST_BUSY);
        let copy = Event { busy: event.busy.saturating_add(1), ..event.clone() };
        self.publish(self.to_scheduler(&copy, wait)).await;
        self.common.expect_back(wait + ON_ITS_WAY);
    }

    /// Publishes until the broker has confirmed it. A copy too many is known by its generation; one too few is a loss.
    pub(super) async fn publish(&self, message: Message) {
        let published = (|| self.common.broker.publish(message.clone()))
            .retry(patience())
            .notify(|error, wait| tracing::warn!(%error, "a follow-up is not published; trying again in {wait:?}"));
        let published = published.await;
        debug_assert!(published.is_ok(), "there is no last try");
    }

    /// The same copy to the aside queue, to run by itself. There RabbitMQ counts from 0 again.
    pub(super) async fn put_aside(&self, copy: &Event) {
        let routing_key = names::aside_key(&copy.event_type);
        self.publish(message(self.common.names.aside(), routing_key, copy)).await;
    }

    fn to_scheduler(&self, copy: &Event, wait: Duration) -> Message {
        let route = Route::after(wait, &self.common.hatcheries, self.common.topology.ladder);
        message(self.common.names.scheduler(), route.key(&copy.event_type), copy)
    }

    fn to_retry(&self, copy: &Event, ttl: Ttl) -> Message {
        message(self.common.names.retry(), names::retry_key(&copy.event_type, ttl), copy)
    }

    fn to_dead_letter(&self, copy: &Event) -> Message {
        message(self.common.names.dead_letter(), names::dead_letter_key(&copy.event_type), copy)
    }
}

/// A run that ended with this copy.
fn copied(copy: &Event, due: Timestamp, stage: Stage) -> End {
    End::Copied { due, note: Note { stage, attempts: copy.attempts, reason: copy.reason.clone() } }
}

fn message(exchange: String, routing_key: String, copy: &Event) -> Message {
    Message { exchange, routing_key, properties: wire::encode(copy), body: copy.payload.clone() }
}

/// The event's next copy, with a fresh start as far as waiting for its reference goes.
fn next(event: &Event) -> Event {
    Event { stamp: event.stamp.next(), busy: 0, crashes: 0, ..event.clone() }
}

/// The copy of an event that has failed.
fn after_failure(event: &Event, failed: Failed) -> Event {
    let mut copy = next(event);
    copy.fail(failed);
    copy
}
