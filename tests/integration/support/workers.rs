//! Workers inside the test process, and the runs that they record.

use std::sync::{Arc, Mutex};

use hatchery::{CancellationToken, Event, Hatchery, Outcome, Run, Summary, WorkError, Worker};
use jiff::Timestamp;
use tokio::{sync::Semaphore, task::JoinHandle};

use super::broker::eventually;

/// The recorded runs, in the order of their starts.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<Mutex<Vec<Seen>>>);

/// One recorded run.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) event: Event,
    pub(crate) fence: Option<i64>,
    pub(crate) at: Timestamp,
}

impl Runs {
    pub(crate) fn note(&self, run: &Run) {
        let seen = Seen { event: Event::clone(&run.event), fence: run.fence, at: Timestamp::now() };
        self.0.lock().unwrap().push(seen);
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Returns the payloads, in the order of the starts.
    pub(crate) fn payloads(&self) -> Vec<String> {
        self.seen().iter().map(|seen| String::from_utf8_lossy(&seen.event.payload).into_owned()).collect()
    }

    /// Waits until this many runs have started, and returns all.
    pub(crate) async fn reach(&self, count: usize) -> Vec<Seen> {
        eventually(&format!("{count} runs have started"), async || (self.count() >= count).then(|| self.seen())).await
    }
}

/// A worker that runs until a test stops it.
pub(crate) struct Working {
    stop: CancellationToken,
    task: JoinHandle<Result<Summary, WorkError>>,
    pub(crate) runs: Runs,
}

impl Working {
    /// Starts a worker on two types whose handlers answer "done" at once. `runs` of the worker are those of the first
    /// type; those of the second type are returned beside it.
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

    /// Starts a worker on one type whose handler answers at once.
    pub(crate) fn start(
        hatchery: &Hatchery,
        event_type: &str,
        answer: impl Fn(&Event) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        Self::with(hatchery.worker(), event_type, answer)
    }

    /// Starts the given worker on one type with a handler that answers at once.
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

    /// Starts a worker whose handlers wait until the gate lets them end.
    pub(crate) fn gated(worker: Worker, event_type: &str) -> (Self, Gate) {
        Self::gated_with(worker, event_type, Outcome::Done)
    }

    /// Starts the same worker with another outcome than "done".
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

    /// Starts a worker whose handlers record their runs themselves.
    pub(crate) fn run(worker: Worker, runs: Runs) -> Self {
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(worker.run(stop.clone())), stop, runs }
    }

    /// Stops the worker and waits for its summary.
    pub(crate) async fn stop(self) -> Summary {
        self.stop.cancel();
        self.task.await.unwrap().unwrap()
    }

    /// Waits until the worker stops by itself.
    pub(crate) async fn ended(self) -> Result<Summary, WorkError> {
        self.task.await.unwrap()
    }

    /// Aborts the worker as a crash does: it releases nothing and gives nothing back.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }
}

/// Holds handlers until it lets them end.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn let_through(&self, handlers: usize) {
        self.0.add_permits(handlers);
    }
}
