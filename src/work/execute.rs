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
        settlement::{self, Decision, Next, Outcome, Ran},
        ttl::{roughly, say},
        words::plain,
    },
    handler::Run,
    trace,
};

impl Lane {
    /// Runs the handler once, and decides what follows. The run started at `started`.
    pub(super) async fn run(&self, claimed: &mut Claimed, started: Instant) -> Result<Decision, NotSettled> {
        let outcome = self.execute(claimed).await?;
        let ran = match self.decide(claimed.event(), outcome, claimed.tries()) {
            Next::Settle(decision) => Ok(decision),
            Next::Again { after, failed } => {
                claimed.fail(failed);
                Err(NotSettled::Again(after))
            }
            Next::Wait { reason } => {
                self.health.unavailable(&reason);
                return Err(NotSettled::Unavailable);
            }
        };
        self.health.available(started);
        ran
    }

    /// The same after a pause. The drain limit ends the pause.
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

    /// Decides what follows a run, and logs and counts what a person has to know of it.
    fn decide(&self, event: &Event, mut outcome: Outcome, tries: u32) -> Next {
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
        if let Outcome::Discard { reason } = &outcome {
            let reason = settlement::one_line(reason);
            tracing::info!(id = %plain(id), %event_type, %reason, "event discarded by its handler");
        }
        let ran = Ran { id, attempts: event.attempts, tries, now };
        let next = settlement::decide(outcome, ran, self.spec.on_failure, &self.spec.retry);
        if let Next::Again { after, failed } = &next {
            self.counters.retried();
            tracing::debug!(id = %plain(id), reason = failed.reason, "event runs again in place in {}", roughly(*after));
        }
        next
    }
}

fn text(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or_else(|_| "no message".to_owned(), |text| (*text).to_owned()),
    }
}
