//! The loop's runs: starts handlers, and takes their ends and the ends of detours.

use std::{sync::Arc, time::Duration};

use fail::fail_point;
use futures_util::FutureExt as _;
use tokio::task::{JoinError, unconstrained};

use super::Loop;
use crate::{
    domain::{
        register::End,
        settlement::{Decision, Next},
    },
    work::{
        execute::RunResult,
        follow_up::Unpublished,
        isolation::for_a_while,
        not_run::Wait,
        stage::{Claimed, Detour, Disposition, Ready},
    },
};

/// How long a place stays empty after a handler found no room on the machine.
const NO_ROOM: Duration = Duration::from_secs(1);

impl Loop {
    /// Starts a handler.
    pub(super) fn start(&mut self, claimed: Claimed) {
        let lane = Arc::clone(&self.lane);
        let run = async move {
            let result = lane.execute(&claimed).await;
            (claimed, result)
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
    pub(super) fn ran(&mut self, ran: Result<(Claimed, RunResult), JoinError>) {
        let (mut claimed, result) = match ran {
            Ok(ran) => ran,
            // The delivery is not answered: the broker delivers it again.
            Err(error) => {
                return tracing::error!(%error, event_type = %self.lane.event_type, "a run has ended without a result");
            }
        };
        let lane = Arc::clone(&self.lane);
        match result {
            RunResult::Outcome(outcome) => match lane.decide(&claimed.work.event, outcome, claimed.work.tries) {
                Next::Settle(decision) => self.follow_up(claimed, decision),
                Next::Again { after, failed } => {
                    Arc::make_mut(&mut claimed.work.event).fail(failed);
                    claimed.work.tries += 1;
                    self.resting += 1;
                    self.detours.spawn(async move {
                        let give_back = &lane.common.give_back;
                        if give_back.run_until_cancelled(tokio::time::sleep(after)).await.is_some() {
                            return Detour::Again(claimed);
                        }
                        let work = lane.let_go(claimed).await;
                        lane.answer(work, Disposition::GiveBack).await;
                        Detour::GivenUp
                    });
                }
            },
            RunResult::GivenBack => {
                self.detours.spawn(async move {
                    let work = lane.let_go(claimed).await;
                    lane.answer(work, Disposition::GiveBack).await;
                    Detour::Over
                });
            }
            RunResult::NoRoom(reason) => {
                lane.log_no_room(&reason);
                // The place stays empty for a moment: the next handler would find no room either.
                self.cooling += 1;
                let stop = lane.common.stop.clone();
                self.detours.spawn(async move {
                    stop.run_until_cancelled(tokio::time::sleep(NO_ROOM)).await;
                    Detour::Cooled
                });
                self.detours.spawn(async move {
                    let work = lane.let_go(claimed).await;
                    lane.wait_as_copy(Ready(work), Wait::NoRoom).await
                });
            }
        }
    }

    /// Carries out a decision. An event that needs no follow-up is settled with the next call.
    pub(super) fn follow_up(&mut self, claimed: Claimed, decision: Decision) {
        fail_point!("work.handled");
        if decision == Decision::Finish {
            fail_point!("work.followed-up");
            self.finished.push_back(claimed.confirmed(End::Finished));
            return;
        }
        let (lane, permit) = (Arc::clone(&self.lane), self.permit.clone());
        self.detours.spawn(async move {
            let publishing = lane.follow_up(&claimed.work.event, decision);
            let (published, _) = for_a_while(permit, publishing).await;
            let (claimed, disposition) = match published {
                Ok(Some(end)) => return Detour::Confirmed(claimed.confirmed(end)),
                // The register settles nothing: whoever made the event stale has said how it goes on.
                Ok(None) => (claimed, Disposition::Acknowledge),
                Err(Unpublished::Closed) => (claimed, Disposition::GiveBack),
                Err(Unpublished::TooLarge) => (claimed, Disposition::Reject),
            };
            let work = lane.let_go(claimed).await;
            if disposition == Disposition::Reject {
                fail_point!("work.released");
            }
            lane.answer(work, disposition).await;
            Detour::Over
        });
    }

    /// Takes the end of a detour.
    pub(super) fn came_back(&mut self, detour: Result<Detour, JoinError>) {
        match detour {
            Ok(Detour::Over) => {}
            Ok(Detour::Ready(ready)) => self.wait_again(ready),
            Ok(Detour::Again(claimed)) => self.again.push_back(claimed),
            Ok(Detour::Confirmed(confirmed)) => self.finished.push_back(confirmed),
            Ok(Detour::GivenUp) => self.resting -= 1,
            Ok(Detour::Cooled) => self.cooling -= 1,
            // The delivery is not answered: the broker delivers it again.
            Err(error) => tracing::error!(%error, event_type = %self.lane.event_type, "an event was left unsettled"),
        }
    }
}
