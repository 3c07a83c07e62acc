//! One delivery's whole way through a worker.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use backon::Retryable as _;
use fail::fail_point;
use tokio::{
    sync::{Notify, OwnedRwLockWriteGuard, RwLock, Semaphore, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use uuid::Uuid;

use super::{
    claim::Patience,
    outage::{BrokerOutage, RegisterOutage},
    register::Batches,
    settle::{self, Closed},
    tally::Tally,
    ways::Ways,
    worker::WorkError,
};
use crate::{
    domain::{
        event::{self, Event},
        names,
        register::{self, Release, Renew, Renewed, Stamp, Terms},
        settlement::{self, Decision, Next, Outcome, Ran, SUSPECT},
        spec::{Topology, TypeSpec},
        ttl::{roughly, say},
        wire::{self, Incoming, Message, Poison},
        words::EventType,
    },
    handler::{Handler, HandlerError, Run},
    ports::{Broker, Clock, Delivery, Receipt, RegisterError},
};

/// How long a handler that was aborted may take to end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What all lanes of a worker share.
pub(super) struct Common {
    pub(super) topology: Arc<Topology>,
    pub(super) ways: Ways,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) register: Batches,
    pub(super) clock: Arc<dyn Clock>,
    /// Every run holds it shared; a suspect that may kill the process holds it alone.
    pub(super) quiet: Arc<RwLock<()>>,
    /// Nothing runs, for as long as somebody holds this: what is put aside shares one quiet.
    pub(super) still: tokio::sync::Mutex<Weak<OwnedRwLockWriteGuard<()>>>,
    /// Nothing new is started, and what has not started is given back.
    pub(super) stop: CancellationToken,
    /// The drain limit is over: what runs is given back too.
    pub(super) give_back: CancellationToken,
    /// Even the last publishes and settles have taken too long: the broker delivers again what is not acknowledged.
    pub(super) abandon: CancellationToken,
    /// Until then copies are on their way back that found their reference busy.
    pub(super) expected: Mutex<Option<Instant>>,
    /// Something of a type without the register may have killed its worker, and waits to run alone.
    pub(super) suspects: Notify,
    /// Redis did not answer the last question: nothing of a type that asks it is consumed.
    pub(super) away: watch::Sender<bool>,
    /// It was away, and has answered no claim and no settlement since.
    pub(super) doubted: watch::Sender<bool>,
    /// What is told of both.
    pub(super) register_outage: RegisterOutage,
    /// Why the worker has to stop by itself.
    pub(super) failure: Mutex<Option<WorkError>>,
    /// Whether follow-ups wait for the broker.
    pub(super) broker_outage: BrokerOutage,
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
    /// Places in memory for events whose reference is busy.
    pub(super) busy: Semaphore,
    pub(super) prefetch: u16,
}

/// What becomes of a delivery.
pub(super) enum Verdict {
    /// It is settled.
    Acknowledge,
    /// The broker itself puts it into dead-letter.
    Reject,
    /// It comes again, here or elsewhere.
    GiveBack,
}

/// How an event's turn ended.
pub(super) enum Way {
    Settled,
    /// No attempt is spent.
    GivenBack,
    /// It failed, and is tried again in its place after this long. The claim is released.
    Again {
        after: Duration,
    },
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
        let patience = Patience { deadline: Instant::now() + self.common.topology.ack_timeout / 2, ended };
        let Delivery { message, receipt } = delivery;
        let returns = wire::returns(&message.properties);
        let verdict = match self.due(message).await {
            Ok(mut event) if self.spec.register => self.handle(&mut event, &patience).await,
            Ok(event) if returns >= SUSPECT => return self.work_aside(event, returns, receipt).await,
            Ok(mut event) => self.handle_unregistered(&mut event, &patience).await,
            Err(verdict) => verdict,
        };
        self.answer(verdict, receipt).await;
    }

    /// The end of a delivery's way.
    pub(super) async fn answer(&self, verdict: Verdict, receipt: Box<dyn Receipt>) {
        match verdict {
            Verdict::Acknowledge => receipt.acknowledge().await,
            Verdict::Reject => receipt.reject().await,
            Verdict::GiveBack => {
                self.common.tally.given_back();
                return receipt.requeue().await;
            }
        }
        fail_point!("work.acknowledged");
    }

    /// The event in a delivery; where it is none, or not due yet, what becomes of the delivery instead.
    pub(super) async fn due(&self, message: Incoming) -> Result<Event, Verdict> {
        fail_point!("work.delivered");
        if wire::is_too_large_to_copy(&message.properties) {
            let id = message.properties.message_id.as_deref();
            tracing::warn!(id, event_type = %self.event_type, routing_key = %message.routing_key, "its headers leave no room for those of a copy: rejected");
            self.common.tally.poisoned();
            return Err(Verdict::Reject);
        }
        let now = self.common.clock.now();
        let event = match wire::decode(&self.event_type, message, now, fresh_id) {
            Ok(event) => event,
            Err(poisoned) => {
                return Err(self.bury(&poisoned.0, &poisoned.1).await.into());
            }
        };
        let early = event.early_by(now);
        if early.is_zero() {
            return Ok(event);
        }
        Err(self.send_on(&event, early).await.into())
    }

    async fn handle(&self, event: &mut Event, patience: &Patience) -> Verdict {
        let token = Uuid::now_v7();
        let Some((claimed, turn)) = self.claim_soon(event, token, patience).await else { return Verdict::GiveBack };
        fail_point!("work.claimed");
        match claimed {
            register::Claimed::Busy => {
                self.common.tally.busy();
                self.send_busy(event).await.into()
            }
            register::Claimed::Run { fence, crashes, stamp } => {
                event.stamp = stamp;
                // Its turn lasts until it is settled, and not until it is acknowledged, which may wait for others.
                match self.run_and_settle(event, crashes, settle::Claimed { token, fence, turn }).await {
                    Way::Settled => Verdict::Acknowledge,
                    Way::GivenBack | Way::Again { .. } => Verdict::GiveBack,
                }
            }
            unwanted => self.not_run(event, &unwanted).await,
        }
    }

    /// What becomes of a delivery that the register does not let run.
    pub(super) async fn not_run(&self, event: &Event, claimed: &register::Claimed) -> Verdict {
        match claimed {
            register::Claimed::Stale | register::Claimed::Replaced => {
                tracing::debug!(id = %event.id, ?claimed, "dropped");
                self.common.tally.unwanted(claimed);
                Verdict::Acknowledge
            }
            register::Claimed::Later(time) => {
                self.send_on(event, event::until(self.common.clock.now(), *time)).await.into()
            }
            // Not an answer to who claims alone, and who waits until it is not busy.
            register::Claimed::Alone | register::Claimed::Busy | register::Claimed::Run { .. } => Verdict::GiveBack,
        }
    }

    /// Until the event is settled the lease is renewed: a follow-up waits as long as the broker is away, and nobody else
    /// may take the event for abandoned meanwhile.
    pub(super) async fn run_and_settle(&self, event: &mut Event, crashes: u32, mut claimed: settle::Claimed) -> Way {
        let lost = CancellationToken::new();
        let renew = Renew {
            subject: event.subject(),
            stamp: event.stamp.clone(),
            token: claimed.token,
            due: event.due(),
            terms: self.terms,
        };
        let too_often = (crashes >= self.spec.crash_limit && !self.spec.keeps_order())
            .then(|| settlement::crashed(crashes, event.attempts, self.common.clock.now()));
        if crashes > 0 && too_often.is_none() {
            tracing::warn!(id = %event.id, event_type = %self.event_type, crashes, "its worker died while it ran; it runs again");
        }
        tokio::select! {
            way = self.until_settled(event, too_often, Some(&mut claimed), &lost) => way,
            never = self.renew(renew, &lost) => match never {},
        }
    }

    /// Runs it, unless it has crashed too often, and carries out what follows. Nothing is claimed where there is no register.
    pub(super) async fn until_settled(
        &self,
        event: &mut Event,
        too_often: Option<Decision>,
        mut claimed: Option<&mut settle::Claimed>,
        lost: &CancellationToken,
    ) -> Way {
        let decided = match too_often {
            Some(decision) => Ok(decision),
            None => self.until_decided(event, claimed.as_ref().map(|claimed| claimed.fence), lost).await,
        };
        let way = match decided {
            Ok(decision) => {
                fail_point!("work.handled");
                if let Some(claimed) = &mut claimed {
                    claimed.turn.decided();
                }
                match self.carry_out(event, decision, claimed.as_deref_mut()).await {
                    Ok(()) => return Way::Settled,
                    Err(Closed) => Way::GivenBack,
                }
            }
            Err(way) => way,
        };
        if let Some(claimed) = claimed {
            self.release(event, &event.stamp, claimed.token).await;
        }
        way
    }

    /// Runs it, in place again and again where the type says so. Where nothing is decided by that, how its turn ended.
    async fn until_decided(
        &self,
        event: &mut Event,
        fence: Option<i64>,
        lost: &CancellationToken,
    ) -> Result<Decision, Way> {
        let mut tries = 0;
        loop {
            let Ended::Outcome(outcome) = self.run(event, fence, lost).await else {
                return Err(Way::GivenBack);
            };
            self.common.tally.ran(&outcome);
            let ran = Ran { id: &event.id, attempts: event.attempts, tries, now: self.common.clock.now() };
            let (after, failed) = match settlement::decide(outcome, ran, self.spec.on_failure, &self.spec.retry) {
                Next::Settle(decision) => return Ok(decision),
                Next::Again { after, failed } => (after, failed),
            };
            self.common.tally.retried();
            event.fail(failed);
            // Who keeps order begins anew with each try: meanwhile the event may be cancelled or replaced.
            if self.spec.keeps_order() {
                return Err(Way::Again { after });
            }
            tracing::debug!(id = %event.id, reason = event.reason, "tried again in {}", roughly(after));
            if self.common.give_back.run_until_cancelled(tokio::time::sleep(after)).await.is_none() {
                return Err(Way::GivenBack);
            }
            tries += 1;
        }
    }

    async fn run(&self, event: &Event, fence: Option<i64>, lost: &CancellationToken) -> Ended {
        // What the handler has left running elsewhere, in a thread, hears that its run is over.
        let lost = lost.child_token();
        let over = lost.clone().drop_guard();
        let run = Run { event: event.clone(), fence, lost };
        let handler = Arc::clone(&self.handler);
        // A task of its own: a panic ends it and not the worker, and it ends with this one.
        let mut running = AbortOnDropHandle::new(tokio::spawn(async move { handler.handle(run).await }));
        let ended = tokio::select! {
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
                let reason = format!("no answer within handler-timeout ({})", say(self.spec.handler_timeout));
                Ended::Outcome(Outcome::Retry { reason, after: None })
            }
            () = self.common.give_back.cancelled() => Ended::GivenBack,
        };
        if !running.is_finished() {
            // What it holds is let go of before the next run may want it. Code that does not await hears of it no sooner.
            drop(over);
            running.abort();
            if tokio::time::timeout(LAST_WORDS, running).await.is_err() {
                tracing::warn!(id = %event.id, event_type = %self.event_type, "the handler does not end");
            }
        }
        ended
    }

    async fn renew(&self, renew: Renew, lost: &CancellationToken) -> Infallible {
        let mut held = Instant::now();
        loop {
            tokio::time::sleep(self.terms.lease / 3).await;
            let asked = Instant::now();
            match self.common.register.renew(renew.clone()).await {
                Ok(Some(Renewed::Held)) => held = asked,
                Ok(_) => self.lose(&renew, lost),
                Err(error) => {
                    self.unanswered(asked, &error, &renew.subject.id, "the lease is not renewed");
                    if held.elapsed() >= self.terms.lease {
                        self.lose(&renew, lost);
                    }
                }
            }
        }
    }

    /// Tells the handler that another may run its reference by now.
    fn lose(&self, renew: &Renew, lost: &CancellationToken) {
        if !lost.is_cancelled() {
            tracing::warn!(id = %renew.subject.id, event_type = %self.event_type, "the lease is lost; another may run its reference by now");
            lost.cancel();
        }
    }

    /// Lets go of an event that is given back, so that its next start counts as no crash. Where Redis does not answer it is
    /// told later, beside all else, for as long as the lease may last: then the token holds nothing any more.
    pub(super) async fn release(&self, event: &Event, stamp: &Stamp, token: Uuid) {
        let (subject, due, terms) = (event.subject(), event.due(), self.terms);
        let release = Release { subject, stamp: stamp.clone(), token, due, terms };
        let asked = Instant::now();
        let Err(error) = self.common.register.release(release.clone()).await else { return };
        self.unanswered(asked, &error, &event.id, "not released; trying again");
        let common = Arc::clone(&self.common);
        tokio::spawn(async move {
            let telling = (|| common.register.release(release.clone())).retry(settle::patience());
            if tokio::time::timeout(terms.lease, telling).await.is_err() {
                tracing::warn!(%error, id = %release.subject.id, "not released; its next start counts as a crash");
            }
        });
    }

    /// A question that was asked then had no answer, and that holds the event up no longer. While Redis is away that is said
    /// once, and not for each event; what it refuses otherwise may be this one thing alone.
    pub(super) fn unanswered(&self, asked: Instant, error: &RegisterError, id: &str, so: &str) {
        let event_type = &self.event_type;
        if matches!(error, RegisterError::Unreachable { .. }) {
            tracing::debug!(%error, id, %event_type, "{so}");
            self.common.register_is_away(asked, error);
        } else if *self.common.doubted.borrow() {
            tracing::debug!(%error, id, %event_type, "{so}");
        } else {
            tracing::warn!(%error, id, %event_type, "{so}");
        }
    }

    /// What cannot be an event goes to dead-letter as it came, with the reason.
    async fn bury(&self, poison: &Poison, incoming: &Incoming) -> Result<(), Closed> {
        let id = incoming.properties.message_id.as_deref();
        tracing::warn!(id, event_type = %self.event_type, routing_key = %incoming.routing_key, "{poison}");
        self.common.tally.poisoned();
        self.publish(Message {
            exchange: self.common.ways.names.dead_letter(),
            routing_key: names::dead_letter_key(&self.event_type),
            properties: wire::encode_poison(incoming, poison, fresh_id),
            body: incoming.body.clone(),
        })
        .await
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

    /// A question that was asked then had no answer: nothing more of the types that ask Redis is consumed until it answers.
    pub(super) fn register_is_away(&self, asked: Instant, error: &RegisterError) {
        self.register_outage.failed(asked, error);
        self.heed_outage();
    }

    /// All of it has answered a ping that was asked then. Says whether it is in reach by that.
    pub(super) fn register_is_there(&self, asked: Instant) -> bool {
        let there = self.register_outage.is_there(asked);
        self.heed_outage();
        there
    }

    /// It did something for an event, as was asked then, and does more than to be there.
    pub(super) fn register_answers(&self, asked: Instant) {
        if *self.doubted.borrow() {
            self.register_outage.answered(asked);
            self.heed_outage();
        }
    }

    /// Looked up while nobody else tells of it: whoever comes last tells what is so.
    fn heed_outage(&self) {
        let heed = |told: &mut bool, now: bool| std::mem::replace(told, now) != now;
        self.doubted.send_if_modified(|doubted| heed(doubted, self.register_outage.lasts()));
        self.away.send_if_modified(|away| heed(away, self.register_outage.is_out_of_reach()));
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
