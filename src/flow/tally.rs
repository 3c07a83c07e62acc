//! What a worker counts, and says at its end.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::{register::Claimed, settlement::Outcome};

macro_rules! tally {
    ($($(#[$doc:meta])* $field:ident),* $(,)?) => {
        /// Counters of a worker that runs.
        #[derive(Default)]
        pub(super) struct Tally {
            $($field: AtomicU64),*
        }

        /// What a worker has done.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        #[non_exhaustive]
        pub struct Summary {
            $($(#[$doc])* pub $field: u64),*
        }

        impl Tally {
            pub(super) fn summary(&self) -> Summary {
                Summary { $($field: self.$field.load(Ordering::Relaxed)),* }
            }
        }
    };
}

tally! {
    /// Deliveries taken from the broker.
    delivered,
    /// Runs that ended as done.
    done,
    /// Runs that a business rule ended.
    discarded,
    /// Runs that failed and are tried again.
    retried,
    /// Runs that failed and are not tried again, as the file says.
    dropped,
    /// Runs after which the handler wants the event again later.
    requeued,
    /// Events given up.
    dead_lettered,
    /// Deliveries that were no events.
    poisoned,
    /// Copies dropped because the event was finished, cancelled, or has a later copy.
    stale,
    /// Copies dropped because a newer event of the same reference waits.
    replaced,
    /// Copies sent on because their reference was busy.
    busy,
    /// Deliveries given back to the queue.
    given_back,
    /// Deliveries put aside to run alone: they may have killed their worker.
    put_aside,
}

impl Tally {
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
