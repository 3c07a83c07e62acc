#![doc = include_str!("guide.md")]

mod clock;
mod record;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use jiff::Timestamp;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

pub use self::record::{RecordedRun, WaitingEvent};
use self::{
    clock::PausedClock,
    record::{Record, Recorder},
};
use crate::{
    adapters::memory::Waiting,
    connect::InMemory,
    domain::{
        event::Event,
        names::Names,
        source::SourceSpec,
        spec::Topology,
        switches::{Name, Pause, Paused, PausedBy, Switches},
        time::until,
        wire::{self, Properties},
        words::{EventType, UnknownType, Word},
    },
    operate::Events,
    publish::publisher::Publisher,
    work::{Summary, WorkError, Worker},
};

/// The time at which a [`TestHatchery`] begins by default.
const BEGIN: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The time in which tokio runs everything that is due at one instant: the shortest time that tokio can wait.
const SETTLE: Duration = Duration::from_millis(1);

/// A topology with a broker and a register in memory, for tests. [The module](self) has examples.
///
/// Clones share the broker and the register.
#[derive(Clone)]
pub struct TestHatchery {
    shared: Arc<TestInner>,
}

struct TestInner {
    hatchery: InMemory,
    record: Arc<Record>,
    workers: Mutex<Vec<Started>>,
}

/// A worker that was started.
enum Started {
    Running {
        stop: CancellationToken,
        ends: AbortOnDropHandle<Result<Summary, WorkError>>,
    },
    /// The worker ended because its queues were empty, as it was configured to.
    Ended(Summary),
}

