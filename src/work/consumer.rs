//! The consumer of a type: opens it, reads from it, leaves it, and waits between two consumers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBackoff, Retryable as _};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{cause::Cause, error::WorkError, lane::Lane, readiness::Consuming};
use crate::{
    domain::{spec::QueueType, ttl::roughly},
    outage::backoff,
    ports::{BrokerError, Deliveries, Delivery, Order},
};

/// After a consumer that lasted for this long, the next pause is short again.
const LONG: Duration = Duration::from_mins(1);

/// The consumer of one type, or the wait for one.
pub(super) struct Consumer {
    lane: Arc<Lane>,
    order: Order,
    state: ConsumerState,
    /// A consumer of a type that keeps its order, which has ended by itself. It may have to outlive its deliveries.
    ended: Option<Box<dyn Deliveries>>,
    pauses: ExponentialBackoff,
}

enum ConsumerState {
    Idle {
        until: Instant,
    },
    Opening {
        opening: Opening,
        asks: Arc<Asks>,
        is_probe: bool,
    },
    Open {
        deliveries: Box<dyn Deliveries>,
        is_probe: bool,
        since: Instant,
        any: bool,
        _consuming: Consuming,
    },
    /// `asks`: the signals of the opening, if the consumer was still being opened.
    Leaving {
        leaving: BoxFuture<'static, Vec<Delivery>>,
        asks: Option<Arc<Asks>>,
    },
}

type Opening = BoxFuture<'static, Result<Box<dyn Deliveries>, BrokerError>>;

/// The signals between the opening of a consumer and whoever leaves it meanwhile.
#[derive(Default)]
struct Asks {
    /// Whether a `basic.consume` waits for its answer.
    are_under_way: AtomicBool,
    /// Whether it is not asked again if that fails.
    is_last: AtomicBool,
}

impl Consumer {
    pub(super) fn new(lane: &Arc<Lane>) -> Self {
        let order = if lane.spec.keeps_order() { Order::Kept } else { Order::Any };
        let state = ConsumerState::Idle { until: Instant::now() };
        Self { lane: Arc::clone(lane), order, state, ended: None, pauses: backoff().build() }
    }

    /// Returns when the next consumer may be opened. `None` if there is one.
    pub(super) fn idle_until(&self) -> Option<Instant> {
        match &self.state {
            ConsumerState::Idle { until } => Some(*until),
            _ => None,
        }
    }

    /// Whether the consumer is a probe: it takes one event at a time. `None` if there is no consumer.
    pub(super) fn is_probe(&self) -> Option<bool> {
        match &self.state {
            ConsumerState::Opening { is_probe, .. } | ConsumerState::Open { is_probe, .. } => Some(*is_probe),
            ConsumerState::Idle { .. } | ConsumerState::Leaving { .. } => None,
        }
    }

    /// Begins to consume; as a probe if there is a reason for that, which the log tells.
    pub(super) fn open(&mut self, probe: Option<&Cause>) {
        let (lane, order, is_probe) = (Arc::clone(&self.lane), self.order, probe.is_some());
        let (probe, asks) = (probe.cloned(), Arc::<Asks>::default());
        let asked = Arc::clone(&asks);
        // An ordered type keeps its full prefetch: RabbitMQ puts a returned delivery behind those returned before.
        let prefetch = if is_probe && order == Order::Any { 1 } else { lane.prefetch };
        let opening = async move {
            let queue = lane.common.routes.names.processing(&lane.event_type);
            let outage = &lane.common.consumer_outage;
            // Also if the worker stops waiting.
            let _waiting = OnDrop(|| _ = outage.forget(&queue));
            let unavailable = match &probe {
                Some(Cause::Handler(reason)) => Some(reason.as_str()),
                _ => None,
            };
            let topology = &lane.common.topology;
            let hold = (topology.queue_type == QueueType::Quorum).then(|| topology.latest_redelivery());
            let ask = async || {
                asked.are_under_way.store(true, Ordering::Relaxed);
                let answer = lane.common.broker.consume(&queue, prefetch, order, unavailable, hold).await;
                asked.are_under_way.store(false, Ordering::Relaxed);
                answer
            };
            let is_tried_again = |error: &BrokerError| {
                !asked.is_last.load(Ordering::Relaxed)
                    && !matches!(error, BrokerError::Rejected { .. } | BrokerError::Closed)
            };
            let opened = ask
                .retry(backoff())
                .when(is_tried_again)
                .notify(|error, wait| {
                    if outage.waits(&queue, error) {
                        tracing::debug!(%error, "consuming {queue} again in {}", roughly(wait));
                    } else {
                        tracing::warn!(%error, "consuming {queue} again in {}", roughly(wait));
                    }
                })
                .await?;
            outage.consumed(&queue);
            let why = match probe {
                Some(Cause::Handler(_)) => ", one event at a time: its handler is unavailable",
                Some(_) => ", and one event at first: Redis is there again",
                None => "",
            };
            tracing::info!("consuming {queue}{why}");
            Ok(opened)
        };
        self.state = ConsumerState::Opening { opening: Box::pin(opening), asks, is_probe };
    }

