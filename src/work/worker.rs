//! The worker as a whole: its start, its end, and what it has done.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backon::BackoffBuilder as _;
use tokio::{sync::Notify, time::Instant};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};

use super::{
    breaker::Breaker,
    breakers::{Breakers, Reporting},
    builder::{Setup, Worker},
    counters::{Counters, Meters, SourceCounters, Summary},
    error::WorkError,
    event_loop, healing,
    isolation::Isolation,
    journal::Journal,
    lane::{Common, LAST_WORDS, Lane},
    ordered, quarantine, renewal,
    source::{self, Source},
    switch_reader,
    switches::Switchboard,
};
use crate::{
    domain::{
        names::Names,
        source::SourceSpec,
        ttl::roughly,
        versions,
        words::{EventType, UnknownType, Word, nearest},
    },
    handler::Handler,
    meter,
    outage::{BrokerOutage, ConsumerOutage, HandlerHealth, Health, RegisterHealth, Side, backoff},
    ports::{BrokerError, BrokerIdentity, Ready},
    publish::publisher::Publisher,
    routes::{self, Routes},
};

/// How often a worker that stops when its queues are empty looks at them.
const LOOK: Duration = Duration::from_millis(200);

/// How long a stopping worker waits for the confirms of its sources' events. As long as a type's `drain-timeout` by default.
const DRAIN_OF_SOURCES: Duration = Duration::from_secs(25);

/// A type and its handler.
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
    /// refuses or misses an object), or if the program closes the connection. Once the worker has started, it waits for a lost
    /// connection to come back, for Redis, and for handlers that are [unavailable](crate::Outcome::Unavailable).
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
        self.setup.work(stop).await
    }
}

impl Setup {
    async fn work(self, stop: CancellationToken) -> Result<Summary, WorkError> {
        let (lanes_of, sources) = (self.lanes()?, self.sources()?);
        meter::describe();
        let routes = Routes::of(&self.topology);
        let names = &routes.names;
        let has_quarantine = |event_type: &&EventType| self.topology.types[*event_type].has_quarantine();
        let types = lanes_of.iter().map(|(event_type, _)| event_type);
        let quarantines = types.clone().filter(has_quarantine).map(|event_type| names.quarantine_queue(event_type));
        let taken_from = sources.iter().map(|(name, spec)| spec.queue(names, name));
        let quarantines: Vec<String> = quarantines.collect();
        let consumed: Vec<String> = types.map(|event_type| names.processing(event_type)).chain(taken_from).collect();
        match stop.run_until_cancelled(self.require(names, &sources)).await {
            Some(required) => required?,
            // Nothing has begun yet that could be finished, and the broker may never answer.
            None => return Ok(Summary::default()),
        }
        // Nothing depends on it.
        let BrokerIdentity { version, .. } = self.broker.identity().await.unwrap_or_default();
        if let Some(fault) = version.as_deref().and_then(versions::fault) {
            tracing::warn!("{fault}");
        }

        let drain = self.drain_timeout.unwrap_or_else(|| self.longest_drain(&lanes_of, !sources.is_empty()));
        let publisher = self.publisher.unwrap_or_else(|| {
            let (broker, clock) = (Arc::clone(&self.broker), Arc::clone(&self.clock));
            Publisher::new(Arc::clone(&self.topology), broker, &self.register, clock)
        });
        let common = Arc::new(Common {
            routes,
            broker: self.broker,
            clock: self.clock,
            isolation: Isolation::default(),
            late: Arc::default(),
            prioritised: Mutex::default(),
            leases: Arc::default(),
            stop: stop.child_token(),
            give_back: CancellationToken::new(),
            abandon: CancellationToken::new(),
            held: Arc::default(),
            expected: Mutex::new(None),
            quarantined: Notify::new(),
            health: RegisterHealth::new(Side::Worker, Arc::clone(&self.register)),
            register: self.register,
            failure: Mutex::new(None),
            broker_outage: BrokerOutage::default(),
            consumer_outage: ConsumerOutage::default(),
            totals: Arc::default(),
            readiness: self.readiness,
            switches: Switchboard::default(),
            journal: Journal::new(self.observers, Arc::clone(publisher.records())),
            traces: self.traces,
            topology: self.topology,
        });
        // Dropping this future ends everything with it.
        let _stop = common.stop.clone().drop_guard();
        let _abandon = common.abandon.clone().drop_guard();
        let tasks = TaskTracker::new();
        let (concurrency, inline) = (self.concurrency, self.inline);
        common.readiness.starts(lanes_of.len() + sources.len());
        for (name, spec) in sources {
            common.spawn(&tasks, source::work(common.source(name, spec, &publisher)));
        }
        let lanes: Vec<_> = lanes_of.into_iter().map(|lane| common.lane(lane, concurrency, inline)).collect();
        let breakers = Breakers::start(&common, &lanes, publisher);
        let mut isolating = Vec::new();
        for lane in lanes.iter().cloned() {
            if lane.spec.has_quarantine() {
                isolating.push(lane);
            } else if lane.spec.keeps_order() {
                common.spawn(&tasks, ordered::work(lane));
            } else {
                common.spawn(&tasks, event_loop::work(lane, common.stop.clone()));
            }
        }
        if !isolating.is_empty() {
            common.spawn(&tasks, quarantine::work(Arc::clone(&common), isolating));
        }
        let leases = common.clone();
        let _renewing = AbortOnDropHandle::new(tokio::spawn(async move { renewal::renew(&leases, &lanes).await }));
        let _following = AbortOnDropHandle::new(tokio::spawn(switch_reader::follow(Arc::clone(&common))));
        let uses_register = common.topology.types.values().any(|spec| spec.register);
        let reports = uses_register || !common.topology.schedules.is_empty();
        if reports {
            common.spawn(&tasks, healing::heal(Arc::clone(&common)));
        }
        let health = common.clone();
        let _asking = AbortOnDropHandle::new(tokio::spawn(async move { health.ask_while_down().await }));
        if self.stop_when_empty {
            tokio::select! {
                () = common.until_empty(&consumed, &quarantines, &breakers) => common.stop.cancel(),
                () = common.stop.cancelled() => {}
            }
        }
        common.stop.cancelled().await;
        common.readiness.stops();
        let left = common.drain(&tasks, drain).await;
        breakers.end(left.max(LAST_WORDS)).await;
        if reports {
            // How the last runs ended.
            common.report().await;
        }
        // The program may close the connection now.
        common.broker.until_sent_on().await;
        let failure = common.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or_else(|| Ok(common.totals.summary()), Err)
    }

