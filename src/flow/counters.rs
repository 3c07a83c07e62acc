//! What a worker counts, and says at its end.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::{register::Claimed, settlement::Outcome};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident),* $(,)?) => {
        /// Counters of a worker that runs.
        #[derive(Default)]
        pub(super) struct Counters {
            $($field: AtomicU64),*
        }

        /// What a worker has done, from its start to its end.
        ///
        /// Each field counts deliveries or runs, of all its types together; one event may count several times, as when
        /// it failed twice and was done at last.
        ///
        /// ```no_run
        /// # async fn example(worker: hatchery::Worker) -> Result<(), Box<dyn std::error::Error>> {
        /// use hatchery::{CancellationToken, Summary};
        ///
        /// let summary: Summary = worker.stop_when_empty(true).run(CancellationToken::new()).await?;
        /// println!("{}", serde_json::to_string(&summary)?); // {"delivered":3,"done":2,…}
        /// if summary.dead_lettered + summary.poisoned > 0 {
        ///     eprintln!("somebody has to look at the dead letters");
        /// }
        /// # Ok(())
        /// # }
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        #[non_exhaustive]
        pub struct Summary {
            $($(#[$doc])* pub $field: u64),*
        }

        impl Counters {
            pub(super) fn summary(&self) -> Summary {
                Summary { $($field: self.$field.load(Ordering::Relaxed)),* }
            }
        }
    };
}

counters! {
    /// Deliveries taken from the broker.
    delivered,
    /// Runs that ended as done.
    done,
    /// Runs that a business rule ended.
    discarded,
    /// Runs that failed and are tried again, in place or by way of a retry queue.
    retried,
    /// Runs that failed and are not tried again, as the file says.
    dropped,
    /// Runs after which the handler wants the event again later.
    requeued,
    /// Events given up.
    dead_lettered,
    /// Deliveries that were no events: a header of the wrong type, say. They are in dead-letter too, and are not
    /// counted there.
    poisoned,
    /// Deliveries left to the broker to dead-letter, because it does not take their copies.
    rejected,
    /// Copies dropped because the event was finished, cancelled, or has a later copy.
    stale,
    /// Copies dropped because a newer event of the same reference waits.
    replaced,
    /// Copies sent on because their reference was busy, or what Redis holds of it cannot be read.
    busy,
    /// Deliveries given back to the queue, not started or not ended.
    given_back,
    /// Deliveries put aside to run alone: they may have killed their worker.
    put_aside,
}

impl Counters {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn delivered(&self) {
        Self::add(&self.delivered);
    }

    pub(super) fn ran(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Done => Self::add(&self.done),
            Outcome::Discard { .. } => Self::add(&self.discarded),
            // Counted where they are carried out.
            Outcome::Requeue { .. } | Outcome::Retry { .. } | Outcome::DeadLetter { .. } => {}
        }
    }

    pub(super) fn retried(&self) {
        Self::add(&self.retried);
    }

    pub(super) fn requeued(&self) {
        Self::add(&self.requeued);
    }

    pub(super) fn dead_lettered(&self) {
        Self::add(&self.dead_lettered);
    }

    pub(super) fn poisoned(&self) {
        Self::add(&self.poisoned);
    }

    pub(super) fn rejected(&self) {
        Self::add(&self.rejected);
    }

    pub(super) fn dropped(&self) {
        Self::add(&self.dropped);
    }

    pub(super) fn unwanted(&self, claimed: &Claimed) {
        Self::add(if *claimed == Claimed::Replaced { &self.replaced } else { &self.stale });
    }

    pub(super) fn busy(&self) {
        Self::add(&self.busy);
    }

    pub(super) fn given_back(&self) {
        Self::add(&self.given_back);
    }

    pub(super) fn put_aside(&self) {
        Self::add(&self.put_aside);
    }
}
