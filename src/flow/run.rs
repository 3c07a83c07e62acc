//! The worker as a whole: its start, its end, and what it has done.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    aside,
    common::{Common, LAST_WORDS},
    counters::{Counters, Summary},
    cramped::Cramped,
    lane::Lane,
    outage::{BrokerOutage, RegisterOutage, Side},
    quiet::Isolation,
    register::Batches,
    routes::{self, Routes},
    worker::{WorkError, Worker},
};
use crate::{
    domain::{
        ttl::roughly,
        versions,
        words::{EventType, UnknownType},
    },
    handler::Handler,
    ports::BrokerIdentity,
};

/// How often a worker that stops when its queues are empty looks at them.
const LOOK: Duration = Duration::from_millis(200);

/// A type and who handles it.
type TypeHandler = (EventType, Arc<dyn Handler>);

impl<S> Worker<S> {
    /// Works until `stop` is ready, then drains as [`run`](Self::run) does.
    ///
    /// ```no_run
    /// # async fn example(worker: hatchery::Worker) -> Result<(), Box<dyn std::error::Error>> {
    /// let summary = worker.run_until(hatchery::shutdown_signal()?).await?;
    /// println!("{} done, {} given back", summary.done, summary.given_back);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<Summary, WorkError> {
        let token = CancellationToken::new();
        let mut working = pin!(self.run(token.clone()));
        tokio::select! {
            ended = &mut working => return ended,
            () = stop => token.cancel(),
        }
        working.await
    }

    /// Works until `stop` is cancelled. Then the worker stops consuming, waits for the running handlers within the drain
    /// limit, and gives the other events back to their queues.
    ///
    /// [`run_until`](Self::run_until) takes a future instead of a token. Dropping the future of either stops the worker
    /// at once: the events that ran are delivered again, and that counts as a crash of their worker.
    ///
    /// # Errors
    /// If the worker cannot start (no handler, a handler for a type that the file does not have, the broker is away,
    /// refuses or misses an object), if a handler cannot be started ([`HandlerError::CannotStart`](crate::HandlerError::CannotStart)),
    /// or if the program closes the connection. Once the worker has started, it waits for a lost connection to come back,
    /// and for Redis.
    ///
    /// ```no_run
    /// # async fn example(worker: hatchery::Worker) -> Result<(), Box<dyn std::error::Error>> {
    /// use hatchery::CancellationToken;
    ///
    /// let stop = CancellationToken::new();
    /// let working = tokio::spawn(worker.run(stop.clone()));
    /// // Later, from anywhere in the program:
    /// stop.cancel();
    /// let summary = working.await??;
    /// println!("{} done, {} given back", summary.done, summary.given_back);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run(self, stop: CancellationToken) -> Result<Summary, WorkError> {
        self.with_state(()).work(stop).await
    }
}

impl Worker {
    async fn work(self, stop: CancellationToken) -> Result<Summary, WorkError> {
        let lanes_of = self.lanes()?;
        let routes = Routes::of(&self.topology);
        let names = &routes.names;
        let puts_aside = |event_type: &&EventType| self.topology.types[*event_type].puts_aside();
        let types = lanes_of.iter().map(|(event_type, _)| event_type);
        let aside = types.clone().filter(puts_aside).map(|event_type| names.put_aside(event_type));
        let worked_on: Vec<String> = types.map(|event_type| names.processing(event_type)).chain(aside).collect();
        let (exchanges, queues) =
            routes::needed(&self.topology, |event_type| self.handlers.contains_key(event_type.as_str()))?;
        match stop.run_until_cancelled(self.broker.require(&exchanges, &queues)).await {
            Some(required) => required?,
            // Nothing has begun yet that could be finished, and the broker may never answer.
            None => return Ok(Summary::default()),
        }
        // Nothing depends on it.
        let BrokerIdentity { version, .. } = self.broker.identity().await.unwrap_or_default();
        if let Some(fault) = version.as_deref().and_then(versions::fault) {
            tracing::warn!("{fault}");
        }

        let drain = self.drain_timeout.unwrap_or_else(|| self.longest_drain(&lanes_of));
        let common = Arc::new(Common {
            routes,
            broker: self.broker,
            register: Batches::new(&self.register, Side::Worker),
            clock: self.clock,
            quiet: Isolation::default(),
            stop: stop.child_token(),
            give_back: CancellationToken::new(),
            abandon: CancellationToken::new(),
            expected: Mutex::new(None),
            suspects: Notify::new(),
            away: watch::Sender::new(false),
            register_outage: RegisterOutage::new(Side::Worker),
            doubted: watch::Sender::new(false),
            failure: Mutex::new(None),
            broker_outage: BrokerOutage::default(),
            counters: Counters::default(),
            topology: self.topology,
        });
        // Whoever drops this future takes everything down with it.
        let _stop = common.stop.clone().drop_guard();
        let _abandon = common.abandon.clone().drop_guard();
        let (consumers, tracker) = (TaskTracker::new(), TaskTracker::new());
        let mut putting_aside = Vec::new();
        for (event_type, handler) in lanes_of {
            let spec = common.topology.types[&event_type].clone();
            let concurrency = spec.concurrency_for(self.concurrency);
            let prefetch = spec.prefetch_for(concurrency);
            let lane = Arc::new(Lane {
                terms: spec.terms(&common.topology.redis),
                permits: Arc::new(Semaphore::new(concurrency.into())),
                busy: Semaphore::new(usize::from(prefetch / 2)),
                prefetch,
                cramped: Cramped::default(),
                common: Arc::clone(&common),
                event_type,
                spec,
                handler,
            });
            if lane.spec.puts_aside() {
                putting_aside.push(lane);
                continue;
            }
            let (common, tracker) = (Arc::clone(&common), tracker.clone());
            consumers.spawn(async move {
                let until = common.stop.clone();
                common.abandon.run_until_cancelled(lane.consume(tracker, until)).await
            });
        }
        if !putting_aside.is_empty() {
            let (common, tracker) = (Arc::clone(&common), tracker.clone());
            consumers.spawn(async move {
                common.abandon.run_until_cancelled(aside::consume(&common, &putting_aside, &tracker)).await;
            });
        }
        if self.stop_when_empty {
            tokio::select! {
                () = common.until_empty(&worked_on, &tracker) => common.stop.cancel(),
                () = common.stop.cancelled() => {}
            }
        }
        common.stop.cancelled().await;
        common.drain(&consumers, &tracker, drain).await;
        let failure = common.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or_else(|| Ok(common.counters.summary()), Err)
    }

