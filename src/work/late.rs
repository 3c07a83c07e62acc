//! Runs that outlive their delivery: RabbitMQ takes a delivery back after its `consumer_timeout`, or with the connection, while
//! the event runs. The acknowledgement of the run then reaches nobody, and the event is delivered again.
//!
//! The register drops the redelivery of an event that has finished. For types without it, each worker remembers such runs of
//! its own. A redelivery that comes while the run goes on is acknowledged in its place, and one that comes after it at once.
//! Another worker cannot know, and runs the event again.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    domain::event::Event,
    ports::{Disposition, Receipt},
};

/// The most runs that are remembered. A redelivery mostly comes within seconds of the run's end.
const MOST: usize = 1_000;

/// How long a run is remembered. Another worker may have had its redelivery.
const REMEMBERED: Duration = Duration::from_mins(10);

/// What names a copy of an event. It has its payload and the time of its publishing too: an id may be published again. So an
/// event without that time is never recognised.
type Key = u128;

/// The runs of a worker's types without the register.
#[derive(Default)]
pub(super) struct LateRuns(Mutex<RunTable>);

#[derive(Default)]
struct RunTable {
    /// The events that run or are about to, each with its redelivery, if there is one.
    held: HashMap<Key, Option<Box<dyn Receipt>>>,
    /// The runs that were settled, and whose acknowledgement came too late, with the time until which they are remembered, the
    /// oldest first.
    settled: VecDeque<(Instant, Key)>,
}

/// Returns what names this copy of an event.
pub(super) fn key(event: &Event) -> Key {
    let mut hash = Xxh3::new();
    for part in [event.event_type.as_str(), &event.id] {
        hash.update(part.as_bytes());
        hash.update(&[0]);
    }
    hash.update(&event.stamp.generation.to_le_bytes());
    hash.update(&event.created_at.as_nanosecond().to_le_bytes());
    hash.update(&event.payload);
    hash.digest128()
}

impl LateRuns {
    /// Takes a redelivery of an event that this worker has run, or runs if `merges`. Returns its receipt if the event is to run.
    pub(super) fn take(&self, key: Key, receipt: Box<dyn Receipt>, merges: bool) -> Option<Box<dyn Receipt>> {
        let mut state = self.state();
        let now = Instant::now();
        state.settled.retain(|(until, _)| *until > now);
        if let Some(at) = state.settled.iter().position(|(_, settled)| *settled == key) {
            state.settled.remove(at);
            drop(receipt.acknowledge());
            return None;
        }
        let Some(redelivery) = state.held.get_mut(&key).filter(|_| merges) else { return Some(receipt) };
        // An earlier redelivery was taken back too, or is that of the same event published twice.
        if let Some(former) = redelivery.replace(receipt) {
            drop(former.answer(Disposition::GiveBack));
        }
        None
    }

