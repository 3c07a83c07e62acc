//! A lane that keeps order: one delivery after the other, and the same one until it works.
//!
//! Its queue has a single active consumer, so no other worker has a delivery meanwhile. What goes back goes back with its
//! channel: RabbitMQ returns all that came by it to the head of the queue in its order, and nothing overtakes (measured).
//! One delivery that is given back by itself would come again behind those that were delivered after it.

use std::collections::VecDeque;

use fail::fail_point;
use tokio::time::Instant;
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use super::{
    claim::{ClaimReply, StartDeadline},
    consume::ConsumeEnd,
    lane::{Disposition, Lane, RunEnd},
    settle,
};
use crate::{
    domain::{event::Event, register::Claimed, ttl::roughly, words::plain},
    ports::{Deliveries, Delivery},
};

/// The event at the head of the queue when it was handed back. Should it come again to this worker, which is likely, its
/// failures are not forgotten, and it is not tried sooner.
pub(super) struct Tried {
    event: Event,
    next: Instant,
}

/// A delivery in this worker's hand.
struct Held {
    delivery: Delivery,
    since: Instant,
    tracked: TaskTrackerToken,
}

impl Lane {
    /// Works off deliveries in their order until the consumer ends, Redis is away, the worker stops, or the broker would not
    /// wait much longer for the head. Then everything goes back. A trial heeds Redis once that has answered it.
    pub(super) async fn deliver_in_order(
        &self,
        mut deliveries: Box<dyn Deliveries>,
        tracker: &TaskTracker,
        tried: &mut Option<Tried>,
        mut trial: bool,
    ) -> ConsumeEnd {
        let mut over = ConsumeEnd::Ended { any: false };
        let (mut away, mut doubted) = (self.common.away.subscribe(), self.common.doubted.subscribe());
        let (ended, mut last) = (CancellationToken::new(), false);
        let mut behind: VecDeque<Held> = VecDeque::new();
        while !ended.is_cancelled() {
            let heeds = self.spec.register && !trial;
            let next = async {
                match behind.pop_front() {
                    Some(held) => Some(held),
                    None if last => None,
                    None => deliveries.next().await.map(|delivery| self.hold(delivery, tracker)),
                }
            };
            let held = tokio::select! {
                biased;
                () = self.common.stop.cancelled() => break,
                // The other ends live as long as the worker.
                _ = away.wait_for(|away| *away), if heeds => {
                    over = ConsumeEnd::Away;
                    break;
                }
                // It has what came with its event, too, and goes on: handed back, that would come again for nothing.
                _ = doubted.wait_for(|doubted| !doubted), if trial => {
                    trial = false;
                    continue;
                }
                held = next => held,
            };
            let Some(Held { delivery, since, tracked: _tracked }) = held else { break };
            over = ConsumeEnd::Ended { any: true };
            let backoff = StartDeadline {
                deadline: since + self.common.topology.ack_timeout / 2,
                ended: ended.clone(),
                until: self.common.stop.clone(),
            };
            let work = self.work_in_order(delivery, &backoff, tried);
            tokio::pin!(work);
            // What comes meanwhile is taken, to know since when it is here, and at once when the consumer ends.
            let settled = loop {
                tokio::select! {
                    biased;
                    settled = &mut work => break settled,
                    _ = away.wait_for(|away| *away), if heeds && !ended.is_cancelled() => {
                        over = ConsumeEnd::Away;
                        ended.cancel();
                    }
                    delivery = deliveries.next(), if !last && !ended.is_cancelled() => match delivery {
                        Some(delivery) => behind.push_back(self.hold(delivery, tracker)),
                        None if deliveries.outlived() => last = true,
                        None => ended.cancel(),
                    },
                }
            };
            if !settled {
                break;
            }
        }
        for _ in behind {
            self.common.counters.given_back();
        }
        deliveries.close().await;
        over
    }

    fn hold(&self, delivery: Delivery, tracker: &TaskTracker) -> Held {
        self.common.counters.delivered();
        Held { delivery, since: Instant::now(), tracked: tracker.token() }
    }

    /// One delivery's whole way, as in [`Lane::work`]. False where it is to go back, with all that came after it.
    async fn work_in_order(&self, delivery: Delivery, backoff: &StartDeadline, tried: &mut Option<Tried>) -> bool {
        let Delivery { message, receipt, .. } = delivery;
        let verdict = match self.due(message).await {
            Ok(event) => self.until_it_works(event, backoff, tried).await,
            Err(verdict) => verdict,
        };
        match verdict {
            Disposition::Acknowledge => receipt.acknowledge().await,
            Disposition::Reject => receipt.reject().await,
            Disposition::GiveBack => {
                self.common.counters.given_back();
                return false;
            }
        }
        fail_point!("work.acknowledged");
        true
    }

    async fn until_it_works(&self, event: Event, backoff: &StartDeadline, tried: &mut Option<Tried>) -> Disposition {
        let (mut event, mut next) = match tried.take() {
            Some(before) if before.is_about(&event) => before.over(event),
            _ => (event, Instant::now()),
        };
        loop {
            // Nothing is claimed while it waits: a wait that is cut short by a crash is no crash of the event's.
            let waited = self.unless_over(backoff, tokio::time::sleep_until(next)).await;
            let started = match waited {
                Some(()) => self.try_in_place(&mut event, backoff).await,
                None => None,
            };
            let Some(tried_once) = started else {
                *tried = Some(Tried { event, next });
                return Disposition::GiveBack;
            };
            match tried_once {
                Ok(RunEnd::Settled) => return Disposition::Acknowledge,
                Ok(RunEnd::Refused) => return Disposition::Reject,
                Ok(RunEnd::GivenBack) => return Disposition::GiveBack,
                Ok(RunEnd::NotStarted) => {
                    next = Instant::now();
                    continue;
                }
                Ok(RunEnd::Again { after }) => next = Instant::now() + after,
                Err(verdict) => return verdict,
            }
            let (id, reason, wait) = (&event.id, &event.reason, next.saturating_duration_since(Instant::now()));
            tracing::warn!(id = %plain(id), event_type = %self.event_type, reason, "it blocks its type, and is tried again in {}", roughly(wait));
        }
    }

    /// Runs it once, in a round of its own, when there is room for it; or what becomes of its delivery, if it may not run at
    /// all. None when the worker stops, or the patience is over.
    async fn try_in_place(&self, event: &mut Event, backoff: &StartDeadline) -> Option<Result<RunEnd, Disposition>> {
        if !self.spec.register {
            return self.run_unregistered(event, backoff, &mut 0).await.map(Ok);
        }
        let (claimed, token, turn) = self.claim_in_place(event, backoff).await?;
        fail_point!("work.claimed");
        let Claimed::Run { fence, crashes, stamp } = claimed else {
            drop(turn);
            return Some(Err(self.not_run(event, ClaimReply::Answered(claimed)).await));
        };
        event.stamp = stamp;
        Some(Ok(self.run_and_settle(event, crashes, settle::Claimed { token, fence }, (turn, backoff), &mut 0).await))
    }
}

impl Tried {
    fn is_about(&self, event: &Event) -> bool {
        self.event.id == event.id && self.event.stamp.generation == event.stamp.generation
    }

    /// The event as it was delivered again, with what was known of it; and when it is to be tried.
    fn over(self, event: Event) -> (Event, Instant) {
        let Event { attempts, reason, first_failure, last_failure, .. } = self.event;
        (Event { attempts, reason, first_failure, last_failure, ..event }, self.next)
    }
}
