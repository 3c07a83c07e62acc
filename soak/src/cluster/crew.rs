//! Runs publishers and workers that know all nodes, and notes their confirms and runs.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use futures_util::future::join_all;
use hatchery::{CancellationToken, Hatchery, NewEvent, Outcome, PublishError, Publisher, Run, WorkError};
use jiff::Timestamp;
use tokio::{task::JoinHandle, time::MissedTickBehavior};

use super::stalls::{Marks, Stream};
use crate::harness::{Chance, PAYLOAD, Runs, Stage, lock};

pub(super) const TYPES: [&str; 4] = ["now", "later", "ordered", "change"];
pub(super) const NOW: usize = 0;
pub(super) const LATER: usize = 1;
pub(super) const ORDERED: usize = 2;
pub(super) const CHANGE: usize = 3;
/// The shares of the types in the published events. `ordered` has the smallest share, because one worker at a time
/// handles its events, one after the other.
const WEIGHTS: [u32; TYPES.len()] = [4, 4, 1, 4];

/// The number of publishers, and of workers.
pub(super) const EACH: usize = 3;
/// The number of the publisher in the ids of events that are published in a burst.
pub(super) const BURST: usize = EACH;
/// The number of references of `change` that one publisher changes in turn. No two publishers share a reference, so it
/// is certain which change is the newer one.
pub(super) const REFERENCES: u32 = 20;
/// Of this many events of `now` and `later`, the first run of one fails.
const FAIL_EVERY: u32 = 50;
/// The range of delays of events of `later`, in milliseconds.
const WAIT: (u64, u64) = (500, 10_000);
/// How late an event may be while the cluster is healthy, in microseconds. A failed event waits a second for its second
/// try.
const LATE: i64 = 10_000_000;
/// The pause before an event that was not confirmed is published again.
const PAUSE: Duration = Duration::from_millis(100);

/// An event that was published.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) confirmed: bool,
    /// How often it was published until it was confirmed.
    pub(super) tries: u32,
    pub(super) unversioned: bool,
    /// Microseconds since 1970.
    due: i64,
}

/// Returns the number of a publisher's first event of a type. An event's number, which is its id, is made of the type,
/// the publisher, and the place among the publisher's events of the type.
pub(super) fn first_number(event_type: usize, publisher: usize) -> u32 {
    u32::try_from(event_type * 100_000_000 + publisher * 10_000_000).unwrap_or(u32::MAX)
}

/// The notes of publishers and workers.
#[derive(Clone, Default)]
pub(super) struct Seen {
    pub(super) marks: Marks,
    pub(super) runs: Runs,
    done: Arc<Mutex<BTreeSet<u32>>>,
    sent: Arc<Mutex<[[Vec<Sent>; EACH + 1]; TYPES.len()]>>,
}

impl Seen {
    /// Returns a publisher's events of a type.
    pub(super) fn sent(&self, event_type: usize, publisher: usize) -> Vec<Sent> {
        lock(&self.sent)[event_type][publisher].clone()
    }

    /// Returns how many events were confirmed.
    pub(super) fn confirmed(&self) -> usize {
        lock(&self.sent).iter().flatten().flatten().filter(|sent| sent.confirmed).count()
    }

    /// Returns how many confirmed events were due before `before`, in microseconds, and have not been handled. Changes
    /// are not counted, because a newer one may have replaced them.
    pub(super) fn overdue(&self, before: i64) -> usize {
        let (done, sent) = (lock(&self.done), lock(&self.sent));
        let mut overdue = 0;
        for event_type in [NOW, LATER, ORDERED] {
            for (publisher, sent) in sent[event_type].iter().enumerate() {
                let numbered = (first_number(event_type, publisher)..).zip(sent);
                let late =
                    numbered.filter(|(number, sent)| sent.confirmed && sent.due < before && !done.contains(number));
                overdue += late.count();
            }
        }
        overdue
    }

    /// Notes a new event, and returns its number.
    pub(super) fn begin(&self, event_type: usize, publisher: usize, due: i64) -> u32 {
        let sent = &mut lock(&self.sent)[event_type][publisher];
        sent.push(Sent { confirmed: false, tries: 0, unversioned: false, due });
        first_number(event_type, publisher) + u32::try_from(sent.len() - 1).unwrap_or(u32::MAX)
    }

