//! One run of a handler, and the decision that follows from it.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    lane::Lane,
    stage::{Claimed, Disposition, NotSettled},
};
use crate::{
    domain::{
        event::Event,
        reason::cut_reason,
        settlement::{self, Decision, Failed, Next, Outcome, Ran},
        ttl::{roughly, say},
        words::plain,
    },
    handler::Run,
    trace,
};

impl Lane {
    /// Runs the handler once, and decides what follows. The run started at `started`.
    pub(super) async fn run(&self, claimed: &mut Claimed, started: Instant) -> Result<Decision, NotSettled> {
        if let Some(decision) = self.admit(claimed).await? {
            return Ok(decision);
        }
        let outcome = self.execute(claimed).await?;
        let ran = match self.decide(claimed.event(), outcome, claimed.tries(), started) {
            Next::Settle(decision) => Ok(decision),
            Next::Again { after, failed } => {
                claimed.fail(failed);
                Err(NotSettled::Again(after))
            }
            Next::Wait { reason } => {
                self.health.unavailable(cut_reason(&reason));
                return Err(NotSettled::Unavailable);
            }
        };
        self.health.available(started);
        if let Some(link) = self.chain_link(claimed.event()) {
            match &ran {
                // Any other decision has a follow-up, which notes the end.
                Ok(Decision::Finish) => {
                    self.end_scheduled(claimed.event(), &Decision::Finish).await.map_err(NotSettled::Answer)?;
                }
                Err(NotSettled::Again(after)) => self.note_wait(link, *after).await.map_err(NotSettled::Answer)?,
                Ok(_) | Err(_) => {}
            }
        }
        ran
    }

    /// Waits, then runs again; `GiveBack` if the drain limit comes first.
    pub(super) async fn run_after(&self, pause: Duration, claimed: &mut Claimed) -> Result<Decision, NotSettled> {
        match self.common.give_back.run_until_cancelled(tokio::time::sleep(pause)).await {
            Some(()) => self.run(claimed, self.health.starts()).await,
            None => Err(NotSettled::Answer(Disposition::GiveBack)),
        }
    }

    async fn execute(&self, claimed: &Claimed) -> Result<Outcome, NotSettled> {
        let (fence, lost) = claimed.begin_run();
        // Tells code that the handler has left running elsewhere, in a thread, that its run is over.
        let _over = lost.clone().drop_guard();
        let run = Run { event: Arc::clone(claimed.event()), fence, lost };
        let is_first = run.event.attempts == 0 && claimed.tries() == 0;
        let span = trace::run(&self.common.traces, &run.event, claimed.tries());
        let running = self.meters.start(&run.event, is_first, &*self.common.clock);
        // A panic ends the run, and not the worker.
        let handling =
            AssertUnwindSafe(async { self.handler.handle(run).await }).catch_unwind().instrument(span.clone());
        let outcome = tokio::select! {
            // A handler that ends at the last moment has ended.
            biased;
            ended = handling => match ended {
                Ok(outcome) => Ok(outcome),
                Err(panic) => Ok(Outcome::retry(format_args!("panic: {}", text(panic)))),
            },
            () = tokio::time::sleep(self.spec.handler_timeout) => {
                Ok(Outcome::retry(format_args!("no answer within handler-timeout ({})", say(self.spec.handler_timeout))))
            }
            () = self.common.give_back.cancelled() => Err(NotSettled::Answer(Disposition::GiveBack)),
        };
        if let Ok(outcome) = &outcome {
            running.ended();
            trace::ended(&span, outcome);
        }
        outcome
    }

