//! Publishes the records of what happens to events. No event waits for a record: records have a connection and a buffer of their own, and
//! one that finds no room, or that the broker does not confirm, is dropped and counted.

mod batch;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use metrics::{Counter, counter};
use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        watch,
    },
    time::{Instant, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::batch::{Batch, Line, batches};
use crate::{
    domain::{
        event::Event,
        life_cycle::{LifeCycleRecord, Told, TransitionName},
        names::Names,
        reason::cut_reason,
        register::ended_runs::Unrecorded,
        spec::Topology,
        switches::Paused,
        transition::Transition,
    },
    meter,
    outage::Reminder,
    ports::{Broker, BrokerError},
};

/// The records that wait for the connection: ten seconds at 1,000 records/s, some megabytes.
const BUFFER: usize = 10_000;

/// The messages that wait for their confirm.
const UNCONFIRMED: usize = 1_000;

/// The shortest time from one publish to the next. The first record does not wait, and those that come meanwhile share messages.
const PACE: Duration = Duration::from_millis(100);

/// The pause after an error. The broker may close the channel or the connection for each record that it refuses.
const AGAIN: Duration = Duration::from_secs(5);

/// How long the last records may take when the program ends. A command also connects within this time.
const LAST: Duration = Duration::from_secs(2);

/// Publishes records in the background.
pub struct Records {
    told: Told,
    /// The events that the broker has confirmed.
    published: AtomicU64,
    /// The program and its host, for the field `by`.
    by: String,
    buffer: mpsc::Sender<Line>,
    /// The records that are neither confirmed nor dropped.
    open: watch::Sender<usize>,
    dropped: Arc<Dropped>,
    closing: CancellationToken,
    publishing: TaskTracker,
}

impl Records {
    /// Starts to publish, if the topology has the stream; otherwise nothing is told. The broker connects at the first record.
    ///
    /// Must be called within a tokio runtime.
    #[must_use]
    pub fn start(topology: &Topology, broker: Arc<dyn Broker>, by: &str) -> Arc<Self> {
        let (records, waiting) = Self::new(topology.life_cycle.events, by.to_owned());
        if topology.life_cycle.has_stream() {
            let (open, dropped) = (records.open.clone(), Arc::clone(&records.dropped));
            let exchange = Names::new(topology.name.clone()).life_cycle();
            let task = Publishing { broker, exchange, waiting, open, dropped, closing: records.closing.clone() };
            records.publishing.spawn(task.run());
        }
        records.publishing.close();
        Arc::new(records)
    }

    fn new(told: Told, by: String) -> (Self, mpsc::Receiver<Line>) {
        let (buffer, waiting) = mpsc::channel(BUFFER);
        let (open, dropped, closing) = (watch::Sender::new(0), Arc::default(), CancellationToken::new());
        let publishing = TaskTracker::new();
        (Self { told, published: AtomicU64::new(0), by, buffer, open, dropped, closing, publishing }, waiting)
    }

    /// Tells what has happened to an event.
    pub(crate) fn tell(&self, event: &Event, transition: &Transition) {
        if self.told.takes(&TransitionName::of(transition)) {
            self.send(|| LifeCycleRecord::of(event, transition, Timestamp::now(), Some(&self.by)));
        }
    }

    /// Tells that the broker has confirmed an event.
    pub(crate) fn tell_published(&self, event: &Event, due: Timestamp) {
        self.published.fetch_add(1, Ordering::Relaxed);
        if self.told.takes(&TransitionName::Published) {
            self.send(|| LifeCycleRecord::published(event, due, Timestamp::now(), Some(&self.by)));
        }
    }

    /// Returns how many events the broker has confirmed.
    #[cfg(feature = "internals")]
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }

    /// Tells of a transition that no run causes: a person's command, a pause, a breaker. `fill` adds what the record says about it.
    pub(crate) fn tell_that(&self, transition: TransitionName, fill: impl FnOnce(&mut LifeCycleRecord)) {
        if self.told.takes(&transition) {
            self.send(|| {
                let mut record = LifeCycleRecord::bare(transition, Timestamp::now(), Some(&self.by));
                fill(&mut record);
                record
            });
        }
    }

    /// Tells that a pause or a breaker has begun or ended. `due`: when a pause ends by itself.
    pub fn tell_switch(&self, transition: TransitionName, of: &Paused, reason: &str, due: Option<Timestamp>) {
        self.tell_that(transition, |record| {
            if let Paused::Type(name) = of {
                record.event_type = Some(name.0.to_string());
            }
            record.of = Some(of.to_string());
            record.reason = Some(cut_reason(reason).to_owned()).filter(|reason| !reason.is_empty());
            record.due = due;
        });
    }

    /// Publishes a record later, if there is room. Without room it is not even made.
    fn send(&self, record: impl FnOnce() -> LifeCycleRecord) {
        let room = match self.buffer.try_reserve() {
            Ok(room) => room,
            Err(TrySendError::Full(())) => return self.dropped.note(1, &"the broker takes fewer than there are"),
            Err(TrySendError::Closed(())) => return self.dropped.note(1, &ENDS),
        };
        self.open.send_modify(|open| *open += 1);
        room.send(Line::from(&record()));
    }

    /// Returns the records that were dropped since the last call.
    pub(crate) fn take_dropped(&self) -> Unrecorded {
        std::mem::take(&mut self.dropped.state().untold)
    }

    /// Waits until what was told is confirmed or dropped, for two seconds at the most.
    pub async fn flush(&self) {
        // The sender is never dropped while this borrows it.
        let _ = timeout(LAST, self.open.subscribe().wait_for(|open| *open == 0)).await;
    }

    /// Waits as [`flush`](Self::flush) does, and drops the rest, and what is told later.
    pub async fn close(&self) {
        self.flush().await;
        self.closing.cancel();
        self.publishing.wait().await;
    }
}

