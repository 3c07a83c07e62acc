//! A lane's consumer: consumes its queue, starts each delivery on its way, and consumes again when the connection or
//! the consumer breaks off.

use std::{convert::Infallible, sync::Arc, time::Duration};

use backon::{BackoffBuilder, Retryable};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{lane::Lane, settle::backoff, worker::WorkError};
use crate::{
    domain::ttl::roughly,
    ports::{BrokerError, Deliveries, Order},
};

/// What has gone on for so long is well: the next pause is short again.
const LONG: Duration = Duration::from_mins(1);

/// Why a consumer delivers no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsumeEnd {
    /// It has ended by itself, having delivered something or not; or it is not to go on for now.
    Ended { any: bool },
    /// Redis did not answer. What waited for its start was given back, and that counts: RabbitMQ before 4.3 puts what has
    /// come back a hundred times into dead-letter.
    Away,
    /// It was a trial, and Redis has answered it.
    Answered,
}

impl Lane {
    /// Consumes until then: until the worker stops, or for a while.
    pub(super) async fn consume(self: Arc<Self>, tracker: TaskTracker, until: CancellationToken) {
        let queue = self.common.routes.names.processing(&self.event_type);
        let order = if self.spec.keeps_order() { Order::Kept } else { Order::Any };
        let (mut pauses, mut tried) = (backoff().build(), None);
        loop {
            // Redis may answer a ping and no claim. So the first event that is claimed again comes alone, and is not given
            // back before it has an answer. Where order is kept it comes with all that came with it before: RabbitMQ puts what
            // goes back behind what has gone back before.
            let trial = self.spec.register && *self.common.doubted.borrow();
            let prefetch = if trial && order == Order::Any { 1 } else { self.prefetch };
            let consuming = (|| self.common.broker.consume(&queue, prefetch, order))
                .retry(backoff())
                .when(|error| !matches!(error, BrokerError::Rejected { .. } | BrokerError::Closed))
                .notify(|error, wait| tracing::warn!(%error, "consuming {queue} again in {}", roughly(wait)));
            let deliveries = tokio::select! {
                () = until.cancelled() => return,
                deliveries = consuming => deliveries,
            };
            let deliveries = match deliveries {
                Ok(deliveries) => deliveries,
                // There is no connection any more, or this queue is not for this user, and waiting does not help. Who is
                // refused as a whole had been let in before, and waits: a broker that starts knows nobody at first, and a
                // password is mended.
                Err(error) => return self.common.fail(WorkError::Broker(error)),
            };
            tracing::info!(
                "consuming {queue}{}",
                if trial { ", and one event at first: Redis is there again" } else { "" }
            );
            let began = Instant::now();
            let delivering = async {
                match order {
                    Order::Any => self.deliver(deliveries, &tracker, &until, trial).await,
                    // Large, and once for a consumer.
                    Order::Kept => Box::pin(self.deliver_in_order(deliveries, &tracker, &mut tried, trial)).await,
                }
            };
            let over = tokio::select! {
                over = delivering => over,
                never = self.ask_beside(), if trial => match never {},
            };
            // Neither a queue that is deleted as soon as it is consumed nor a Redis that answers every other question may
            // make this spin. Whether Redis is away by now says nothing: another type may have asked it meanwhile.
            if over == (ConsumeEnd::Ended { any: true }) || began.elapsed() >= LONG {
                pauses = backoff().build();
            }
            self.until_redis_answers().await;
            tokio::select! {
                () = until.cancelled() => return,
                () = tokio::time::sleep(pauses.next().unwrap_or_default()) => {}
            }
        }
    }

    /// Starts deliveries until the consumer ends, Redis is away, a trial is answered, or then.
    async fn deliver(
        self: &Arc<Self>,
        mut deliveries: Box<dyn Deliveries>,
        tracker: &TaskTracker,
        until: &CancellationToken,
        trial: bool,
    ) -> ConsumeEnd {
        let mut any = false;
        let (mut away, mut doubted) = (self.common.away.subscribe(), self.common.doubted.subscribe());
        let register = self.spec.register;
        // What waits for its start goes back with its consumer; what runs goes on.
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        let held = TaskTracker::new();
        let start = |delivery| {
            self.common.counters.delivered();
            let (lane, ended, until) = (Arc::clone(self), ended.clone(), until.clone());
            let work = async move { lane.common.abandon.run_until_cancelled(lane.work(delivery, ended, until)).await };
            tracker.spawn(held.track_future(work));
        };
        let over = loop {
            let delivery = tokio::select! {
                biased;
                () = until.cancelled() => break ConsumeEnd::Ended { any },
                // The other ends live as long as the worker.
                _ = away.wait_for(|away| *away), if register && !trial => break ConsumeEnd::Away,
                _ = doubted.wait_for(|doubted| !doubted), if trial => break ConsumeEnd::Answered,
                delivery = deliveries.next() => delivery,
            };
            let Some(delivery) = delivery else {
                if deliveries.outlived() {
                    guard.disarm();
                }
                return ConsumeEnd::Ended { any };
            };
            any = true;
            start(delivery);
        };
        deliveries.cancel().await;
        let stops = self.common.stop.is_cancelled();
        let (pauses, answered) = (!register && !stops, over == ConsumeEnd::Answered && !stops);
        while let Some(delivery) = deliveries.next().await {
            if pauses || answered {
                start(delivery);
            } else {
                self.common.counters.delivered();
                self.common.counters.given_back();
                delivery.receipt.requeue().await;
            }
        }
        // Not given back: before RabbitMQ 4.3 that counts like a crash, and makes suspects of what is none.
        if pauses {
            held.close();
            self.common.stop.run_until_cancelled(held.wait()).await;
        }
        if answered {
            guard.disarm();
        }
        over
    }

    fn is_away(&self) -> bool {
        self.spec.register && *self.common.away.borrow()
    }

    /// A trial keeps its event while Redis is away, so it is asked beside it whether it is there again.
    async fn ask_beside(&self) -> Infallible {
        let mut away = self.common.away.subscribe();
        // The other end lives as long as the worker.
        while away.wait_for(|away| *away).await.is_ok() && !self.common.stop.is_cancelled() {
            self.until_redis_answers().await;
        }
        std::future::pending().await
    }

    /// Asks again and again while the last question to Redis had no answer.
    async fn until_redis_answers(&self) {
        if !self.is_away() || self.common.stop.is_cancelled() {
            return;
        }
        let mut waits = backoff().build();
        let asking = async {
            loop {
                let asked = Instant::now();
                match self.common.register.ping().await {
                    Ok(()) if self.common.register_is_there(asked) => return,
                    Ok(()) => {}
                    Err(error) => self.common.register_is_away(asked, &error),
                }
                tokio::time::sleep(waits.next().unwrap_or_default()).await;
            }
        };
        self.common.stop.run_until_cancelled(asking).await;
    }
}
