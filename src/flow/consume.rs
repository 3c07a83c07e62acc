//! A lane's consumer: consumes its queue, starts each delivery on its way, and consumes again when the connection or
//! the consumer breaks off.

use std::sync::Arc;

use backon::{BackoffBuilder, Retryable};
use tokio_util::task::TaskTracker;

use super::{settle::patience, work::Lane};
use crate::ports::Deliveries;

impl Lane {
    /// Consumes until the worker stops.
    pub(super) async fn consume(self: Arc<Self>, tracker: TaskTracker) {
        let queue = self.common.names.processing(&self.event_type);
        let mut pauses = patience().build();
        loop {
            let consuming = (|| self.common.broker.consume(&queue, self.spec.prefetch))
                .retry(patience())
                .notify(|error, wait| tracing::warn!(%error, "consuming {queue} again in {wait:?}"));
            let deliveries = tokio::select! {
                () = self.common.stop.cancelled() => return,
                deliveries = consuming => deliveries,
            };
            // There is no last try.
            let Ok(deliveries) = deliveries else { return };
            tracing::info!("consuming {queue}");
            if self.deliver(deliveries, &tracker).await {
                pauses = patience().build();
            }
            // A queue that is deleted as soon as it is consumed must not make this spin.
            tokio::select! {
                () = self.common.stop.cancelled() => return,
                () = tokio::time::sleep(pauses.next().unwrap_or_default()) => {}
            }
        }
    }

    /// Starts deliveries until the consumer ends or the worker stops. Says whether there were any.
    async fn deliver(self: &Arc<Self>, mut deliveries: Box<dyn Deliveries>, tracker: &TaskTracker) -> bool {
        let mut any = false;
        loop {
            let delivery = tokio::select! {
                biased;
                () = self.common.stop.cancelled() => break,
                delivery = deliveries.next() => delivery,
            };
            let Some(delivery) = delivery else { return any };
            any = true;
            self.common.tally.delivered();
            let lane = Arc::clone(self);
            tracker.spawn(async move { lane.common.abandon.run_until_cancelled(lane.work(delivery)).await });
        }
        deliveries.cancel().await;
        while let Some(delivery) = deliveries.next().await {
            self.common.tally.given_back();
            delivery.receipt.requeue().await;
        }
        any
    }
}