    /// Notes an event that is about to run. `None` if it runs already.
    pub(super) fn hold(self: &Arc<Self>, key: Key) -> Option<HeldRun> {
        match self.state().held.entry(key) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => {
                vacant.insert(None);
                Some(HeldRun { runs: Arc::clone(self), key })
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, RunTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event that runs or is about to. If it is dropped, a redelivery that came meanwhile goes back to its queue.
pub(super) struct HeldRun {
    runs: Arc<LateRuns>,
    key: Key,
}

impl HeldRun {
    /// Takes the redelivery, if it has come and is still this worker's.
    pub(super) fn redelivery(&self) -> Option<Box<dyn Receipt>> {
        let redelivery = self.runs.state().held.get_mut(&self.key).and_then(Option::take);
        redelivery.filter(|receipt| receipt.taken_back().is_none())
    }

    /// Notes that the run is settled and its delivery was taken back. Returns the redelivery; if there is none, the run is remembered
    /// until it comes.
    pub(super) fn settled_late(self) -> Option<Box<dyn Receipt>> {
        let redelivery = self.redelivery();
        if redelivery.is_none() {
            let mut state = self.runs.state();
            if state.settled.len() == MOST {
                state.settled.pop_front();
            }
            state.settled.push_back((Instant::now() + REMEMBERED, self.key));
        }
        redelivery
    }
}

impl Drop for HeldRun {
    fn drop(&mut self) {
        let redelivery = self.runs.state().held.remove(&self.key).flatten();
        if let Some(redelivery) = redelivery {
            drop(redelivery.answer(Disposition::GiveBack));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::ports::{TakenBack, Written};

    /// Notes its answer.
    #[derive(Clone, Default)]
    struct Noted {
        answers: Arc<Mutex<Vec<Disposition>>>,
        is_lost: Arc<AtomicBool>,
    }

    impl Noted {
        fn receipt(&self) -> Box<dyn Receipt> {
            Box::new(self.clone())
        }

        fn answers(&self) -> Vec<Disposition> {
            self.answers.lock().expect("no panic").clone()
        }
    }

    impl Receipt for Noted {
        fn answer(self: Box<Self>, disposition: Disposition) -> Written {
            self.answers.lock().expect("no panic").push(disposition);
            Written::default()
        }

        fn taken_back(&self) -> Option<TakenBack> {
            self.is_lost.load(Ordering::Relaxed).then_some(TakenBack::Lost)
        }
    }

    #[test]
    fn a_redelivery_during_the_run_is_answered_in_its_place() {
        let (runs, redelivery) = (Arc::new(LateRuns::default()), Noted::default());
        let run = runs.hold(1).expect("the first run");
        assert!(runs.hold(1).is_none());
        assert!(runs.take(1, redelivery.receipt(), true).is_none());
        assert!(runs.take(2, Noted::default().receipt(), true).is_some(), "another event");
        drop(run.settled_late().expect("the redelivery").acknowledge());
        assert_eq!(redelivery.answers(), [Disposition::Acknowledge]);
        assert!(runs.take(1, redelivery.receipt(), true).is_some(), "it would be a second redelivery");
    }

    #[test]
    fn a_redelivery_after_the_run_is_acknowledged_once() {
        let (runs, redelivery) = (Arc::new(LateRuns::default()), Noted::default());
        assert!(runs.hold(1).expect("the first run").settled_late().is_none());
        assert!(runs.take(1, redelivery.receipt(), true).is_none());
        assert_eq!(redelivery.answers(), [Disposition::Acknowledge]);
        assert!(runs.take(1, redelivery.receipt(), true).is_some());
    }

    #[test]
    fn a_redelivery_that_was_taken_back_too_leaves_the_run_remembered() {
        let (runs, redelivery) = (Arc::new(LateRuns::default()), Noted::default());
        let run = runs.hold(1).expect("the first run");
        assert!(runs.take(1, redelivery.receipt(), true).is_none());
        redelivery.is_lost.store(true, Ordering::Relaxed);
        assert!(run.settled_late().is_none());
        assert!(runs.take(1, Noted::default().receipt(), true).is_none());
    }

    #[test]
    fn a_redelivery_of_a_run_that_is_given_up_goes_back() {
        let (runs, redelivery) = (Arc::new(LateRuns::default()), Noted::default());
        let run = runs.hold(1).expect("the first run");
        assert!(runs.take(1, redelivery.receipt(), true).is_none());
        drop(run);
        assert_eq!(redelivery.answers(), [Disposition::GiveBack]);
        assert!(runs.take(1, redelivery.receipt(), true).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_is_forgotten_after_some_minutes() {
        let runs = Arc::new(LateRuns::default());
        assert!(runs.hold(1).expect("the first run").settled_late().is_none());
        tokio::time::advance(REMEMBERED).await;
        assert!(runs.take(1, Noted::default().receipt(), true).is_some());
    }

    #[test]
    fn the_redelivery_of_a_type_that_keeps_its_order_is_not_merged() {
        let runs = Arc::new(LateRuns::default());
        let _run = runs.hold(1).expect("the first run");
        assert!(runs.take(1, Noted::default().receipt(), false).is_some());
    }

    #[test]
    fn no_more_runs_are_remembered_than_the_limit() {
        let runs = Arc::new(LateRuns::default());
        for key in 0..=MOST as u128 {
            assert!(runs.hold(key).expect("it does not run yet").settled_late().is_none());
        }
        assert!(runs.take(0, Noted::default().receipt(), true).is_some());
        assert!(runs.take(1, Noted::default().receipt(), true).is_none());
    }
}
