//! One run of a handler, and the decision that follows from it.

use std::{any::Any, ops::ControlFlow, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::time::{Instant, timeout};
use tracing::Instrument as _;

use super::{
    isolation::A_WHILE,
    lane::Lane,
    stage::{Claimed, Disposition, NotSettled},
};
use crate::{
    domain::{
        event::Event,
        reason::cut_reason,
        settlement::{self, Decision, Finish, Next, Outcome, Ran},
        time,
        transition::{Then, Transition},
        ttl::{roughly, say},
        words::plain,
    },
    trace,
};

/// How long a cancelled run may take to end. Then its future is dropped, as at `handler-timeout`.
const GRACE: Duration = Duration::from_secs(5);

/// The end of an event that was cancelled since it was claimed: nothing of its outcome is carried out.
const CANCELLED: Decision = Decision::Finish(Finish::Cancelled);

impl Lane {
    /// Runs the handler once, and decides what follows. The run started at `started`.
    pub(super) async fn run(self: &Arc<Self>, claimed: &mut Claimed, started: Instant) -> Result<Decision, NotSettled> {
        if !self.lets_run(claimed) {
            return Err(NotSettled::Held);
        }
        if self.chain_link(claimed.event()).is_some() {
            // The run has a permit, which it must not hold for as long as Redis or the broker is away. The next try repeats the
            // admission, as after a crash.
            let admitted = timeout(A_WHILE, Box::pin(self.admit(claimed))).await;
            match admitted.unwrap_or(Err(NotSettled::Held))? {
                ControlFlow::Continue(state) => claimed.schedule = state.map(Box::new),
                ControlFlow::Break(decision) => return Ok(decision),
            }
            // The type may have been paused meanwhile.
            if self.switch.is_off() {
                return Err(NotSettled::Held);
            }
        }
        let outcome = self.execute(claimed).await?;
        let took = started.elapsed();
        claimed.took = Some(took);
        let Some(outcome) = outcome else { return Ok(CANCELLED) };
        let error = match &outcome {
            Outcome::Retry { reason, .. } if claimed.ticket.is_some() => Some(settlement::one_line(reason)),
            _ => None,
        };
        let next = self.decide(claimed.event(), outcome, claimed.tries());
        // A round of tries in place is one run, and an unavailable handler tells nothing.
        let is_over = match &next {
            Next::Settle(_) => true,
            Next::Again { .. } => self.spec.keeps_order(),
            Next::Wait { .. } => false,
        };
        if let Some(ticket) = claimed.ticket.take_if(|_| is_over) {
            ticket.end(error.as_deref());
        }
        let ran = match next {
            Next::Settle(decision) => Ok(decision),
            Next::Again { after, failed } => {
                let tried = claimed.tries().saturating_add(1);
                let then = if self.spec.keeps_order() { Then::Block { after } } else { Then::InPlace { tried, after } };
                let failure = Transition::failed(&failed, took, self.spec.retry.max_attempts, then);
                self.common.journal.tell(&self.counters, claimed.event(), &failure);
                claimed.fail(failed);
                Err(NotSettled::Again(after))
            }
            Next::Wait { reason } => {
                self.health.unavailable(cut_reason(&reason));
                return Err(NotSettled::Unavailable);
            }
        };
        self.health.available(started);
        if let Err(NotSettled::Again(after)) = ran {
            let last = claimed.schedule.take().map(|state| *state);
            if let Some(link) = self.chain_link(claimed.event()) {
                // The next try notes its start, so nothing is lost if this waits for Redis for too long.
                let noted = timeout(A_WHILE, self.note_wait(link, after, last)).await;
                noted.unwrap_or(Ok(())).map_err(NotSettled::Answer)?;
            }
        }
        ran
    }

    /// Whether the circuit breaker lets the event run.
    pub(super) fn lets_run(&self, claimed: &mut Claimed) -> bool {
        let Some(breaker) = &self.breaker else { return true };
        if claimed.ticket.is_none() {
            claimed.ticket = breaker.start();
        }
        claimed.ticket.is_some()
    }

    /// Waits, then runs again; `GiveBack` if the drain limit comes first.
    pub(super) async fn run_after(
        self: &Arc<Self>,
        pause: Duration,
        claimed: &mut Claimed,
    ) -> Result<Decision, NotSettled> {
        tokio::select! {
            biased;
            () = self.common.give_back.cancelled() => Err(NotSettled::Answer(Disposition::GiveBack)),
            () = claimed.cancelled_between_runs() => Ok(CANCELLED),
            () = tokio::time::sleep(pause) => self.run(claimed, self.health.starts()).await,
        }
    }

    /// Runs the handler. `None` if the event was cancelled meanwhile.
    async fn execute(&self, claimed: &mut Claimed) -> Result<Option<Outcome>, NotSettled> {
        let run = claimed.begin_run(&self.common.clock);
        let lost = run.lost.clone();
        // Tells code that the handler has left running elsewhere, in a thread, that its run is over.
        let _over = lost.clone().drop_guard();
        // A retry is late on purpose, and so is an event that a person has sent again.
        let is_timed = run.event.attempts == 0 && claimed.tries() == 0 && !run.event.by_hand;
        let late = is_timed.then(|| time::until(run.event.due(), self.common.clock.shared()));
        let span = trace::run(&self.common.traces, &run.event, claimed.tries());
        self.common.journal.tell(&self.counters, &run.event, &Transition::Started);
        let running = self.meters.start(late);
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
            () = async { claimed.cancelled(&lost).await; tokio::time::sleep(GRACE).await } => {
                Ok(Outcome::retry(format_args!("no end within {} of a cancel", say(GRACE))))
            }
        };
        let outcome = outcome?;
        let outcome = (!claimed.is_cancelled()).then_some(outcome);
        running.ended();
        trace::ended(&span, outcome.as_ref());
        Ok(outcome)
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
}

fn text(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or_else(|_| "no message".to_owned(), |text| (*text).to_owned()),
    }
}