    /// Notes that an event was confirmed after it was published this many times.
    pub(super) fn confirm(&self, event_type: usize, publisher: usize, number: u32, tries: u32, unversioned: bool) {
        let place = number - first_number(event_type, publisher);
        if let Some(sent) = lock(&self.sent)[event_type][publisher].get_mut(place as usize) {
            *sent = Sent { confirmed: true, tries, unversioned, due: sent.due };
        }
    }

    fn handle(&self, worker: usize, event_type: usize, run: &Run) -> anyhow::Result<Outcome> {
        let number: u32 = run.event.id.parse().context("an id that is no number")?;
        let may_fail = event_type == NOW || event_type == LATER;
        if may_fail && run.event.attempts == 0 && number.is_multiple_of(FAIL_EVERY) {
            bail!("the first try fails");
        }
        self.runs.note(&run.event);
        lock(&self.done).insert(number);
        if event_type != ORDERED {
            self.marks.mark(Stream::Worker(worker));
        }
        self.marks.mark(Stream::Handled(event_type));
        Ok(Outcome::Done)
    }
}

pub(super) struct Crew {
    pub(super) seen: Seen,
    hatcheries: Vec<Hatchery>,
    publishers: Vec<Publisher>,
    publishing: Vec<JoinHandle<anyhow::Result<()>>>,
    working: Vec<JoinHandle<Result<hatchery::Summary, WorkError>>>,
    stop_publishing: CancellationToken,
    stop_working: CancellationToken,
}

impl Crew {
    /// Starts all publishers and workers. `rate` is the number of events a second from all publishers. Each publisher
    /// publishes the events of a type one after the other.
    pub(super) async fn start(stage: &Stage, rate: u32, chance: &mut Chance) -> anyhow::Result<Self> {
        let mut crew = Self {
            seen: Seen::default(),
            hatcheries: Vec::new(),
            publishers: Vec::new(),
            publishing: Vec::new(),
            working: Vec::new(),
            stop_publishing: CancellationToken::new(),
            stop_working: CancellationToken::new(),
        };
        for worker in 0..EACH {
            let hatchery = connect(stage, &worker_name(worker)).await?;
            let handlers = TYPES.iter().enumerate().fold(hatchery.worker(), |handlers, (event_type, name)| {
                let seen = crew.seen.clone();
                handlers.handle(name, move |run: Run| {
                    let handled = seen.handle(worker, event_type, &run);
                    async move { handled }
                })
            });
            crew.working.push(tokio::spawn(handlers.run(crew.stop_working.clone())));
            crew.hatcheries.push(hatchery);
        }
        for publisher in 0..EACH {
            let hatchery = connect(stage, &publisher_name(publisher)).await?;
            crew.publishers.push(hatchery.publisher());
            for (event_type, weight) in WEIGHTS.into_iter().enumerate() {
                let mut line = Line {
                    seen: crew.seen.clone(),
                    to: hatchery.publisher(),
                    event_type,
                    publisher,
                    chance: chance.fork(),
                };
                let stop = crew.stop_publishing.clone();
                let each = u32::try_from(EACH)? * WEIGHTS.iter().sum::<u32>();
                let every = Duration::from_secs(1) * each / (rate * weight);
                crew.publishing.push(tokio::spawn(async move {
                    let mut turn = tokio::time::interval(every);
                    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
                    while stop.run_until_cancelled(turn.tick()).await.is_some() {
                        line.publish().await?;
                    }
                    Ok(())
                }));
            }
            crew.hatcheries.push(hatchery);
        }
        Ok(crew)
    }

    /// Publishes this many events of `now` at once, in addition to the regular ones.
    pub(super) fn burst(&mut self, events: usize) {
        let (seen, to) = (self.seen.clone(), self.publishers[0].clone());
        self.publishing.push(tokio::spawn(async move {
            let line = || Line {
                seen: seen.clone(),
                to: to.clone(),
                event_type: NOW,
                publisher: BURST,
                chance: Chance::new(0),
            };
            let all = (0..events).map(|_| async move { line().publish().await });
            join_all(all).await.into_iter().collect()
        }));
    }

