//! Publishes and works with the library in this process.

use std::{
    convert::Infallible,
    future::ready,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures_util::{TryStreamExt as _, stream};
use hatchery::{
    CancellationToken, Hatchery, NewEvent, Outcome, Publisher, Run, Summary, Topology, WorkError, internals::compile,
};
use jiff::Timestamp;
use tokio::task::JoinHandle;

use crate::{
    console::Console,
    plan::{Plan, Wait},
    queues::Queues,
    runs::Runs,
};

/// The payload of events. Most real events have a few hundred bytes.
pub(crate) const PAYLOAD: [u8; 256] = [b'7'; 256];

/// How long the last event may take after it was due.
const PATIENCE: Duration = Duration::from_secs(90);
const TICK: Duration = Duration::from_millis(100);

/// Publishes a plan. Returns how long publishing took, without the pauses between bursts.
pub(crate) async fn publish(publisher: Publisher, plan: Plan) -> anyhow::Result<Duration> {
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
        let published = publisher.publish_stream(stream::iter(events));
        published.try_for_each(|_| ready(Ok(()))).await.context("an event was not confirmed")?;
        took += started.elapsed();
    }
    Ok(took)
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

    pub(crate) async fn stop(self) -> anyhow::Result<Runs> {
        self.stop.cancel();
        self.task.await??;
        Ok(self.runs)
    }
}

/// Waits for this many runs, and then until the queues are empty, so that a second run of an event is noted too. Gives
/// up `PATIENCE` after the longest delay, or after the last run.
pub(crate) async fn watch(
    console: &mut Console,
    runs: &Runs,
    expected: usize,
    longest: Duration,
    busy: impl AsyncFn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let (mut calm, mut deadline) = (0, Instant::now() + longest + PATIENCE);
    let mut before = 0;
    while calm < 3 && Instant::now() < deadline {
        tokio::time::sleep(TICK).await;
        let done = runs.len();
        if done > before {
            (before, deadline) = (done, deadline.max(Instant::now() + PATIENCE));
        }
        console.progress(done.min(expected), expected, "");
        calm = if done >= expected && !busy().await? { calm + 1 } else { 0 };
    }
    console.end_progress();
    Ok(())
}

/// Returns whether a message is in a queue that leads to a worker. Checks all queues of the topology except `but`, the
/// dead-letter queues and `unrouted`.
pub(crate) async fn is_busy(queues: &Queues, topology: &Topology, but: &[String]) -> anyhow::Result<bool> {
    let rests = |name: &String| name.contains(".dead-letter.") || name.ends_with(".unrouted") || but.contains(name);
    let names = compile::compile(topology)?.queues.into_iter().map(|queue| queue.name);
    let names: Vec<String> = names.filter(|name| !rests(name)).collect();
    Ok(queues.ready(&names).await? > 0)
}