    fn lanes(&self) -> Result<Vec<TypeHandler>, WorkError> {
        if self.handlers.is_empty() {
            return Err(WorkError::NoHandler);
        }
        let types = &self.topology.types;
        let lane = |(name, handler): (&String, &Arc<dyn Handler>)| match types.get_key_value(name.as_str()) {
            Some((event_type, _)) => Ok((event_type.clone(), Arc::clone(handler))),
            None => Err(UnknownType::among(name, types.keys()).into()),
        };
        self.handlers.iter().map(lane).collect()
    }

    fn longest_drain(&self, lanes: &[TypeHandler]) -> Duration {
        lanes.iter().map(|(event_type, _)| self.topology.types[event_type].drain_timeout).max().unwrap_or_default()
    }
}

fn deliveries(count: usize) -> String {
    if count == 1 { "1 delivery".to_owned() } else { format!("{count} deliveries") }
}

fn given_back(count: usize) -> String {
    format!("{} {} given back", deliveries(count), if count == 1 { "is" } else { "are" })
}

impl Common {
    /// Until every queue has nothing ready and nothing is being worked on, at two looks in a row.
    async fn until_empty(&self, queues: &[String], tracker: &TaskTracker) {
        let mut before = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let delivered = self.counters.summary().delivered;
            let idle = tracker.is_empty() && self.expects_nothing() && self.nothing_ready(queues).await;
            if idle && before == Some(delivered) {
                return;
            }
            before = idle.then_some(delivered);
        }
    }

    async fn nothing_ready(&self, queues: &[String]) -> bool {
        for queue in queues {
            match self.broker.ready(queue).await {
                Ok(0) => {}
                Ok(_) => return false,
                Err(error) => {
                    tracing::warn!(%error, "cannot tell whether {queue} is empty");
                    return false;
                }
            }
        }
        true
    }

    /// Waits for what runs, then gives it back; then for the last confirms and settles, then gives those up: the
    /// broker delivers again what was not acknowledged.
    async fn drain(&self, consumers: &TaskTracker, tracker: &TaskTracker, limit: Duration) {
        consumers.close();
        tracker.close();
        let all = async {
            consumers.wait().await;
            tracker.wait().await;
        };
        tokio::pin!(all);
        if tokio::time::timeout(limit, &mut all).await.is_ok() {
            return;
        }
        if !tracker.is_empty() {
            tracing::warn!("after the drain limit of {}: {}", roughly(limit), given_back(tracker.len()));
        }
        self.give_back.cancel();
        if tokio::time::timeout(LAST_WORDS, &mut all).await.is_err() {
            if !tracker.is_empty() {
                tracing::warn!(
                    "{} could not be settled; the broker delivers what is left again",
                    deliveries(tracker.len())
                );
            }
            self.abandon.cancel();
            all.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_delivery_is_not_many() {
        assert_eq!(given_back(1), "1 delivery is given back");
        assert_eq!(given_back(2), "2 deliveries are given back");
    }
}