    /// Returns a message if a stream has stalled since `from`, or if events are late.
    pub(super) fn still_since(&self, from: Instant) -> Option<String> {
        let still = streams().into_iter().find(|stream| !self.seen.marks.moved_since(*stream, from));
        if let Some(still) = still {
            return Some(format!("{still:?} has stalled"));
        }
        match self.seen.overdue(Timestamp::now().as_microsecond() - LATE) {
            0 => None,
            late => Some(format!("{late} events are late by more than {} s", LATE / 1_000_000)),
        }
    }

    pub(super) async fn require_alive(&mut self) -> anyhow::Result<()> {
        if let Some(ended) = self.working.iter_mut().find(|task| task.is_finished()) {
            bail!("a worker has ended by itself: {:?}", ended.await?);
        }
        let mut going = Vec::new();
        for task in self.publishing.drain(..) {
            if task.is_finished() { task.await?? } else { going.push(task) }
        }
        self.publishing = going;
        Ok(())
    }

    /// Stops the publishers. Waits until the events that they have begun are confirmed.
    pub(super) async fn stop_publishing(&mut self) -> anyhow::Result<()> {
        self.stop_publishing.cancel();
        for task in self.publishing.drain(..) {
            task.await??;
        }
        Ok(())
    }

    pub(super) async fn stop(self) -> anyhow::Result<Seen> {
        self.stop_working.cancel();
        for task in self.working {
            task.await??;
        }
        join_all(self.hatcheries.into_iter().map(Hatchery::close)).await;
        Ok(self.seen)
    }
}

/// One publisher's events of one type.
struct Line {
    seen: Seen,
    to: Publisher,
    event_type: usize,
    publisher: usize,
    chance: Chance,
}

impl Line {
    /// Publishes the next event, and repeats the publish until it is confirmed.
    async fn publish(&mut self) -> anyhow::Result<()> {
        let Self { event_type, publisher, .. } = *self;
        let now = Timestamp::now();
        let wait = if event_type == LATER { self.chance.between(WAIT.0, WAIT.1) } else { 0 };
        let due = now + Duration::from_millis(wait);
        let number = self.seen.begin(event_type, publisher, due.as_microsecond());
        let mut event = NewEvent::new(TYPES[event_type], PAYLOAD.to_vec()).id(number.to_string());
        if event_type == LATER {
            event = event.at(due);
        }
        let place = number - first_number(event_type, publisher);
        if event_type == CHANGE {
            event = event.reference(format!("{publisher}-{}", place % REFERENCES));
        }
        let mut tries = 0;
        let published = loop {
            tries += 1;
            match self.to.publish(event.clone()).await {
                Ok(published) => break published,
                Err(PublishError::Broker(_) | PublishError::Timeout) => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        };
        self.seen.marks.mark(Stream::Confirms { publisher, event_type });
        self.seen.confirm(event_type, publisher, number, tries, published.unversioned);
        Ok(())
    }
}

/// Returns all streams, none of which pauses while the cluster is healthy.
fn streams() -> Vec<Stream> {
    let handled = (0..TYPES.len()).map(Stream::Handled);
    confirms().into_iter().chain(workers()).chain(handled).collect()
}

pub(super) fn confirms() -> Vec<Stream> {
    let of = |publisher| (0..TYPES.len()).map(move |event_type| Stream::Confirms { publisher, event_type });
    (0..EACH).flat_map(of).collect()
}

pub(super) fn workers() -> Vec<Stream> {
    (0..EACH).map(Stream::Worker).collect()
}

async fn connect(stage: &Stage, name: &str) -> anyhow::Result<Hatchery> {
    Ok(stage.builder().name(name).connect().await?)
}

pub(super) fn worker_name(worker: usize) -> String {
    format!("soak worker {worker}")
}

fn publisher_name(publisher: usize) -> String {
    format!("soak publisher {publisher}")
}

/// Returns the connection names of the publishers, and those of the workers.
pub(super) fn connections() -> [Vec<String>; 2] {
    let publishing = |publisher| format!("{} (publishing)", publisher_name(publisher));
    [(0..EACH).map(publishing).collect(), (0..EACH).map(worker_name).collect()]
}
