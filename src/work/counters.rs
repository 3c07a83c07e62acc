//! The counters of a worker, and the summary at its end.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::{register::ClaimAnswer, settlement::Outcome};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident),* $(,)?) => {
        /// The counters of a running worker.
        #[derive(Default)]
        pub(super) struct Counters {
            $($field: AtomicU64),*
        }

        /// The counters of a worker, from its start to its end.
        ///
        /// Each field counts deliveries or runs of all types together. One event may be counted several times, for example
        /// if it failed twice and succeeded at last.
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
    /// Runs that succeeded.
    done,
    /// Runs whose event the handler discarded.
    discarded,
    /// Runs that failed and are tried again, in place or through a retry queue.
    retried,
    /// Runs that failed and whose event was dropped (`on-failure: drop`).
    dropped,
    /// Runs whose event the handler requeued for a later time.
    requeued,
    /// Events that were dead-lettered.
    dead_lettered,
    /// Deliveries that are not valid events, for example because of a header of the wrong type. They are dead-lettered too, but
    /// not counted there.
    poisoned,
    /// Deliveries that were rejected so that the broker dead-letters them, because it refused their copies.
    rejected,
    /// Copies that were dropped because their event was finished, cancelled, or has a later copy.
    stale,
    /// Copies that were dropped because a newer event of the same reference waits.
    replaced,
    /// Copies that were published again with a delay because their reference was busy, or because the register's entry cannot
    /// be read.
    busy,
    /// Deliveries that were returned to the queue, either not started or not finished.
    given_back,
    /// Deliveries that were moved to the aside queue to run alone, because they may have killed their worker.
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
            // These outcomes are counted where they are carried out.
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

    pub(super) fn unwanted(&self, claimed: &ClaimAnswer) {
        Self::add(if *claimed == ClaimAnswer::Replaced { &self.replaced } else { &self.stale });
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
