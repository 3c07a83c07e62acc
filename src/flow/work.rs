//! One delivery's whole way through a worker.

use std::{sync::Arc, time::Duration};

use fail::fail_point;
use tokio::time::{Instant, timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use uuid::Uuid;

use super::{
    claim::{ClaimReply, RunPermit, StartDeadline},
    lane::{Disposition, Lane, RunEnd},
    quiet::{Quiet, for_a_while},
    returned::COPY_LIMIT,
    settle::{self, Unpublished},
    worker::WorkError,
};
use crate::{
    domain::{
        event::Event,
        names,
        register::{self, Renew},
        settlement::{self, Decision, Next, OFTEN, Outcome, Ran, SUSPECT},
        ttl::{roughly, say},
        wire::{self, Incoming, Message, Poison},
        words::plain,
    },
    handler::{HandlerError, Run},
    ports::{Delivery, Receipt},
};

/// How long a handler that was aborted may take to end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How a run ended.
enum RunResult {
    Outcome(Outcome),
    /// It was given back, and no attempt is spent.
    GivenBack,
    /// It has not begun.
    NotStarted,
}

impl Lane {
    /// deliver -> decode -> due? -> claim -> handler -> follow-up -> settle -> acknowledge
    pub(super) async fn work(&self, delivery: Delivery, ended: CancellationToken, until: CancellationToken) {
        let backoff = StartDeadline { deadline: Instant::now() + self.common.topology.ack_timeout / 2, ended, until };
        let Delivery { message, redelivered, mut receipt } = delivery;
        let returns = wire::returns(&message.properties);
        let is_unnamed = redelivered && !wire::has_id(&message.properties);
        let verdict = match self.due(message).await {
            Ok(mut event) if self.spec.register && is_unnamed => match self.republish_with_id(&event).await {
                Some(verdict) => verdict,
                None => self.handle(&mut event, &backoff).await,
            },
            Ok(mut event) if self.spec.register => {
                if returns >= OFTEN {
                    let Some(back) = self.count_anew(&event, returns, receipt).await else { return };
                    receipt = back;
                }
                self.handle(&mut event, &backoff).await
            }
            Ok(event) => {
                if returns >= SUSPECT {
                    let Some(back) = self.work_aside(&event, returns, receipt).await else { return };
                    receipt = back;
                }
                return self.handle_unregistered(event, &backoff, receipt).await;
            }
            Err(verdict) => verdict,
        };
        self.answer(verdict, receipt).await;
    }

    /// The end of a delivery's way.
    pub(super) async fn answer(&self, verdict: Disposition, receipt: Box<dyn Receipt>) {
        match verdict {
            Disposition::Acknowledge => receipt.acknowledge().await,
            Disposition::Reject => receipt.reject().await,
            Disposition::GiveBack => {
                self.common.counters.given_back();
                return receipt.requeue().await;
            }
        }
        fail_point!("work.acknowledged");
    }

    /// The event in a delivery; where it is none, or not due yet, what becomes of the delivery instead.
    pub(super) async fn due(&self, message: Incoming) -> Result<Event, Disposition> {
        fail_point!("work.delivered");
        if wire::is_too_large_to_copy(&message.properties) {
            let id = message.properties.message_id.as_deref();
            tracing::warn!(id, event_type = %self.event_type, routing_key = %plain(&message.routing_key), "its headers leave no room for those of a copy: rejected");
            self.common.counters.poisoned();
            return Err(Disposition::Reject);
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

    async fn handle(&self, event: &mut Event, backoff: &StartDeadline) -> Disposition {
        let mut tries = 0;
        // One copy of each delivery: a broker that is slow to confirm keeps every copy that it was sent.
        let mut copying = None;
        loop {
            let Some((asked, token, turn)) = self.claim_soon(event, backoff).await else {
                return Disposition::GiveBack;
            };
            fail_point!("work.claimed");
            let ClaimReply::Answered(register::Claimed::Run { fence, crashes, stamp }) = asked else {
                // The delivery keeps its place, and no other event from running.
                let RunPermit { permit: _permit, quiet } = turn;
                drop(quiet);
                if asked.is_dropped() {
                    return self.not_run(event, asked).await;
                }
                let event = event.clone();
                let copying = copying.get_or_insert_with(|| Box::pin(async move { self.not_run(&event, asked).await }));
                // While the broker blocks publishers, the reference may become free.
                match timeout(COPY_LIMIT, copying).await {
                    Ok(verdict) => return verdict,
                    Err(_) => continue,
                }
            };
            copying = None;
            event.stamp = stamp;
            // Its turn lasts until it is settled, and not until it is acknowledged, which may wait for others.
            return match self
                .run_and_settle(event, crashes, settle::Claimed { token, fence }, (turn, backoff), &mut tries)
                .await
            {
                RunEnd::Settled => Disposition::Acknowledge,
                RunEnd::Refused => Disposition::Reject,
                // Meanwhile it may have been cancelled or replaced, or its patience may be over.
                RunEnd::NotStarted => continue,
                RunEnd::GivenBack | RunEnd::Again { .. } => Disposition::GiveBack,
            };
        }
    }

    /// Until the event is settled the lease is renewed: a follow-up waits as long as the broker is away, and nobody else
    /// may take the event for abandoned meanwhile. So many tries in place were made before.
    pub(super) async fn run_and_settle(
        &self,
        event: &mut Event,
        crashes: u32,
        claimed: settle::Claimed,
        (turn, backoff): (RunPermit, &StartDeadline),
        tries: &mut u32,
    ) -> RunEnd {
        let lost = CancellationToken::new();
        let renew = Renew {
            subject: event.subject(),
            stamp: event.stamp.clone(),
            token: claimed.token,
            due: event.due(),
            terms: self.terms,
        };
        let too_often = if self.spec.keeps_order() {
            None
        } else {
            let now = self.common.clock.now();
            settlement::crashed(crashes, event.crashes, event.attempts, self.spec.crash_limit, now)
        };
        if crashes > 0 && too_often.is_none() {
            tracing::warn!(id = %plain(&event.id), event_type = %self.event_type, crashes, "its worker died while it ran; it runs again");
        }
        let RunPermit { permit, quiet } = turn;
        let alone = quiet.is_alone();
        let (way, quiet) = tokio::select! {
            settled = self.until_settled(event, too_often, Some(claimed), quiet, &lost, tries) => settled,
            never = self.renew(renew, &lost) => match never {},
        };
        drop(quiet);
        self.end_turn(way, permit, backoff, alone).await
    }

    /// The same without the register, when there is a turn for it. None when the worker stops, or the patience is over.
    pub(super) async fn run_unregistered(
        &self,
        event: &mut Event,
        backoff: &StartDeadline,
        tries: &mut u32,
    ) -> Option<RunEnd> {
        // Its turn lasts until it is settled, and not until it is acknowledged, which may wait for others.
        let RunPermit { permit, quiet } = self.turn(backoff).await?;
        let (way, quiet) = self.until_settled(event, None, None, quiet, &CancellationToken::new(), tries).await;
        drop(quiet);
        Some(self.end_turn(way, permit, backoff, false).await)
    }

    /// Runs it, unless it has crashed too often, and carries out what follows. Nothing is claimed where there is no register.
    ///
    /// What is quiet meanwhile stays so until it is settled, unless that takes long, and is given back: who kills its worker
    /// between the confirm of a dead letter and its settlement makes two of it.
    pub(super) async fn until_settled(
        &self,
        event: &mut Event,
        too_often: Option<Decision>,
        claimed: Option<settle::Claimed>,
        quiet: Quiet,
        lost: &CancellationToken,
        tries: &mut u32,
    ) -> (RunEnd, Option<Quiet>) {
        let decided = match too_often {
            Some(decision) => Ok(decision),
            None => self.until_decided(event, claimed.map(|claimed| claimed.fence), lost, tries).await,
        };
        let (way, quiet) = match decided {
            Ok(decision) => {
                fail_point!("work.handled");
                let carry_out = Box::pin(self.carry_out(event, decision, claimed));
                let (carried_out, quiet) = for_a_while(Some(quiet), carry_out).await;
                match carried_out {
                    Ok(()) => return (RunEnd::Settled, quiet),
                    Err(Unpublished::Closed) => (RunEnd::GivenBack, quiet),
                    Err(Unpublished::TooLarge) => (RunEnd::Refused, quiet),
                }
            }
            Err(way) => (way, Some(quiet)),
        };
        if let Some(claimed) = claimed {
            self.release(event, &event.stamp, claimed.token).await;
        }
        if matches!(way, RunEnd::Refused) {
            fail_point!("work.released");
        }
        (way, quiet)
    }

    /// Runs it, in place again and again where the type says so. Where nothing is decided by that, how its turn ended. A round
    /// goes on in the next turn where there was no room for one of its tries.
    async fn until_decided(
        &self,
        event: &mut Event,
        fence: Option<i64>,
        lost: &CancellationToken,
        tries: &mut u32,
    ) -> Result<Decision, RunEnd> {
        loop {
            let mut outcome = match self.run(event, fence, lost).await {
                RunResult::Outcome(outcome) => outcome,
                RunResult::GivenBack => return Err(RunEnd::GivenBack),
                RunResult::NotStarted => return Err(RunEnd::NotStarted),
            };
            self.common.counters.ran(&outcome);
            let horizon = self.common.topology.ladder.longest();
            if let Some(after) = settlement::bound(&mut outcome, horizon) {
                let (id, event_type) = (plain(&event.id), &self.event_type);
                tracing::warn!(%id, %event_type, "the handler asked for a retry in {}, which is beyond the ladder's horizon; it is tried again in {}", roughly(after), roughly(horizon));
            }
            if let Some(wait) = settlement::beyond(&outcome, self.common.clock.now(), horizon) {
                let (id, event_type) = (plain(&event.id), &self.event_type);
                tracing::warn!(%id, %event_type, "the handler put the event off by {}, which is beyond the ladder's horizon of {}; it keeps its date", roughly(wait), roughly(horizon));
            }
            if let Outcome::Discard { reason } = &outcome {
                let reason = settlement::one_line(reason);
                tracing::info!(id = %plain(&event.id), event_type = %self.event_type, %reason, "discarded");
            }
            let ran = Ran { id: &event.id, attempts: event.attempts, tries: *tries, now: self.common.clock.now() };
            let (after, failed) = match settlement::decide(outcome, ran, self.spec.on_failure, &self.spec.retry) {
                Next::Settle(decision) => return Ok(decision),
                Next::Again { after, failed } => (after, failed),
            };
            self.common.counters.retried();
            event.fail(failed);
            // Who keeps order begins anew with each try: meanwhile the event may be cancelled or replaced.
            if self.spec.keeps_order() {
                return Err(RunEnd::Again { after });
            }
            tracing::debug!(id = %plain(&event.id), reason = event.reason, "tried again in {}", roughly(after));
            if self.common.give_back.run_until_cancelled(tokio::time::sleep(after)).await.is_none() {
                return Err(RunEnd::GivenBack);
            }
            *tries += 1;
        }
    }

    async fn run(&self, event: &Event, fence: Option<i64>, lost: &CancellationToken) -> RunResult {
        // What the handler has left running elsewhere, in a thread, hears that its run is over.
        let lost = lost.child_token();
        let over = lost.clone().drop_guard();
        let run = Run { event: event.clone(), fence, lost };
        let (handler, cramped) = (Arc::clone(&self.handler), self.cramped.times());
        // A task of its own: a panic ends it and not the worker, and it ends with this one.
        let mut running = AbortOnDropHandle::new(tokio::spawn(async move { handler.handle(run).await }));
        let ended = tokio::select! {
            // What has ended at the last moment has ended.
            biased;
            ended = &mut running => match ended {
                Ok(Ok(outcome)) => RunResult::Outcome(outcome),
                Ok(Err(HandlerError::Failed(reason))) => RunResult::Outcome(Outcome::Retry { reason, after: None }),
                Ok(Err(HandlerError::CannotStart(reason))) => {
                    let reason = format!("the handler of {} cannot be started: {reason}", self.event_type);
                    self.common.fail(WorkError::Handler(reason));
                    RunResult::GivenBack
                }
                Ok(Err(HandlerError::NoRoom(reason))) => {
                    self.log_no_room(&reason);
                    return RunResult::NotStarted;
                }
                Err(panic) => {
                    let reason = format!("panic: {}", panic_text(panic));
                    RunResult::Outcome(Outcome::Retry { reason, after: None })
                }
            },
            () = tokio::time::sleep(self.spec.handler_timeout) => {
                let reason = format!("no answer within handler-timeout ({})", say(self.spec.handler_timeout));
                RunResult::Outcome(Outcome::Retry { reason, after: None })
            }
            () = self.common.give_back.cancelled() => RunResult::GivenBack,
        };
        if matches!(ended, RunResult::Outcome(_)) {
            self.log_room(cramped);
        }
        if !running.is_finished() {
            // What it holds is let go of before the next run may want it. Code that does not await hears of it no sooner.
            drop(over);
            running.abort();
            if tokio::time::timeout(LAST_WORDS, running).await.is_err() {
                tracing::warn!(id = %plain(&event.id), event_type = %self.event_type, "the handler does not end");
            }
        }
        ended
    }

    /// What cannot be an event goes to dead-letter as it came, with the reason.
    async fn bury(&self, poison: &Poison, incoming: &Incoming) -> Result<(), Unpublished> {
        let id = incoming.properties.message_id.as_deref();
        tracing::warn!(id, event_type = %self.event_type, routing_key = %plain(&incoming.routing_key), "{poison}");
        self.common.counters.poisoned();
        let message = Message {
            exchange: self.common.routes.names.dead_letter(),
            routing_key: names::dead_letter_key(&self.event_type),
            properties: wire::encode_poison(incoming, poison, self.common.clock.now(), fresh_id),
            body: incoming.body.clone(),
        };
        self.publish(|| message.clone()).await
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
