//! One run of a handler, and the decision that follows from it.

use std::{any::Any, ops::ControlFlow, panic::AssertUnwindSafe, sync::Arc, time::Duration};

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
        transition::{Then, Transition},
        ttl::{roughly, say},
        words::plain,
    },
    handler::Run,
    trace,
};

impl Lane {
    /// Runs the handler once, and decides what follows. The run started at `started`.
    pub(super) async fn run(&self, claimed: &mut Claimed, started: Instant) -> Result<Decision, NotSettled> {
        let schedule = match self.admit(claimed).await? {
            ControlFlow::Continue(state) => state,
            ControlFlow::Break(decision) => return Ok(decision),
        };
        let outcome = self.execute(claimed).await?;
        let took = started.elapsed();
        claimed.took = Some(took);
        let ran = match self.decide(claimed.event(), outcome, claimed.tries()) {
            Next::Settle(decision) => Ok(decision),
            Next::Again { after, failed } => {
                let failure = self.fails_here(&failed, claimed.tries(), took, after);
                self.tell(claimed.event(), &failure);
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
                Ok(decision) if decision.is_finish() => {
                    self.end_scheduled(claimed.event(), decision, schedule).await.map_err(NotSettled::Answer)?;
                }
                Err(NotSettled::Again(after)) => {
                    self.note_wait(link, *after, schedule).await.map_err(NotSettled::Answer)?;
                }
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
        let run = Run { event: Arc::clone(claimed.event()), fence, lost, clock: Some(Arc::clone(&self.common.clock)) };
        let is_first = run.event.attempts == 0 && claimed.tries() == 0;
        let span = trace::run(&self.common.traces, &run.event, claimed.tries());
        self.tell(&run.event, &Transition::Started);
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

    /// Decides what follows a run.
    fn decide(&self, event: &Event, mut outcome: Outcome, tries: u32) -> Next {
        let (id, event_type) = (&event.id, &self.event_type);
        let horizon = self.common.topology.ladder.longest();
        if let Some(after) = settlement::bound(&mut outcome, horizon) {
            tracing::warn!(id = %plain(id), %event_type, "the handler asked for a retry in {}, which is beyond the ladder's horizon; the event is retried in {}", roughly(after), roughly(horizon));
        }
        let now = self.common.clock.now();
        if let Some(wait) = settlement::beyond(&outcome, now, horizon) {
            tracing::warn!(id = %plain(id), %event_type, "the handler put the event off by {}, which is beyond the ladder's horizon of {}; the event keeps its date", roughly(wait), roughly(horizon));
        }
        let ran = Ran { id, attempts: event.attempts, tries, now };
        settlement::decide(outcome, ran, self.spec.on_failure, &self.spec.retry)
    }

    /// Returns the failure of a run after which the event runs again in this worker.
    fn fails_here(&self, failed: &Failed, tries: u32, took: Duration, after: Duration) -> Transition {
        let blocks = self.spec.keeps_order();
        Transition::Failed {
            // An attempt in place counts once its last try has failed.
            attempt: if blocks { failed.attempts } else { failed.attempts.saturating_add(1) },
            max_attempts: self.spec.retry.max_attempts,
            error: failed.error().to_owned(),
            took,
            then: if blocks { Then::Block { after } } else { Then::InPlace { tried: tries.saturating_add(1), after } },
        }
    }
}

fn text(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or_else(|_| "no message".to_owned(), |text| (*text).to_owned()),
    }
}