/// Nothing is told.
impl Default for Records {
    fn default() -> Self {
        let (records, _) = Self::new(Told::Off, String::new());
        records.publishing.close();
        records
    }
}

/// The reason of records that are dropped at the end.
const ENDS: &str = "the program ends";

/// The task that publishes.
struct Publishing {
    broker: Arc<dyn Broker>,
    exchange: String,
    waiting: mpsc::Receiver<Line>,
    open: watch::Sender<usize>,
    dropped: Arc<Dropped>,
    closing: CancellationToken,
}

impl Publishing {
    /// Publishes until nobody can tell anything more, or the end. Drops the rest.
    async fn run(mut self) {
        let closing = self.closing.clone();
        closing.run_until_cancelled(self.publish()).await;
        // A record that somebody tells from now on is counted there.
        self.waiting.close();
        while self.waiting.recv().await.is_some() {}
        let left = self.open.send_replace(0);
        if left > 0 {
            self.dropped.note(left, &ENDS);
        }
    }

    async fn publish(&mut self) {
        let mut lines = Vec::new();
        while self.waiting.recv_many(&mut lines, BUFFER).await > 0 {
            let began = Instant::now();
            let next = match self.publish_all(batches(lines.drain(..))).await {
                true => began + PACE,
                // Nobody waits for the rest of a program that has ended, so it is not tried for hours.
                false if self.waiting.is_closed() => return,
                false => Instant::now() + AGAIN,
            };
            sleep_until(next).await;
        }
    }

    /// Returns whether the broker has confirmed all.
    async fn publish_all(&self, batches: Vec<Batch>) -> bool {
        let (mut answers, mut are_confirmed) = (self.answers(batches), true);
        while let Some((records, confirmed)) = answers.next().await {
            if let Err(error) = confirmed {
                self.dropped.note(records, &error);
                are_confirmed = false;
            }
            self.open.send_modify(|open| *open -= records);
        }
        are_confirmed
    }

    /// Gives the connection one message after the other, because their order is that of an event's records, and waits for the confirms side
    /// by side. Returns the broker's answer for so many records.
    fn answers(&self, batches: Vec<Batch>) -> BoxStream<'static, (usize, Result<(), BrokerError>)> {
        let (broker, exchange) = (Arc::clone(&self.broker), self.exchange.clone());
        let sent = stream::iter(batches).then(move |batch| {
            let (broker, records, message) = (Arc::clone(&broker), batch.records, batch.message(&exchange));
            async move { (records, broker.record(message).await) }
        });
        let answers = sent.map(|(records, sent)| async move { (records, async { sent?.await }.await) });
        answers.buffer_unordered(UNCONFIRMED).boxed()
    }
}

