//! One delivery's whole way through a worker.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fail::fail_point;
use tokio::{
    sync::{RwLock, Semaphore, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use uuid::Uuid;

use super::{claim::Patience, register::Batches, settle, shutdown::WorkError, tally::Tally};
use crate::{
    domain::{
        event::{self, Event},
        names::{self, Names},
        register::{self, Release, Renew, Renewed, Stamp, Terms},
        settlement::{self, Outcome, Ran},
        spec::{Topology, TypeSpec},
        ttl::Ttl,
        wire::{self, Incoming, Message, Poison},
        words::EventType,
    },
    handler::{Handler, HandlerError, Run},
    ports::{Broker, Clock, Delivery, RegisterError},
};

/// What all lanes of a worker share.
pub(super) struct Common {
    pub(super) topology: Arc<Topology>,
    pub(super) names: Names,
    pub(super) hatcheries: Vec<Ttl>,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) register: Batches,
    pub(super) clock: Arc<dyn Clock>,
    /// Every run holds it shared; a suspect that may kill the process holds it alone.
    pub(super) quiet: Arc<RwLock<()>>,
    /// Nothing new is started, and what has not started is given back.
    pub(super) stop: CancellationToken,
    /// The drain limit is over: what runs is given back too.
    pub(super) give_back: CancellationToken,
    /// Even the last publishes and settles have taken too long: the broker delivers again what is not acknowledged.
    pub(super) abandon: CancellationToken,
    /// Until then copies are on their way back that found their reference busy.
    pub(super) expected: Mutex<Option<Instant>>,
    /// Redis did not answer the last question: nothing is consumed.
    pub(super) away: watch::Sender<bool>,
    /// Why the worker has to stop by itself.
    pub(super) failure: Mutex<Option<WorkError>>,
    pub(super) tally: Tally,
}

/// One type in a worker.
pub(super) struct Lane {
    pub(super) common: Arc<Common>,
    pub(super) event_type: EventType,
    pub(super) spec: TypeSpec,
    pub(super) terms: Terms,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) permits: Arc<Semaphore>,
    pub(super) prefetch: u16,
}

/// How a run ended.
enum Ended {
    Outcome(Outcome),
    /// It was given back, and no attempt is spent.
    GivenBack,
}

impl Lane {
    /// deliver -> decode -> due? -> claim -> handler -> follow-up -> settle -> acknowledge
    pub(super) async fn work(&self, delivery: Delivery, ended: CancellationToken) {
        let Delivery { message, receipt } = delivery;
        let patience = Patience { deadline: Instant::now() + self.common.topology.ack_timeout / 2, ended };
        fail_point!("work.delivered");
        if wire::is_too_large_to_copy(&message.properties) {
            tracing::warn!(routing_key = %message.routing_key, "its headers leave no room for those of a copy: rejected");
            self.common.tally.poisoned();
            return receipt.reject().await;
        }
        let now = self.common.clock.now();
        let event = match wire::decode(&self.event_type, message, now, fresh_id) {
            Ok(event) => event,
            Err(poisoned) => {
                self.bury(&poisoned.0, &poisoned.1).await;
                return receipt.acknowledge().await;
            }
        };
        let early = event.early_by(now);
        if !early.is_zero() {
            self.send_on(&event, early).await;
            return receipt.acknowledge().await;
        }

        let token = Uuid::now_v7();
        // The turn lasts until the event is settled.
        let Some((claimed, _turn)) = self.claim(&event, token, &patience).await else {
            self.common.tally.given_back();
            return receipt.requeue().await;
        };
        fail_point!("work.claimed");
        match claimed {
            register::Claimed::Stale | register::Claimed::Replaced => {
                tracing::debug!(id = %event.id, ?claimed, "dropped");
                self.common.tally.unwanted(&claimed);
            }
            register::Claimed::Later(time) => self.send_on(&event, event::until(now, time)).await,
            register::Claimed::Busy => {
                self.common.tally.busy();
                self.send_busy(&event).await;
            }
            // Not an answer to who claims alone.
            register::Claimed::Alone => return receipt.requeue().await,
            register::Claimed::Run { fence, crashes, stamp } => {
                let event = Event { stamp, ..event };
                let claimed = settle::Claimed { token, fence };
                if !self.run_and_settle(&event, crashes, &claimed).await {
                    self.common.tally.given_back();
                    return receipt.requeue().await;
                }
            }
        }
        receipt.acknowledge().await;
        fail_point!("work.acknowledged");
    }

    /// True when the event is settled and may be acknowledged. Until then the lease is renewed: a follow-up waits as long
    /// as the broker is away, and nobody else may take the event for abandoned meanwhile.
    async fn run_and_settle(&self, event: &Event, crashes: u32, claimed: &settle::Claimed) -> bool {
        let lost = CancellationToken::new();
        tokio::select! {
            settled = self.until_settled(event, crashes, claimed, &lost) => settled,
            never = self.renew(event, claimed, &lost) => match never {},
        }
    }

