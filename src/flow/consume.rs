//! A lane's consumer: consumes its queue, starts each delivery on its way, and consumes again when the connection or
//! the consumer breaks off.

use std::sync::Arc;

use backon::{BackoffBuilder, Retryable};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{settle::patience, shutdown::WorkError, work::Lane};
use crate::ports::{BrokerError, Deliveries, Order};

impl Lane {
    /// Consumes until then: until the worker stops, or for a while.
    pub(super) async fn consume(self: Arc<Self>, tracker: TaskTracker, until: CancellationToken) {
        let queue = self.common.ways.names.processing(&self.event_type);
        let order = if self.spec.keeps_order() { Order::Kept } else { Order::Any };
        let (mut pauses, mut tried) = (patience().build(), None);
        loop {
            let consuming = (|| self.common.broker.consume(&queue, self.prefetch, order))
                .retry(patience())
                .when(|error| !matches!(error, BrokerError::Rejected { .. }))
                .notify(|error, wait| tracing::warn!(%error, "consuming {queue} again in {wait:?}"));
            let deliveries = tokio::select! {
                () = until.cancelled() => return,
                deliveries = consuming => deliveries,
            };
            let deliveries = match deliveries {
                Ok(deliveries) => deliveries,
                // This queue is not for this user, and waiting does not help. Who is refused as a whole had been let in
                // before, and waits: a broker that starts knows nobody at first, and a password is mended.
                Err(error) => return self.common.fail(WorkError::Broker(error)),
            };
            tracing::info!("consuming {queue}");
            let any = match order {
                Order::Any => self.deliver(deliveries, &tracker, &until).await,
                // Large, and once for a consumer.
                Order::Kept => Box::pin(self.deliver_in_order(deliveries, &tracker, &mut tried)).await,
            };
            // Neither a queue that is deleted as soon as it is consumed nor a Redis that answers every other question may
            // make this spin: each round takes deliveries, and RabbitMQ counts how often they are given back.
            if any && !self.is_away() {
                pauses = patience().build();
            }
            self.until_redis_answers().await;
            tokio::select! {
                () = until.cancelled() => return,
                () = tokio::time::sleep(pauses.next().unwrap_or_default()) => {}
            }
        }
    }

    /// Starts deliveries until the consumer ends, Redis is away, or then. Says whether there were any.
    async fn deliver(
        self: &Arc<Self>,
        mut deliveries: Box<dyn Deliveries>,
        tracker: &TaskTracker,
        until: &CancellationToken,
    ) -> bool {
        let mut any = false;
        let mut away = self.common.away.subscribe();
        let register = self.spec.register;
        // What waits for its start goes back with its consumer; what runs goes on.
        let ended = CancellationToken::new();
        let _ended = ended.clone().drop_guard();
        let held = TaskTracker::new();
        let start = |delivery| {
            self.common.tally.delivered();
            let (lane, ended) = (Arc::clone(self), ended.clone());
            let work = async move { lane.common.abandon.run_until_cancelled(lane.work(delivery, ended)).await };
            tracker.spawn(held.track_future(work));
        };
        loop {
            let delivery = tokio::select! {
                biased;
                () = until.cancelled() => break,
                // The other end lives as long as the worker.
                _ = away.wait_for(|away| *away && register) => break,
                delivery = deliveries.next() => delivery,
            };
            let Some(delivery) = delivery else { return any };
            any = true;
            start(delivery);
        }
        deliveries.cancel().await;
        let pauses = !register && !self.common.stop.is_cancelled();
        while let Some(delivery) = deliveries.next().await {
            if pauses {
                start(delivery);
            } else {
                self.common.tally.delivered();
                self.common.tally.given_back();
                delivery.receipt.requeue().await;
            }
        }
        if pauses {
            // Not given back: before RabbitMQ 4.3 that counts like a crash, and makes suspects of what is none.
            held.close();
            self.common.stop.run_until_cancelled(held.wait()).await;
        }
        any
    }

    fn is_away(&self) -> bool {
        self.spec.register && *self.common.away.borrow()
    }

    /// Asks again and again while the last question to Redis had no answer.
    async fn until_redis_answers(&self) {
        if !self.is_away() {
            return;
        }
        let asking = (|| self.common.register.ping()).retry(patience());
        tokio::select! {
            () = self.common.stop.cancelled() => {}
            _ = asking => {
                if self.common.away.send_replace(false) {
                    tracing::info!("Redis answers again");
                }
            }
        }
    }
}