/// Counts the dropped records, and says so once a minute.
struct Dropped {
    counter: Counter,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The records since the last `take_dropped`.
    untold: Unrecorded,
    /// The records since the last line of the log.
    unsaid: u64,
    reminder: Reminder,
}

impl Default for Dropped {
    fn default() -> Self {
        Self { counter: counter!(meter::RECORDS_DROPPED), state: Mutex::default() }
    }
}

impl Dropped {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, records: usize, why: &dyn fmt::Display) {
        let records = records as u64;
        self.counter.increment(records);
        let mut state = self.state();
        state.untold.records += records;
        state.untold.why = Some(cut_reason(&why.to_string()).to_owned());
        state.unsaid += records;
        if state.reminder.is_due() {
            let records = std::mem::take(&mut state.unsaid);
            tracing::warn!(records, "what happens to events is not recorded: {why}; the events themselves go on");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use tokio::task::yield_now;

    use super::*;
    use crate::{
        adapters::{
            clock::SystemClock,
            memory::{MemoryBroker, script::Script},
        },
        domain::{
            compile::compile,
            wire::{self, Incoming, Properties},
        },
    };

    fn started(script: Script) -> (Arc<Records>, Arc<Script>) {
        let topology = crate::file::read("version: 1\nname: t\nlife-cycle: all\ntypes: { mail: {} }", "topology.yaml")
            .expect("a valid file");
        let (desired, script) =
            (compile(&topology).expect("a safe topology"), Arc::new(Script { are_records_scripted: true, ..script }));
        let broker = MemoryBroker::scripted(&desired, Arc::new(SystemClock), Arc::clone(&script));
        (Records::start(&topology, Arc::new(broker), "test"), script)
    }

    /// Tells of a publish, with the number as the id.
    fn tell(records: &Records, n: usize) {
        let (event_type, at) = ("mail".parse().expect("a word"), Timestamp::UNIX_EPOCH);
        let properties = Properties { message_id: Some(n.to_string()), ..Properties::default() };
        let incoming = Incoming { routing_key: "mail.now".into(), properties, body: "".into() };
        let event = wire::decode(&event_type, incoming, at, String::new).expect("an event");
        records.tell_published(&event, at);
    }

    fn published(script: &Script) -> Vec<usize> {
        let published = script.published.lock().expect("no test panics");
        let records = published.iter().flat_map(|message| LifeCycleRecord::parse_all(&message.body));
        let ids = records.map(|record| record.expect("a record").id.expect("the id of an event"));
        ids.map(|id| id.parse().expect("a number")).collect()
    }

    /// Waits until the task has taken all that was told.
    async fn taken(records: &Records) {
        while records.buffer.capacity() < BUFFER {
            yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_published_in_order_in_few_messages_when_the_program_ends() {
        let (records, script) = started(Script::default());
        (0..5_000).for_each(|n| tell(&records, n));
        records.close().await;
        assert!(published(&script).into_iter().eq(0..5_000));
        let messages = script.published.lock().expect("no test panics").len();
        assert!(messages < 50, "{messages}");
        tell(&records, 5_000);
        assert_eq!(records.take_dropped().records, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_record_does_not_wait_and_the_next_ones_wait_for_a_moment() {
        let (records, script) = started(Script::default());
        let begun = Instant::now();
        for (n, after) in [(0, Duration::ZERO), (1, PACE), (2, 2 * PACE)] {
            tell(&records, n);
            records.flush().await;
            assert_eq!((published(&script).len(), begun.elapsed()), (n + 1, after));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_takes_nothing_holds_nobody_up_and_the_rest_is_counted() {
        let (records, script) = started(Script::default());
        script.blocked.store(true, Ordering::SeqCst);
        tell(&records, 0);
        taken(&records).await;
        (0..BUFFER + 7).for_each(|n| tell(&records, n));
        assert_eq!(records.take_dropped().records, 7);
        records.close().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_records_of_a_lost_message_are_counted_and_the_next_ones_wait_longer() {
        let (records, script) = started(Script::default());
        script.lose.store(1, Ordering::SeqCst);
        let begun = Instant::now();
        (0..3).for_each(|n| tell(&records, n));
        taken(&records).await;
        tell(&records, 3);
        while published(&script).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(begun.elapsed() >= AGAIN);
        assert_eq!((published(&script), records.take_dropped().records), (vec![3], 3));
    }
}