    /// Decides what follows a run, and logs and counts it.
    fn decide(&self, event: &Event, mut outcome: Outcome, tries: u32, started: Instant) -> Next {
        let (id, event_type) = (&event.id, &self.event_type);
        self.counters.ran(&outcome);
        let horizon = self.common.topology.ladder.longest();
        if let Some(after) = settlement::bound(&mut outcome, horizon) {
            tracing::warn!(id = %plain(id), %event_type, "the handler asked for a retry in {}, which is beyond the ladder's horizon; the event is retried in {}", roughly(after), roughly(horizon));
        }
        let now = self.common.clock.now();
        if let Some(wait) = settlement::beyond(&outcome, now, horizon) {
            tracing::warn!(id = %plain(id), %event_type, "the handler put the event off by {}, which is beyond the ladder's horizon of {}; the event keeps its date", roughly(wait), roughly(horizon));
        }
        // Thousands of events a second succeed: nothing is formatted for a level that is off.
        match &outcome {
            Outcome::Done => {
                tracing::debug!(%event_type, id = %plain(id), "in" = %roughly(started.elapsed()), "done");
            }
            Outcome::Requeue { at, reason } => {
                let reason = settlement::one_line(reason);
                tracing::debug!(%event_type, id = %plain(id), "in" = %roughly(started.elapsed()), "requeued for {at}: {reason}");
            }
            Outcome::Discard { reason } => {
                let reason = settlement::one_line(reason);
                tracing::info!(%event_type, id = %plain(id), "in" = %roughly(started.elapsed()), "discarded by its handler: {reason}");
            }
            Outcome::Retry { .. } | Outcome::DeadLetter { .. } | Outcome::Unavailable { .. } => {}
        }
        let ran = Ran { id, attempts: event.attempts, tries, now };
        let next = settlement::decide(outcome, ran, self.spec.on_failure, &self.spec.retry);
        if let Next::Again { .. } = &next {
            self.counters.retried();
        }
        self.log_failure(event, &next, tries, started);
        next
    }

    /// Logs a run that has failed: how often so far, what follows, and what failed. Nothing is formatted for a level that is off.
    fn log_failure(&self, event: &Event, next: &Next, tries: u32, started: Instant) {
        let (event_type, id, most) = (&self.event_type, &event.id, self.spec.retry.max_attempts);
        let (after, failed) = match next {
            Next::Settle(Decision::Retry { ttl, failed }) => (ttl.as_duration(), failed),
            Next::Settle(Decision::RetryAfter { after, failed }) | Next::Again { after, failed } => (*after, failed),
            Next::Settle(Decision::DeadLetter(failed)) => return self.log_dead_letter(event, failed, Some(started)),
            Next::Settle(Decision::Drop { reason }) => {
                return tracing::warn!(%event_type, id = %plain(id), "in" = %roughly(started.elapsed()), "event dropped after a failure: {reason}");
            }
            Next::Settle(Decision::Finish | Decision::Requeue { .. }) | Next::Wait { .. } => return,
        };
        let (attempt, error) = (failed.attempts, failed.error());
        match next {
            Next::Again { .. } if self.spec.keeps_order() => {
                tracing::warn!(%event_type, id = %plain(id), "in" = %roughly(started.elapsed()), "attempt {attempt} failed, trying again in {}; the events behind it wait: {error}", roughly(after));
            }
            // The attempt ends with its last try.
            Next::Again { .. } => {
                tracing::info!(%event_type, id = %plain(id), "in" = %roughly(started.elapsed()), "try {} of attempt {} failed, trying again in {}: {error}", tries.saturating_add(1), attempt.saturating_add(1), roughly(after));
            }
            _ => {
                tracing::info!(%event_type, id = %plain(id), "in" = %roughly(started.elapsed()), "attempt {attempt} of {most} failed, retrying in {}: {error}", roughly(after));
            }
        }
    }

    /// Logs an event that goes to dead-letter: after a run that started at `started`, or without one.
    pub(super) fn log_dead_letter(&self, event: &Event, failed: &Failed, started: Option<Instant>) {
        let took = started.map(|started| tracing::field::display(roughly(started.elapsed())));
        tracing::warn!(event_type = %self.event_type, id = %plain(&event.id), "in" = took, "event dead-lettered: {}", failed.reason);
    }
}

fn text(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or_else(|_| "no message".to_owned(), |text| (*text).to_owned()),
    }
}