impl TestHatchery {
    /// Creates a broker with this topology and an empty register. The time is the beginning of 2026.
    ///
    /// # Panics
    /// Outside a tokio runtime with paused time: the test begins with `#[tokio::test(start_paused = true)]`. Also if the
    /// topology was not read by this crate and is invalid.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        Self::starting_at(topology, BEGIN)
    }

    /// Creates the same at another time, for events that depend on the calendar.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn starting_at(topology: Topology, now: Timestamp) -> Self {
        let clock = Arc::new(PausedClock::starting_at(now));
        let hatchery = InMemory::new(topology, clock).unwrap_or_else(|error| panic!("{error}"));
        Self { shared: Arc::new(TestInner { hatchery, record: Arc::default(), workers: Mutex::default() }) }
    }

    /// Returns a publisher, like [`Hatchery::publisher`](crate::Hatchery::publisher).
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        self.shared.hatchery.publisher()
    }

    /// Returns a worker without handlers, like [`Hatchery::worker`](crate::Hatchery::worker). [`start`](Self::start) starts it
    /// and records its runs.
    #[must_use]
    pub fn worker(&self) -> Worker {
        self.shared.hatchery.worker()
    }

    /// Returns an [`Events`], like [`Hatchery::events`](crate::Hatchery::events), to list and change waiting events.
    #[must_use]
    pub fn events(&self) -> Events {
        self.shared.hatchery.events()
    }

    /// Puts a message into the queue of a source, as another program would. Without an id it has no property `message_id`.
    /// [The module](self#a-source) has an example.
    ///
    /// # Panics
    /// If the file has no such source.
    pub fn send(&self, source: &str, message_id: Option<&str>, body: impl Into<Bytes>) {
        let (name, spec) = self.known_source(source);
        let properties = Properties { message_id: message_id.map(ToOwned::to_owned), ..Properties::default() };
        let queue = spec.queue(&self.names(), name);
        let message = wire::Incoming { routing_key: queue.clone(), properties, body: body.into() };
        self.shared.hatchery.broker.put(&queue, message);
    }

    /// Pauses a type, as `topology pause` does: what runs is finished, and nothing else of the type is started before a
    /// [`resume`](Self::resume). [The module](self#a-pause) has an example.
    ///
    /// # Panics
    /// If the file has no such type.
    pub fn pause(&self, event_type: &str, reason: &str) {
        let (of, now) = (self.switch(event_type), self.now());
        let pause = Pause { of, by: PausedBy::Person, reason: reason.to_owned(), since: now, until: None };
        self.change_switches(|switches| switches.with(pause, now));
    }

    /// Ends the pause of a type, as `topology resume` does. [The module](self#a-pause) has an example.
    ///
    /// # Panics
    /// If the file has no such type.
    pub fn resume(&self, event_type: &str) {
        let (of, now) = (self.switch(event_type), self.now());
        self.change_switches(|switches| switches.without(&of, now));
    }

    /// Starts a worker, which runs whenever the test awaits something. Several workers behave like several processes.
    pub fn start<S: Send + 'static>(&self, worker: Worker<S>) {
        let (record, clock) = (Arc::clone(&self.shared.record), self.shared.hatchery.clock.clone());
        let worker = worker
            .wrap_handlers(|handler| Arc::new(Recorder { handler, record: Arc::clone(&record), clock: clock.clone() }));
        let stop = CancellationToken::new();
        let ends = AbortOnDropHandle::new(tokio::spawn(worker.run(stop.clone())));
        self.workers().push(Started::Running { stop, ends });
    }

    /// Stops all workers, as a SIGTERM does: each finishes its runs within its drain limit and returns the other events to
    /// their queues. Returns the counters of each worker, in the order in which they were started.
    ///
    /// # Errors
    /// If a worker had already ended with an error.
    ///
    /// ```
    /// use hatchery::{NewEvent, Outcome, Run, testing::TestHatchery};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = "{ version: 1, name: payroll, types: { mail: {} } }";
    /// let hatchery = TestHatchery::new(hatchery::file::read(file, "topology.yaml")?);
    /// hatchery.start(hatchery.worker().handle("mail", |_: Run| async { Ok::<_, String>(Outcome::Done) }));
    /// hatchery.publisher().publish(NewEvent::new("mail", "Dear Ada")).await?;
    /// hatchery.advance(std::time::Duration::ZERO).await?;
    /// assert_eq!(hatchery.stop().await?[0].done, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn stop(&self) -> Result<Vec<Summary>, WorkError> {
        let started = std::mem::take(&mut *self.workers());
        for worker in &started {
            if let Started::Running { stop, .. } = worker {
                stop.cancel();
            }
        }
        let mut ended = Vec::new();
        for worker in started {
            ended.push(worker.ended().await);
        }
        ended.into_iter().collect()
    }

    /// Kills all workers, as a SIGKILL does. The events that ran are delivered again, and the crash of their worker is counted.
    /// This takes a millisecond.
    pub async fn kill(&self) {
        let started = std::mem::take(&mut *self.workers());
        for worker in started {
            if let Started::Running { ends, .. } = worker {
                ends.abort();
                // Either the task was cancelled here, or it had ended before.
                drop(ends.await);
            }
        }
        tokio::time::sleep(SETTLE).await;
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.hatchery.clock.now()
    }

    /// Advances the time, and runs everything that is due by then, each event at its time. The last instant takes a
    /// millisecond, so the time is one millisecond later afterwards.
    ///
    /// # Errors
    /// If a worker has ended with an error, for example because the file does not have its type.
    pub async fn advance(&self, by: Duration) -> Result<(), WorkError> {
        tokio::time::sleep(by).await;
        tokio::time::sleep(SETTLE).await;
        let started = std::mem::take(&mut *self.workers());
        let (mut left, mut failure) = (Vec::new(), None);
        for worker in started {
            match worker {
                Started::Running { ref ends, .. } if ends.is_finished() => match worker.ended().await {
                    Ok(summary) => left.push(Started::Ended(summary)),
                    Err(error) => failure = failure.or(Some(error)),
                },
                worker => left.push(worker),
            }
        }
        self.workers().append(&mut left);
        failure.map_or(Ok(()), Err)
    }

    /// Advances the time to a date. For a date in the past it runs what is due now, and takes its one millisecond.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub async fn advance_to(&self, date: Timestamp) -> Result<(), WorkError> {
        self.advance(until(self.now(), date)).await
    }

    /// Returns the runs of a type's handler, in the order in which they began.
    ///
    /// # Panics
    /// If the file has no such type.
    #[must_use]
    pub fn runs(&self, event_type: &str) -> Vec<RecordedRun> {
        self.shared.record.of(self.known(event_type))
    }

    /// Returns the events of a type that are in the broker's queues and not delivered yet, sorted by due time.
    ///
    /// RabbitMQ cannot remove a single message from a queue, so a cancelled or replaced event stays there until it is due.
    /// [`events`](Self::events) lists the events that will still run.
    ///
    /// # Panics
    /// If the file has no such type.
    #[must_use]
    pub fn waiting(&self, event_type: &str) -> Vec<WaitingEvent> {
        let event_type = self.known(event_type);
        let dead_letters = self.names().dead_letters(event_type);
        let all = self.shared.hatchery.broker.waiting().into_iter().filter(|waiting| waiting.queue != dead_letters);
        let of_type = |waiting: Waiting| {
            let (first, _) = waiting.message.routing_key.split_once('.')?;
            let (queue, expires) = (waiting.queue, waiting.expires);
            let event =
                if first == event_type.as_str() { self.read(event_type, waiting.message)? } else { return None };
            let due = expires.map_or(event.due(), |expires| expires.max(event.due()));
            Some(WaitingEvent { event, due, queue })
        };
        let mut waiting: Vec<WaitingEvent> = all.filter_map(of_type).collect();
        waiting.sort_by_key(|waiting| waiting.due);
        waiting
    }

    /// Returns the dead letters of a type, the oldest first. [`Event::reason`] says why each was dead-lettered.
    ///
    /// # Panics
    /// If the file has no such type.
    #[must_use]
    pub fn dead_letters(&self, event_type: &str) -> Vec<Event> {
        let event_type = self.known(event_type);
        let queue = self.names().dead_letters(event_type);
        let letters = self.shared.hatchery.broker.waiting().into_iter().filter(|waiting| waiting.queue == queue);
        letters.filter_map(|letter| self.read(event_type, letter.message)).collect()
    }

    /// Returns why messages of a source became no event, the oldest first.
    ///
    /// # Panics
    /// If the file has no such source.
    #[must_use]
    pub fn unmappable(&self, source: &str) -> Vec<String> {
        let queue = self.names().source_dead_letters(self.known_source(source).0);
        let letters = self.shared.hatchery.broker.waiting().into_iter().filter(|waiting| waiting.queue == queue);
        let reason = |letter: Waiting| Some(letter.message.properties.headers.get("reason")?.as_str()?.to_owned());
        letters.filter_map(reason).collect()
    }

    fn switch(&self, event_type: &str) -> Paused {
        Paused::Type(Name(self.known(event_type).clone()))
    }

    fn change_switches(&self, change: impl FnOnce(Switches) -> Switches) {
        let stream = self.names().control();
        let last = self.shared.hatchery.broker.last_of(&stream).and_then(|text| Switches::read(&text).ok());
        let body = change(last.unwrap_or_default()).text().into();
        let message = wire::Incoming { routing_key: stream.clone(), properties: Properties::default(), body };
        self.shared.hatchery.broker.put(&stream, message);
    }

    fn names(&self) -> Names {
        Names::new(self.shared.hatchery.topology.name.clone())
    }

    /// Cannot fail: every message here was published by a publisher or a worker, so each is a valid event.
    fn read(&self, event_type: &EventType, message: wire::Incoming) -> Option<Event> {
        wire::decode(event_type, message, self.now(), String::new).ok()
    }

    /// Panics on an unknown type: a misspelt type has no runs, so a test that expects none would pass.
    fn known(&self, event_type: &str) -> &EventType {
        let types = &self.shared.hatchery.topology.types;
        match types.get_key_value(event_type) {
            Some((event_type, _)) => event_type,
            None => panic!("{}", UnknownType::among(event_type, types.keys())),
        }
    }

    fn known_source(&self, source: &str) -> (&Word, &SourceSpec) {
        let sources = &self.shared.hatchery.topology.sources;
        sources.get_key_value(source).unwrap_or_else(|| panic!("there is no source `{source}` in the file"))
    }

    fn workers(&self) -> MutexGuard<'_, Vec<Started>> {
        self.shared.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Started {
    /// Returns how the worker ended. A panic in the worker becomes a panic of the test.
    async fn ended(self) -> Result<Summary, WorkError> {
        match self {
            Self::Running { ends, .. } => {
                ends.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
            }
            Self::Ended(summary) => Ok(summary),
        }
    }
}

impl fmt::Debug for TestHatchery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TestInner { hatchery, record, .. } = &*self.shared;
        let runs = record.len();
        f.debug_struct("TestHatchery")
            .field("topology", &hatchery.topology.name)
            .field("runs", &runs)
            .finish_non_exhaustive()
    }
}