    /// Fails if an object is missing that the worker needs.
    async fn require(&self, names: &Names, sources: &[(Word, SourceSpec)]) -> Result<(), WorkError> {
        let consumed = |name: &Word| self.sources.contains(name.as_str());
        let handled = |event_type: &EventType| self.handlers.contains_key(event_type.as_str());
        let (exchanges, queues) = routes::needed(&self.topology, handled, consumed)?;
        self.broker.require(&exchanges, &queues).await?;
        for (name, spec) in sources.iter().filter(|(_, spec)| !spec.is_declared()) {
            let queue = spec.queue(names, name);
            self.broker.require(&[], std::slice::from_ref(&queue)).await.map_err(|error| match error {
                BrokerError::Missing { .. } => WorkError::MissingQueue { name: name.to_string(), queue },
                error => error.into(),
            })?;
        }
        Ok(())
    }

    fn sources(&self) -> Result<Vec<(Word, SourceSpec)>, WorkError> {
        let known = &self.topology.sources;
        let source = |name: &String| {
            let found = known.get_key_value(name.as_str()).map(|(name, spec)| (name.clone(), spec.clone()));
            found.ok_or_else(|| WorkError::UnknownSource {
                name: name.clone(),
                nearest: nearest(name, known.keys().map(Word::as_str)).map(str::to_owned),
            })
        };
        self.sources.iter().map(source).collect()
    }

    fn lanes(&self) -> Result<Vec<TypeHandler>, WorkError> {
        if self.handlers.is_empty() && self.sources.is_empty() {
            return Err(WorkError::NoHandler);
        }
        let types = &self.topology.types;
        let lane = |(name, handler): (&String, &Arc<dyn Handler>)| match types.get_key_value(name.as_str()) {
            Some((event_type, _)) => Ok((event_type.clone(), Arc::clone(handler))),
            None => Err(UnknownType::among(name, types.keys()).into()),
        };
        self.handlers.iter().map(lane).collect()
    }

    fn longest_drain(&self, lanes: &[TypeHandler], has_source: bool) -> Duration {
        let of_types = lanes.iter().map(|(event_type, _)| self.topology.types[event_type].drain_timeout);
        of_types.chain(has_source.then_some(DRAIN_OF_SOURCES)).max().unwrap_or_default()
    }
}

fn deliveries(count: usize) -> String {
    if count == 1 { "1 delivery".to_owned() } else { format!("{count} deliveries") }
}

impl Common {
    fn lane(self: &Arc<Self>, (event_type, handler): TypeHandler, concurrency: Option<u16>, inline: bool) -> Arc<Lane> {
        let spec = self.topology.types[&event_type].clone();
        let (concurrency, switch) = (spec.concurrency_for(concurrency), self.switches.of(&event_type));
        Arc::new(Lane {
            terms: spec.terms(&self.topology.redis),
            concurrency: concurrency.into(),
            prefetch: spec.prefetch_for(concurrency),
            inline,
            breaker: Breaker::of(&event_type, &spec),
            health: HandlerHealth::new(event_type.clone()),
            counters: Counters::new(&self.totals, &event_type),
            meters: Meters::new(&event_type),
            readiness: self.readiness.of(&event_type, switch.clone()),
            switch,
            common: Arc::clone(self),
            event_type,
            spec,
            handler,
        })
    }

