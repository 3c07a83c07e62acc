//! Types with `register: off`: what may have killed its worker is put aside, and runs there by itself. All but those that
//! keep order, which put nothing aside.
//!
//! No register knows what ran when a worker died, and RabbitMQ counts the death against everything that the worker held.
//! So who has come back twice is a suspect and not a culprit. It is published to the aside queue, where it is counted
//! anew, and there it is taken one at a time while the worker holds nothing else that could be counted: the innocent ones
//! run through, and the culprit alone comes back again.
//!
//! A worker does one or the other, for all such types together: it consumes their processing queues, or it empties their
//! aside queues. In between it finishes what it holds. (Measured: doing both by turns, with deliveries prefetched
//! meanwhile, convicts the neighbours all the same.)

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use tokio::task::JoinSet;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{
    claim::StartDeadline,
    common::Common,
    end_turn::PAUSE,
    lane::{Disposition, Lane, RunEnd},
    quiet::{Quiet, for_a_while},
};
use crate::{
    domain::{
        event::Event,
        settlement::{crashed_alone, suspect},
        wire,
        words::plain,
    },
    flow::worker::WorkError,
    ports::{BrokerError, Delivery, Receipt},
};

/// How long a worker that puts nothing aside itself waits at least until it looks for what another one has left there, and
/// how much longer at most.
const LOOK: Duration = Duration::from_secs(5);
const LOOK_LONGER: Duration = Duration::from_secs(10);

/// How long until the next look. All workers see one and the same event, and each that sees it pauses: so they look at
/// times of their own, and the first one has taken it when the others look.
fn look() -> Duration {
    let (_, random) = Uuid::now_v7().as_u64_pair();
    LOOK + LOOK_LONGER * u32::try_from(random % 1_000).unwrap_or_default() / 1_000
}

/// Consumes these types, all of which put aside what may have killed its worker, until the worker stops.
pub(super) async fn consume(common: &Common, lanes: &[Arc<Lane>], tracker: &TaskTracker) {
    while !common.stop.is_cancelled() {
        for lane in lanes {
            lane.empty_aside(tracker).await;
        }
        let over = common.stop.child_token();
        let mut consuming = JoinSet::new();
        for lane in lanes {
            consuming.spawn(Arc::clone(lane).consume(tracker.clone(), over.clone()));
        }
        until_something_is_aside(common, lanes, &over).await;
        over.cancel();
        while consuming.join_next().await.is_some() {}
    }
}

async fn until_something_is_aside(common: &Common, lanes: &[Arc<Lane>], over: &CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = over.cancelled() => return,
            () = common.suspects.notified() => return,
            () = tokio::time::sleep(look()) => {}
        }
        for lane in lanes {
            if lane.is_anything_aside().await {
                return;
            }
        }
    }
}

impl Lane {
    /// A suspect from the processing queue. The receipt comes back where the broker has not confirmed its copy in time: then it
    /// runs beside others, which RabbitMQ counts no differently, for it counts a death against all that the worker holds.
    pub(super) async fn work_aside(
        &self,
        event: &Event,
        returns: u32,
        receipt: Box<dyn Receipt>,
    ) -> Option<Box<dyn Receipt>> {
        tracing::warn!(id = %plain(&event.id), event_type = %self.event_type, returns, "put aside, for its worker may have died while it ran");
        let copy = Event { crashes: 0, reason: Some(suspect(returns)), ..event.clone() };
        let publishing = async {
            self.put_aside(&copy).await?;
            self.common.counters.put_aside();
            self.common.suspects.notify_one();
            Ok(())
        };
        self.move_on(publishing, receipt).await
    }

    /// From the processing queue, and no suspect.
    pub(super) async fn handle_unregistered(
        &self,
        mut event: Event,
        backoff: &StartDeadline,
        receipt: Box<dyn Receipt>,
    ) {
        let mut tries = 0;
        let verdict = loop {
            match self.run_unregistered(&mut event, backoff, &mut tries).await {
                Some(RunEnd::Settled) => break Disposition::Acknowledge,
                Some(RunEnd::Refused) => break Disposition::Reject,
                // What is aside waits until nothing is held of this type, and all others with it. As a copy: before RabbitMQ 4.3
                // what is given back counts like a crash. One copy alone: a broker that is slow to confirm keeps all of them.
                Some(RunEnd::NotStarted) if backoff.until.is_cancelled() && !self.common.stop.is_cancelled() => {
                    let Some(back) = self.move_on(self.send_on(&event, PAUSE), receipt).await else { return };
                    return self.answer(Disposition::GiveBack, back).await;
                }
                Some(RunEnd::NotStarted) => {}
                Some(RunEnd::GivenBack | RunEnd::Again { .. }) | None => break Disposition::GiveBack,
            }
        };
        self.answer(verdict, receipt).await;
    }

