//! Workers in this process, and what they ran.

use std::sync::{Arc, Mutex};

use hatchery::{CancellationToken, Event, Hatchery, Outcome, Run, Summary, WorkError, Worker};
use jiff::Timestamp;
use tokio::{sync::Semaphore, task::JoinHandle};

use super::broker::eventually;

/// What ran, in the order of the starts.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<Mutex<Vec<Seen>>>);

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) event: Event,
    pub(crate) fence: Option<i64>,
    pub(crate) at: Timestamp,
}

impl Runs {
    pub(crate) fn note(&self, run: &Run) {
        let seen = Seen { event: run.event.clone(), fence: run.fence, at: Timestamp::now() };
        self.0.lock().unwrap().push(seen);
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The payloads, in the order of the starts.
    pub(crate) fn payloads(&self) -> Vec<String> {
        self.seen().iter().map(|seen| String::from_utf8_lossy(&seen.event.payload).into_owned()).collect()
    }

    /// Waits for this many runs.
    pub(crate) async fn reach(&self, count: usize) -> Vec<Seen> {
        eventually(&format!("{count} runs"), async || (self.count() >= count).then(|| self.seen())).await
    }
}

/// A worker that runs until it is told to stop.
pub(crate) struct Working {
    stop: CancellationToken,
    task: JoinHandle<Result<Summary, WorkError>>,
    pub(crate) runs: Runs,
}

impl Working {
    /// Works on two types, with a handler that is done at once. The runs of the first one are its own; and those of the second.
    pub(crate) fn start_both(hatchery: &Hatchery, types: [&str; 2]) -> (Self, Runs) {
        let runs = [Runs::default(), Runs::default()];
        let mut worker = hatchery.worker();
        for (event_type, runs) in types.into_iter().zip(runs.clone()) {
            worker = worker.handle(event_type, move |run: Run| {
                runs.note(&run);
                std::future::ready(Ok::<_, String>(Outcome::Done))
            });
        }
        let [first, second] = runs;
        (Self::run(worker, first), second)
    }

    /// Works on one type with a handler that answers at once.
    pub(crate) fn start(
        hatchery: &Hatchery,
        event_type: &str,
        answer: impl Fn(&Event) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        Self::with(hatchery.worker(), event_type, answer)
    }

    /// The same with a worker that was told more.
    pub(crate) fn with(
        worker: Worker,
        event_type: &str,
        answer: impl Fn(&Event) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        let runs = Runs::default();
        let noted = runs.clone();
        let worker = worker.handle(event_type, move |run: Run| {
            noted.note(&run);
            std::future::ready(Ok::<_, String>(answer(&run.event)))
        });
        Self::run(worker, runs)
    }

    /// A worker whose handlers do not end before they are let.
    pub(crate) fn gated(worker: Worker, event_type: &str) -> (Self, Gate) {
        Self::gated_with(worker, event_type, Outcome::Done)
    }

    /// The same, with another answer than done.
    pub(crate) fn gated_with(worker: Worker, event_type: &str, answer: Outcome) -> (Self, Gate) {
        let (runs, gate) = (Runs::default(), Gate(Arc::new(Semaphore::new(0))));
        let (noted, gated) = (runs.clone(), gate.clone());
        let worker = worker.handle(event_type, move |run: Run| {
            noted.note(&run);
            let (Gate(gate), answer) = (gated.clone(), answer.clone());
            async move {
                gate.acquire().await.map_err(|error| error.to_string())?.forget();
                Ok::<_, String>(answer)
            }
        });
        (Self::run(worker, runs), gate)
    }

    /// A worker that notes what it runs by itself.
    pub(crate) fn run(worker: Worker, runs: Runs) -> Self {
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(worker.run(stop.clone())), stop, runs }
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) async fn stop(self) -> Summary {
        self.stop.cancel();
        self.task.await.unwrap().unwrap()
    }

    /// Waits until it stops by itself.
    pub(crate) async fn ended(self) -> Result<Summary, WorkError> {
        self.task.await.unwrap()
    }

    /// Ends it in the middle of everything, as a crash does: nothing is released or given back.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }
}

/// Lets handlers end.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn let_through(&self, handlers: usize) {
        self.0.add_permits(handlers);
    }
}