    fn source(self: &Arc<Self>, name: Word, spec: SourceSpec, publisher: &Publisher) -> Arc<Source> {
        let switch = self.switches.of_source(&name);
        Arc::new(Source {
            counters: SourceCounters::new(&self.totals, &name),
            readiness: self.readiness.of_source(&name, switch.clone()),
            switch,
            common: Arc::clone(self),
            publisher: publisher.clone(),
            name,
            spec,
        })
    }

    fn spawn(self: &Arc<Self>, tasks: &TaskTracker, work: impl Future<Output = ()> + Send + 'static) {
        let common = Arc::clone(self);
        tasks.spawn(async move { common.abandon.run_until_cancelled(work).await });
    }

    /// Pings Redis while it is down.
    async fn ask_while_down(&self) {
        let mut health = self.health.subscribe();
        // The sender lives as long as the worker.
        while health.wait_for(|known| known.health() == Health::Down).await.is_ok() {
            let mut pauses = backoff().build();
            while health.borrow_and_update().health() == Health::Down {
                let asked = Instant::now();
                match self.register.ping().await {
                    Ok(()) if self.health.is_there(asked) => break,
                    Ok(()) => {}
                    Err(error) => self.register_failed(asked, &error),
                }
                tokio::time::sleep(pauses.next().unwrap_or_default()).await;
            }
        }
    }

    /// Waits until nothing is paused, every queue has nothing ready and the worker holds nothing, at two looks in a row.
    async fn until_empty(&self, consumed: &[String], quarantines: &[String], breakers: &Reporting) {
        let (mut before, mut is_said, mut is_breaker_said) = (None, false, false);
        loop {
            tokio::time::sleep(LOOK).await;
            if self.switches.is_any_off() {
                let paused = self.switches.paused();
                if !paused.is_empty() && !std::mem::replace(&mut is_said, true) {
                    tracing::info!("the worker ends after the pause of {paused}, when its queues are empty");
                }
                before = None;
                continue;
            }
            let Summary { delivered, messages, .. } = self.totals.summary();
            let idle = self.holds() == 0
                && self.expects_nothing()
                && self.nothing_ready(consumed, true).await
                && self.nothing_ready(quarantines, false).await;
            if idle && before == Some((delivered, messages)) {
                return;
            }
            let open = breakers.not_closed();
            if !idle && !open.is_empty() && !std::mem::replace(&mut is_breaker_said, true) {
                tracing::info!(
                    "the worker ends after the circuit breaker of {open} has closed, when its queues are empty"
                );
            }
            before = idle.then_some((delivered, messages));
        }
    }

    /// Returns whether nothing is ready in these queues. While the worker consumes them, an answer without a consumer is that of a
    /// queue whose leader is away, and tells nothing.
    async fn nothing_ready(&self, queues: &[String], are_consumed: bool) -> bool {
        for queue in queues {
            let has_consumer = are_consumed && self.readiness.is_ready();
            match self.broker.ready(queue).await {
                Ok(Ready { messages: 0, consumers }) if consumers > 0 || !has_consumer => {}
                Ok(_) => return false,
                Err(error) => {
                    tracing::warn!(%error, "cannot tell whether {queue} is empty");
                    return false;
                }
            }
        }
        true
    }

    /// Drains in three phases: handlers, confirms and settlements, abandon. The broker delivers again what was not acknowledged.
    /// Returns what is left of the limit.
    async fn drain(&self, tasks: &TaskTracker, limit: Duration) -> Duration {
        let began = Instant::now();
        tasks.close();
        if tokio::time::timeout(limit, tasks.wait()).await.is_ok() {
            return limit.saturating_sub(began.elapsed());
        }
        if self.holds() > 0 {
            // Not all of these are given back: a run that has ended may still wait for Redis or for the broker.
            let left = deliveries(self.holds());
            tracing::warn!(
                "after the drain limit of {}: {left} not settled; handlers that still run are stopped",
                roughly(limit)
            );
        }
        self.give_back.cancel();
        if tokio::time::timeout(LAST_WORDS, tasks.wait()).await.is_err() {
            if self.holds() > 0 {
                tracing::warn!(
                    "{} could not be settled; the broker delivers what is left again",
                    deliveries(self.holds())
                );
            }
            self.abandon.cancel();
            tasks.wait().await;
        }
        limit.saturating_sub(began.elapsed())
    }
}
