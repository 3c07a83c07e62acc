//! The loop's runs: starts handlers, and takes their ends and the ends of detours.

use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::task::{JoinError, unconstrained};

use super::Loop;
use crate::{
    domain::settlement::Decision,
    work::{
        isolation::for_a_while,
        stage::{Claimed, Detour, NotSettled, Ran},
    },
};

impl Loop {
    /// Starts a handler.
    pub(super) fn start(&mut self, mut claimed: Claimed) {
        let (lane, started) = (Arc::clone(&self.lane), self.lane.health.starts());
        let run = async move {
            let ran = lane.run(&mut claimed, started).await;
            (claimed, ran)
        };
        if !self.lane.inline {
            self.running.spawn(run);
            return;
        }
        // The task's budget must not end here: what is not ready by then would be polled again for nothing.
        let mut run = Box::pin(run);
        match unconstrained(&mut run).now_or_never() {
            Some(ran) => self.ran(Ok(ran)),
            None => drop(self.running.spawn(run)),
        }
    }

    /// Takes the end of a run.
    pub(super) fn ran(&mut self, ran: Result<Ran, JoinError>) {
        let (mut claimed, ran) = match ran {
            Ok(ran) => ran,
            // The delivery is not answered: the broker delivers it again.
            Err(error) => {
                return tracing::error!(%error, event_type = %self.lane.event_type, "a run has ended without a result");
            }
        };
        let lane = Arc::clone(&self.lane);
        match ran {
            Ok(decision) => self.carry_out(claimed, decision),
            // The event keeps its place.
            Err(NotSettled::Again(after)) => {
                self.running.spawn(async move {
                    let ran = lane.run_after(after, &mut claimed).await;
                    (claimed, ran)
                });
            }
            Err(why) => drop(self.detours.spawn(lane.give_up(claimed, why))),
        }
    }

    /// Carries out a decision. An event that needs no follow-up is settled with the next call.
    pub(super) fn carry_out(&mut self, claimed: Claimed, decision: Decision) {
        fail_point!("work.handled");
        if decision.is_finish() {
            return self.finished.push_back(self.lane.finish(claimed, &decision));
        }
        let (lane, permit) = (Arc::clone(&self.lane), self.permit.clone());
        self.detours.spawn(async move {
            let (published, _) = for_a_while(permit, lane.follow_up(&claimed, decision)).await;
            match published {
                Ok(end) => Detour::Ended(claimed.ended(end, None)),
                Err(disposition) => lane.give_up(claimed, NotSettled::Answer(disposition)).await,
            }
        });
    }

    /// Takes the end of a detour.
    pub(super) fn came_back(&mut self, detour: Result<Detour, JoinError>) {
        match detour {
            Ok(Detour::Over) => {}
            Ok(Detour::Ready(ready)) => self.wait_again(ready),
            Ok(Detour::Ended(ended)) => self.finished.push_back(ended),
            // The delivery is not answered: the broker delivers it again.
            Err(error) => tracing::error!(%error, event_type = %self.lane.event_type, "an event was left unsettled"),
        }
    }
}