    /// Leaves the consumer. The deliveries stay with the worker. That of a consumer for which RabbitMQ is being asked may be under way, and
    /// RabbitMQ would count what comes back: such a consumer is left once RabbitMQ has answered. `is_paused`: people have paused the type,
    /// so the next consumer does not wait for long.
    pub(super) fn leave(&mut self, is_paused: bool) {
        if is_paused {
            self.pauses = backoff().build();
        }
        let idle = ConsumerState::Idle { until: Instant::now() };
        self.state = match std::mem::replace(&mut self.state, idle) {
            ConsumerState::Open { deliveries, since, .. } => {
                if since.elapsed() >= LONG {
                    self.pauses = backoff().build();
                }
                ConsumerState::Leaving { leaving: Box::pin(rest(deliveries)), asks: None }
            }
            ConsumerState::Opening { opening, asks, .. } if asks.are_under_way.load(Ordering::Relaxed) => {
                asks.is_last.store(true, Ordering::Relaxed);
                let leaving = Box::pin(async {
                    match opening.await {
                        Ok(deliveries) => rest(deliveries).await,
                        // Whatever it is, the next consumer meets it.
                        Err(_) => Vec::new(),
                    }
                });
                ConsumerState::Leaving { leaving, asks: Some(asks) }
            }
            ConsumerState::Opening { .. } => ConsumerState::Idle { until: Instant::now() },
            state => state,
        };
    }

    /// Leaves the consumer because the worker stops, which waits for no answer.
    pub(super) fn stop(&mut self) {
        let is_asked = match &self.state {
            ConsumerState::Opening { .. } => true,
            ConsumerState::Leaving { asks: Some(asks), .. } => asks.are_under_way.load(Ordering::Relaxed),
            _ => false,
        };
        if is_asked {
            self.state = ConsumerState::Idle { until: Instant::now() };
        } else {
            self.leave(false);
        }
    }

    /// Whether a consumer that has ended by itself is still to be closed.
    pub(super) const fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Notes that Redis answers: the consumer is no probe any more.
    pub(super) fn end_probe(&mut self) {
        if let ConsumerState::Opening { is_probe, .. } | ConsumerState::Open { is_probe, .. } = &mut self.state {
            *is_probe = false;
        }
    }

    /// Ends the consumer, and returns all its deliveries to the head of the queue, in order.
    pub(super) async fn close(&mut self) {
        let idle = ConsumerState::Idle { until: Instant::now() };
        match std::mem::replace(&mut self.state, idle) {
            ConsumerState::Open { deliveries, any, .. } => {
                deliveries.close().await;
                // Deliveries that are handed back before the acknowledgement timeout are no fault.
                if any {
                    self.pauses = backoff().build();
                }
                self.pause();
            }
            idle @ ConsumerState::Idle { .. } => self.state = idle,
            ConsumerState::Opening { .. } | ConsumerState::Leaving { .. } => {}
        }
        if let Some(ended) = self.ended.take() {
            ended.close().await;
        }
    }

    /// Waits for what comes next, and adds deliveries to `batch`. Returns whether the consumer has ended and the broker has
    /// the worker's deliveries back. Dropping the future loses nothing.
    pub(super) async fn next(&mut self, batch: &mut Vec<Delivery>) -> bool {
        match &mut self.state {
            ConsumerState::Idle { .. } => std::future::pending().await,
            ConsumerState::Opening { opening, is_probe, .. } => {
                let opened = opening.await;
                let is_probe = *is_probe;
                match opened {
                    Ok(deliveries) => {
                        let (since, consuming) = (Instant::now(), self.lane.readiness.consuming());
                        self.state =
                            ConsumerState::Open { deliveries, is_probe, since, any: false, _consuming: consuming };
                    }
                    // Consuming is refused, or the connection was closed by the program, so waiting does not help. A client
                    // that is refused as a whole waits: it had been let in, and a broker that starts knows no users yet.
                    Err(error) => {
                        self.pause();
                        self.lane.common.fail(WorkError::Broker(error));
                    }
                }
                false
            }
            ConsumerState::Open { deliveries, since, any, .. } => {
                if deliveries.next_batch(batch).await {
                    *any = true;
                    return false;
                }
                let (outlived, was_well) = (deliveries.outlived(), *any || since.elapsed() >= LONG);
                if was_well {
                    self.pauses = backoff().build();
                }
                let pause = self.pauses.next().unwrap_or_default();
                let idle = ConsumerState::Idle { until: Instant::now() + pause };
                if let (ConsumerState::Open { deliveries, .. }, Order::Kept) =
                    (std::mem::replace(&mut self.state, idle), self.order)
                {
                    self.ended = Some(deliveries);
                }
                !outlived
            }
            ConsumerState::Leaving { leaving, .. } => {
                batch.append(&mut leaving.await);
                self.pause();
                false
            }
        }
    }

    /// Pauses before the next consumer. A queue that is deleted as soon as it is consumed must not make the event loop spin,
    /// and neither must a Redis that answers pings alone.
    fn pause(&mut self) {
        self.state = ConsumerState::Idle { until: Instant::now() + self.pauses.next().unwrap_or_default() };
    }
}

/// Cancels a consumer, and returns the deliveries that came before it has ended.
async fn rest(mut deliveries: Box<dyn Deliveries>) -> Vec<Delivery> {
    deliveries.cancel().await;
    let mut rest = Vec::new();
    while deliveries.next_batch(&mut rest).await {}
    rest
}

/// Calls a function when it is dropped.
pub(super) struct OnDrop<F: FnMut()>(pub(super) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
