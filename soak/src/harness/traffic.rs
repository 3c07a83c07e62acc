//! Publishes and works with the library in this process.

use std::{
    convert::Infallible,
    future::ready,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures_util::{TryStreamExt as _, stream};
use hatchery::{CancellationToken, Hatchery, NewEvent, Outcome, Publisher, Run, Summary, WorkError};
use hatchery_soak::{
    chance::Chance,
    console::Console,
    plan::{Plan, Wait},
    runs::{self, Runs},
    stage::Stage,
};
use jiff::Timestamp;
use tokio::task::JoinHandle;

use super::{
    look::{Look, PATIENCE, until_over},
    queues::Queues,
};

/// The payload of events. Most real events have a few hundred bytes.
pub(crate) const PAYLOAD: [u8; 256] = [b'7'; 256];

/// Publishes a plan. Returns how long publishing took, without the pauses between bursts.
pub(crate) async fn publish_plan(publisher: Publisher, plan: Plan) -> anyhow::Result<Duration> {
    let (mut turn, mut took) = (tokio::time::interval(plan.every), Duration::ZERO);
    for burst in plan.bursts() {
        turn.tick().await;
        let (started, now) = (Instant::now(), Timestamp::now());
        let events = burst.into_iter().map(|(number, planned)| {
            let event = NewEvent::new(planned.event_type, PAYLOAD.to_vec()).id(number.to_string());
            match planned.wait {
                Wait::Named(wait) => event.delay(wait),
                Wait::Ladder(wait) => event.at(now + wait),
            }
        });
        publish_all(&publisher, events).await?;
        took += started.elapsed();
    }
    Ok(took)
}

/// Publishes a plan, and works on this type until its events have run and the queues but these are empty. Returns the runs,
/// and how long publishing took.
pub(crate) async fn run_plan(
    stage: &Stage,
    queues: &Queues,
    console: &mut Console,
    plan: &Plan,
    event_type: &str,
    but: &[String],
) -> anyhow::Result<(Vec<runs::Run>, Duration)> {
    let hatchery = stage.connect().await?;
    let working = Working::start(&hatchery, &[event_type]);
    let publishing = tokio::spawn(publish_plan(hatchery.publisher(), plan.clone()));
    let runs = working.finish(console, queues, plan.events.len(), plan.longest(), but).await?;
    let took = publishing.await??;
    hatchery.close().await;
    Ok((runs, took))
}

/// Publishes events as fast as possible, and waits for all confirms.
pub(crate) async fn publish_all(
    publisher: &Publisher,
    events: impl Iterator<Item = NewEvent> + Send,
) -> anyhow::Result<()> {
    let published = publisher.publish_stream(stream::iter(events));
    published.try_for_each(|_| ready(Ok(()))).await.context("an event was not confirmed")
}

/// Publishes this many events of a type, with their numbers as ids, in a random order. `with` adds to an event what it needs.
pub(crate) fn publish_shuffled(
    hatchery: &Hatchery,
    chance: &mut Chance,
    event_type: &'static str,
    events: u32,
    with: impl Fn(u32, NewEvent) -> NewEvent + Send + 'static,
) -> JoinHandle<anyhow::Result<()>> {
    let mut order: Vec<u32> = (0..events).collect();
    chance.shuffle(&mut order);
    let publisher = hatchery.publisher();
    let event = move |number: u32| with(number, NewEvent::new(event_type, PAYLOAD.to_vec()).id(number.to_string()));
    tokio::spawn(async move { publish_all(&publisher, order.into_iter().map(event)).await })
}

/// A worker that notes its runs.
pub(crate) struct Working {
    pub(crate) runs: Runs,
    stop: CancellationToken,
    task: JoinHandle<Result<Summary, WorkError>>,
}

impl Working {
    pub(crate) fn start(hatchery: &Hatchery, types: &[&str]) -> Self {
        let (runs, stop) = (Runs::default(), CancellationToken::new());
        let worker = types.iter().fold(hatchery.worker(), |worker, event_type| {
            let runs = runs.clone();
            worker.handle(event_type, move |run: Run| {
                runs.note(&run.event);
                ready(Ok::<_, Infallible>(Outcome::Done))
            })
        });
        Self { runs, task: tokio::spawn(worker.run(stop.clone())), stop }
    }

    /// Waits for this many runs, and then until the queues but these are empty, so that a second run of an event is noted
    /// too. Gives up `PATIENCE` and the longest delay after the last run. Returns the runs.
    pub(crate) async fn finish(
        self,
        console: &mut Console,
        queues: &Queues,
        expected: usize,
        longest: Duration,
        but: &[String],
    ) -> anyhow::Result<Vec<runs::Run>> {
        watch(console, expected, longest, &self.runs, async || queues.are_busy(but).await).await?;
        self.stop().await
    }

    pub(crate) async fn stop(self) -> anyhow::Result<Vec<runs::Run>> {
        self.stop.cancel();
        self.task.await??;
        Ok(self.runs.all())
    }
}

/// Waits for this many runs, and then until nothing is busy. Gives up `PATIENCE` and the longest delay after the last run.
pub(crate) async fn watch(
    console: &mut Console,
    expected: usize,
    longest: Duration,
    runs: &Runs,
    busy: impl AsyncFn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let look = async || {
        let done = runs.len();
        let is_over = done >= expected && !busy().await?;
        Ok(Look { done, all: expected, said: String::new(), is_over })
    };
    until_over(console, longest + PATIENCE, look).await
}