    /// Runs what is aside, one at a time and nothing else beside it, until there is no more, or no room to run it: then it
    /// waits for the next look, and nothing waits for it. Looked at first, because another worker may have taken it while
    /// this one finished what it held: nothing has to be quiet for that.
    async fn empty_aside(&self, tracker: &TaskTracker) {
        while self.is_anything_aside().await {
            let alone = self.common.quiet.alone();
            let Some(quiet) = self.common.stop.run_until_cancelled(alone).await else { return };
            // Whoever waits until nothing is worked on waits for this too.
            let _worked_on = tracker.token();
            // Only now: a neighbour that kills the process before this one runs must not be counted against it.
            match self.common.broker.take(&self.aside()).await {
                Ok(Some(delivery)) => {
                    if self.work_alone(delivery, quiet).await.is_break() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error @ (BrokerError::Refused { .. } | BrokerError::Rejected { .. } | BrokerError::Closed)) => {
                    return self.common.fail(WorkError::Broker(error));
                }
                Err(error) => return tracing::warn!(%error, "what is aside waits"),
            }
        }
    }

    /// From the aside queue. No more of it where there was no room for this one. Nothing else runs until it is acknowledged,
    /// unless it has run and what follows takes long.
    async fn work_alone(&self, delivery: Delivery, quiet: Quiet) -> ControlFlow<()> {
        self.common.counters.delivered();
        let Delivery { message, receipt, .. } = delivery;
        let returns = wire::returns(&message.properties);
        let (verdict, next, quiet) = match for_a_while(Some(quiet), self.due(message)).await {
            (Ok(event), Some(quiet)) => self.handle_alone(event, returns, quiet).await,
            (Ok(_), None) => (Disposition::GiveBack, ControlFlow::Continue(()), None),
            (Err(verdict), quiet) => (verdict, ControlFlow::Continue(()), quiet),
        };
        self.answer(verdict, receipt).await;
        drop(quiet);
        next
    }

    async fn handle_alone(
        &self,
        mut event: Event,
        returns: u32,
        quiet: Quiet,
    ) -> (Disposition, ControlFlow<()>, Option<Quiet>) {
        let deaths = event.crashes.saturating_add(returns);
        let too_often = crashed_alone(deaths, event.attempts, self.spec.crash_limit, self.common.clock.now());
        // What the tries in place leave there is no reason to be aside.
        let reason = event.reason.clone();
        let (way, quiet) =
            self.until_settled(&mut event, too_often, None, quiet, &CancellationToken::new(), &mut 0).await;
        let next = if matches!(way, RunEnd::NotStarted) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        match way {
            RunEnd::Settled => (Disposition::Acknowledge, next, quiet),
            RunEnd::Refused => (Disposition::Reject, next, quiet),
            RunEnd::GivenBack | RunEnd::NotStarted | RunEnd::Again { .. } => {
                // As a copy: before RabbitMQ 4.3 what is given back counts like a crash.
                self.common.counters.given_back();
                let copy = Event { crashes: deaths, reason, ..event };
                let (published, quiet) = for_a_while(quiet, self.put_aside(&copy)).await;
                (published.into(), next, quiet)
            }
        }
    }

    async fn is_anything_aside(&self) -> bool {
        if self.common.stop.is_cancelled() {
            return false;
        }
        match self.common.broker.ready(&self.aside()).await {
            Ok(ready) => ready > 0,
            Err(error) => {
                tracing::debug!(%error, "cannot tell whether {} is empty", self.aside());
                false
            }
        }
    }

    fn aside(&self) -> String {
        self.common.routes.names.put_aside(&self.event_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_look_at_times_of_their_own() {
        let looks: Vec<_> = (0..100).map(|_| look()).collect();
        let (first, last) = (looks.iter().min().expect("some"), looks.iter().max().expect("some"));
        assert!(*first >= LOOK && *last < LOOK + LOOK_LONGER, "{looks:?}");
        assert!(*last > *first + LOOK_LONGER / 2, "{looks:?}");
    }
}
