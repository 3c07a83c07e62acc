//! A lane's consumer: consumes its queue, starts each delivery on its way, and consumes again when the connection or
//! the consumer breaks off.

use std::sync::Arc;

use backon::{BackoffBuilder, Retryable};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{settle::patience, shutdown::WorkError, work::Lane};
use crate::ports::{BrokerError, Deliveries, Order};

impl Lane {
    /// Consumes until the worker stops.
    pub(super) async fn consume(self: Arc<Self>, tracker: TaskTracker) {
        let queue = self.common.names.processing(&self.event_type);
        let order = if self.spec.keeps_order() { Order::Kept } else { Order::Any };
        let (mut pauses, mut tried) = (patience().build(), None);
        loop {
            let consuming = (|| self.common.broker.consume(&queue, self.prefetch, order))
                .retry(patience())
                .when(|error| !matches!(error, BrokerError::Rejected { .. }))
                .notify(|error, wait| tracing::warn!(%error, "consuming {queue} again in {wait:?}"));
            let deliveries = tokio::select! {
                () = self.common.stop.cancelled() => return,
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
                Order::Any => self.deliver(deliveries, &tracker).await,
                // Large, and once for a consumer.
                Order::Kept => Box::pin(self.deliver_in_order(deliveries, &tracker, &mut tried)).await,
            };
            // Neither a queue that is deleted as soon as it is consumed nor a Redis that answers every other question may
            // make this spin: each round takes deliveries, and RabbitMQ counts how often they are given back.
            if any && !*self.common.away.borrow() {
                pauses = patience().build();
            }
            self.until_redis_answers().await;
            tokio::select! {
                () = self.common.stop.cancelled() => return,
                () = tokio::time::sleep(pauses.next().unwrap_or_default()) => {}
            }
        }
    }

    /// Starts deliveries until the consumer ends, Redis is away, or the worker stops. Says whether there were any.
    async fn deliver(self: &Arc<Self>, mut deliveries: Box<dyn Deliveries>, tracker: &TaskTracker) -> bool {
        let mut any = false;
        let mut away = self.common.away.subscribe();
        // What waits for its start goes back with its consumer; what runs goes on.
        let ended = CancellationToken::new();
        let _ended = ended.clone().drop_guard();
        loop {
            let delivery = tokio::select! {
                biased;
                () = self.common.stop.cancelled() => break,
                // The other end lives as long as the worker.
                _ = away.wait_for(|away| *away) => break,
                delivery = deliveries.next() => delivery,
            };
            let Some(delivery) = delivery else { return any };
            any = true;
            self.common.tally.delivered();
            let (lane, ended) = (Arc::clone(self), ended.clone());
            tracker.spawn(async move { lane.common.abandon.run_until_cancelled(lane.work(delivery, ended)).await });
        }
        deliveries.cancel().await;
        while let Some(delivery) = deliveries.next().await {
            self.common.tally.delivered();
            self.common.tally.given_back();
            delivery.receipt.requeue().await;
        }
        any
    }

    /// Asks again and again while the last question to Redis had no answer.
    async fn until_redis_answers(&self) {
        if !*self.common.away.borrow() {
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
