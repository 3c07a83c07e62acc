//! A source: consumes a queue of foreign messages, and publishes the events that the rules make of each.
//!
//! The order of effects: map the message, reserve versions, publish the events, wait for the broker's confirms, acknowledge the
//! message. A crash before the acknowledgement brings the message again, and its events have the same ids. If an event is not
//! confirmed, the channel is closed: RabbitMQ returns all its messages to the head of the queue in their order, and nothing
//! overtakes the message that failed.

mod carry;

use std::{collections::VecDeque, pin::pin, sync::Arc};

use backon::{BackoffBuilder as _, Retryable as _};
use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};

pub(super) use self::carry::Source;
use self::carry::Unconfirmed;
use super::{consumer::OnDrop, error::WorkError};
use crate::{
    domain::ttl::roughly,
    outage::backoff,
    ports::{BrokerError, Deliveries, Delivery, Order},
};

/// How a consumer has ended.
struct Ended {
    /// Whether any message was carried to its end.
    carried: bool,
    /// Why a message could not be carried to its end.
    failed: Option<Unconfirmed>,
}

/// Consumes a source until the worker stops.
pub(super) async fn work(source: Arc<Source>) {
    let (stop, mut pauses) = (source.common.stop.clone(), backoff().build());
    while let Some(deliveries) = source.open().await {
        let ended = source.take(deliveries).await;
        if ended.carried {
            pauses = backoff().build();
        }
        let pause = pauses.next().unwrap_or_default();
        if let Some(Unconfirmed(error)) = ended.failed.filter(|_| !stop.is_cancelled()) {
            tracing::warn!(
                %error, source = %source.name,
                "the events of a message were not confirmed; the messages of the source are returned, and consumed again in {}", roughly(pause)
            );
        }
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

impl Source {
    fn queue(&self) -> String {
        self.spec.queue(&self.common.routes.names, &self.name)
    }

    /// Begins to consume, as soon as the broker and the switches let it. `None` if the worker stops.
    async fn open(self: &Arc<Self>) -> Option<Box<dyn Deliveries>> {
        let opening = async {
            loop {
                self.switch.on().await;
                tokio::select! {
                    biased;
                    () = self.switch.off() => {}
                    opened = Arc::clone(self).opening() => return opened,
                }
            }
        };
        let opened = self.common.stop.run_until_cancelled(opening).await;
        match opened? {
            Ok(deliveries) => Some(deliveries),
            // Waiting does not help: the queue is a stream, the user may not consume, or the program has closed the connection.
            Err(error) => {
                self.common.fail(WorkError::Broker(error));
                None
            }
        }
    }

    fn opening(self: Arc<Self>) -> BoxFuture<'static, Result<Box<dyn Deliveries>, BrokerError>> {
        Box::pin(async move {
            let (queue, outage) = (self.queue(), &self.common.consumer_outage);
            // Also if the worker stops, or the source is paused, while it waits.
            let _waiting = OnDrop(|| _ = outage.forget(&queue));
            let order = if self.spec.keeps_order() { Order::Kept } else { Order::Any };
            let opened = (|| self.common.broker.consume(&queue, self.spec.prefetch, order, None, None))
                .retry(backoff())
                .when(|error| {
                    use BrokerError::{Closed, Rejected, Stream};
                    !matches!(error, Stream { .. } | Rejected { .. } | Closed)
                })
                .notify(|error, wait| {
                    if outage.waits(&queue, error) {
                        tracing::debug!(%error, "consuming {queue} again in {}", roughly(wait));
                    } else {
                        tracing::warn!(%error, "consuming {queue} again in {}", roughly(wait));
                    }
                })
                .await?;
            outage.consumed(&queue);
            tracing::info!("consuming {queue}, the source {}", self.name);
            Ok(opened)
        })
    }

    /// Takes messages until the consumer ends, the worker stops, the source is paused, or a message cannot be carried to its end.
    async fn take(self: &Arc<Self>, mut deliveries: Box<dyn Deliveries>) -> Ended {
        let _consuming = self.readiness.consuming();
        let stop = self.common.stop.clone();
        let most = if self.spec.keeps_order() { 1 } else { usize::MAX };
        let (mut waiting, mut batch) = (VecDeque::<Delivery>::new(), Vec::new());
        let (mut carrying, mut ended) = (FuturesUnordered::new(), Ended { carried: false, failed: None });
        let (mut starts, mut comes_more, mut paused) = (true, true, pin!(self.switch.off()));
        loop {
            while starts && carrying.len() < most {
                let Some(delivery) = waiting.pop_front() else { break };
                carrying.push(self.carry(delivery));
            }
            if carrying.is_empty() && (!starts || !comes_more) {
                break;
            }
            tokio::select! {
                biased;
                () = stop.cancelled(), if starts => starts = false,
                () = &mut paused, if starts => starts = false,
                () = self.common.cannot_wait(), if !starts => break,
                Some(carried) = carrying.next(), if !carrying.is_empty() => match carried {
                    Ok(()) => ended.carried = true,
                    Err(failed) => {
                        self.counters.returned();
                        (starts, ended.failed) = (false, Some(failed));
                    }
                },
                comes = deliveries.next_batch(&mut batch), if starts && comes_more => {
                    waiting.extend(batch.drain(..));
                    comes_more = comes;
                    // The broker has the messages back, and another worker may have them.
                    starts = comes || deliveries.outlived();
                }
            }
        }
        for _ in &waiting {
            self.counters.returned();
        }
        // What is left has no acknowledgement, and goes back with the channel.
        drop((carrying, waiting));
        deliveries.close().await;
        ended
    }
}