    async fn until_settled(
        &self,
        event: &Event,
        crashes: u32,
        claimed: &settle::Claimed,
        lost: &CancellationToken,
    ) -> bool {
        let decision = if crashes >= self.spec.crash_limit {
            settlement::crashed(crashes, event.attempts)
        } else {
            match self.run(event, claimed.fence, lost.clone()).await {
                Ended::Outcome(outcome) => {
                    self.common.tally.ran(&outcome);
                    let ran = Ran { id: &event.id, attempts: event.attempts, now: self.common.clock.now() };
                    settlement::decide(outcome, ran, self.spec.on_failure, &self.spec.retry)
                }
                Ended::GivenBack => {
                    self.release(event, &event.stamp, claimed.token).await;
                    return false;
                }
            }
        };
        fail_point!("work.handled");
        self.carry_out(event, decision, claimed).await;
        true
    }

    async fn run(&self, event: &Event, fence: i64, lost: CancellationToken) -> Ended {
        let run = Run { event: event.clone(), fence, lost };
        let handler = Arc::clone(&self.handler);
        // A task of its own: a panic ends it and not the worker, and it ends with this one.
        let mut running = AbortOnDropHandle::new(tokio::spawn(async move { handler.handle(run).await }));
        tokio::select! {
            // What has ended at the last moment has ended.
            biased;
            ended = &mut running => match ended {
                Ok(Ok(outcome)) => Ended::Outcome(outcome),
                Ok(Err(HandlerError::Failed(reason))) => Ended::Outcome(Outcome::Retry { reason, after: None }),
                Ok(Err(HandlerError::CannotStart(reason))) => {
                    let reason = format!("the handler of {} cannot be started: {reason}", self.event_type);
                    self.common.fail(WorkError::Handler(reason));
                    Ended::GivenBack
                }
                Err(panic) => {
                    let reason = format!("panic: {}", panic_text(panic));
                    Ended::Outcome(Outcome::Retry { reason, after: None })
                }
            },
            () = tokio::time::sleep(self.spec.handler_timeout) => {
                let reason = format!("no answer within handler-timeout ({:?})", self.spec.handler_timeout);
                Ended::Outcome(Outcome::Retry { reason, after: None })
            }
            () = self.common.give_back.cancelled() => Ended::GivenBack,
        }
    }

    async fn renew(&self, event: &Event, claimed: &settle::Claimed, lost: &CancellationToken) -> Infallible {
        let renew = Renew {
            subject: event.subject(),
            stamp: event.stamp.clone(),
            token: claimed.token,
            due: event.due(),
            terms: self.terms,
        };
        let mut held = Instant::now();
        loop {
            tokio::time::sleep(self.terms.lease / 3).await;
            let asked = Instant::now();
            match self.common.register.renew(renew.clone()).await {
                Ok(Some(Renewed::Held)) => held = asked,
                Ok(_) => self.lose(event, lost),
                Err(error) => {
                    tracing::warn!(%error, id = %event.id, "the lease is not renewed");
                    if held.elapsed() >= self.terms.lease {
                        self.lose(event, lost);
                    }
                }
            }
        }
    }

    /// Tells the handler that another may run its reference by now.
    fn lose(&self, event: &Event, lost: &CancellationToken) {
        if !lost.is_cancelled() {
            tracing::warn!(id = %event.id, event_type = %self.event_type, "the lease is lost; another may run its reference by now");
            lost.cancel();
        }
    }

    /// Lets go of an event that is given back, so that its next start counts as no crash.
    pub(super) async fn release(&self, event: &Event, stamp: &Stamp, token: Uuid) {
        let release =
            Release { subject: event.subject(), stamp: stamp.clone(), token, due: event.due(), terms: self.terms };
        if let Err(error) = self.common.register.release(release).await {
            tracing::warn!(%error, id = %event.id, "not released; it waits for its lease to run out");
        }
    }

    /// What cannot be an event goes to dead-letter as it came, with the reason.
    async fn bury(&self, poison: &Poison, incoming: &Incoming) {
        tracing::warn!(routing_key = %incoming.routing_key, "{poison}");
        self.common.tally.poisoned();
        self.publish(Message {
            exchange: self.common.names.dead_letter(),
            routing_key: names::dead_letter_key(&self.event_type),
            properties: wire::encode_poison(incoming, poison, fresh_id),
            body: incoming.body.clone(),
        })
        .await;
    }
}

impl Common {
    /// A copy comes back after this long, for which a worker that stops when its queues are empty waits.
    pub(super) fn expect_back(&self, wait: Duration) {
        let then = Some(Instant::now() + wait);
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        *expected = then.max(*expected);
    }

    pub(super) fn expects_nothing(&self) -> bool {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|then| then <= Instant::now())
    }

    /// Nothing more is consumed until Redis answers. Said once, and not for every event that waits.
    pub(super) fn register_is_away(&self, error: &RegisterError) {
        if !self.away.send_replace(true) {
            tracing::warn!(%error, "no event is started until Redis answers");
        }
    }

    /// Stops the worker for a reason that more events would only meet again.
    pub(super) fn fail(&self, reason: WorkError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.stop.cancel();
    }
}

fn fresh_id() -> String {
    Uuid::now_v7().to_string()
}

fn panic_text(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast::<&str>().map_or_else(|_| "no message".to_owned(), |text| (*text).to_owned()),
        },
        Err(error) => error.to_string(),
    }
}
