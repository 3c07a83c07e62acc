//! One run of a handler, and the decision that follows from it.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::{builder::WorkError, lane::Lane, stage::Claimed};
use crate::{
    domain::{
        event::Event,
        settlement::{self, Next, Outcome, Ran},
        ttl::{roughly, say},
        words::plain,
    },
    handler::{HandlerError, Run},
};

/// How a run ended.
pub(super) enum RunResult {
    /// The handler has answered, failed, panicked or reached its time limit.
    Outcome(Outcome),
    /// The run was ended by the worker's stop, or could not be started at all. No attempt is spent.
    GivenBack,
    /// The machine had no room for the handler, for this reason. No attempt is spent.
    NoRoom(String),
}

impl Lane {
    /// Runs the handler once.
    pub(super) async fn execute(&self, claimed: &Claimed) -> RunResult {
        let (fence, lost) = match &claimed.lease {
            Some(lease) => (Some(lease.fence), lease.begin_run()),
            None => (None, CancellationToken::new()),
        };
        // Tells code that the handler has left running elsewhere, in a thread, that its run is over.
        let _over = lost.clone().drop_guard();
        let run = Run { event: Arc::clone(&claimed.work.event), fence, lost };
        // A panic ends the run, and not the worker.
        let handling = AssertUnwindSafe(async { self.handler.handle(run).await }).catch_unwind();
        tokio::select! {
            // A handler that ends at the last moment has ended.
            biased;
            ended = handling => match ended {
                Ok(Ok(outcome)) => RunResult::Outcome(outcome),
                Ok(Err(HandlerError::Failed(reason))) => failed(reason),
                Ok(Err(HandlerError::NoRoom(reason))) => RunResult::NoRoom(reason),
                Ok(Err(HandlerError::CannotStart(reason))) => {
                    let reason = format!("the handler of {} cannot be started: {reason}", self.event_type);
                    self.common.fail(WorkError::Handler(reason));
                    RunResult::GivenBack
                }
                Err(panic) => failed(format!("panic: {}", text(panic))),
            },
            () = tokio::time::sleep(self.spec.handler_timeout) => {
                failed(format!("no answer within handler-timeout ({})", say(self.spec.handler_timeout)))
            }
            () = self.common.give_back.cancelled() => RunResult::GivenBack,
        }
    }

    /// Decides what follows a run, and logs and counts what a person has to know of it.
    pub(super) fn decide(&self, event: &Event, mut outcome: Outcome, tries: u32) -> Next {
        let (id, event_type) = (&event.id, &self.event_type);
        self.common.counters.ran(&outcome);
        let horizon = self.common.topology.ladder.longest();
        if let Some(after) = settlement::bound(&mut outcome, horizon) {
            tracing::warn!(id = %plain(id), %event_type, "the handler asked for a retry in {}, which is beyond the ladder's horizon; it is tried again in {}", roughly(after), roughly(horizon));
        }
        let now = self.common.clock.now();
        if let Some(wait) = settlement::beyond(&outcome, now, horizon) {
            tracing::warn!(id = %plain(id), %event_type, "the handler put the event off by {}, which is beyond the ladder's horizon of {}; it keeps its date", roughly(wait), roughly(horizon));
        }
        if let Outcome::Discard { reason } = &outcome {
            let reason = settlement::one_line(reason);
            tracing::info!(id = %plain(id), %event_type, %reason, "discarded");
        }
        let ran = Ran { id, attempts: event.attempts, tries, now };
        let next = settlement::decide(outcome, ran, self.spec.on_failure, &self.spec.retry);
        if let Next::Again { after, failed } = &next {
            self.common.counters.retried();
            tracing::debug!(id = %plain(id), reason = failed.reason, "tried again in {}", roughly(*after));
        }
        next
    }
}

fn failed(reason: String) -> RunResult {
    RunResult::Outcome(Outcome::Retry { reason, after: None })
}

fn text(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or_else(|_| "no message".to_owned(), |text| (*text).to_owned()),
    }
}
