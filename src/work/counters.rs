//! The counters of a worker: a summary at its end, and the metrics of each type meanwhile.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use metrics::{Counter, counter};

use crate::{
    domain::{
        transition::Transition,
        words::{EventType, Word},
    },
    meter,
};

macro_rules! counters {
    (
        types { $($(#[$doc:meta])* $field:ident => $metric:ident $(($label:literal, $value:literal))?),* $(,)? }
        sources {
            $($(#[$of_source_doc:meta])* $of_source:ident => $source_metric:ident $(($source_label:literal, $source_value:literal))?),*
            $(,)?
        }
    ) => {
        /// The counters of a running worker, of all types and sources together.
        #[derive(Default)]
        pub(super) struct Totals {
            $($field: AtomicU64,)*
            $($of_source: AtomicU64),*
        }

        /// The counters of one source. Each counts in the worker's totals and in a metric.
        pub(super) struct SourceCounters {
            totals: Arc<Totals>,
            $($of_source: Counter),*
        }

        /// The counters of one type. Each counts in the worker's totals and in a metric.
        pub(super) struct Counters {
            totals: Arc<Totals>,
            $($field: Counter),*
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
        #[cfg_attr(feature = "internals", derive(schemars::JsonSchema))]
        #[cfg_attr(feature = "internals", schemars(description = "The counters of a worker."))]
        #[non_exhaustive]
        pub struct Summary {
            $($(#[$doc])* pub $field: u64,)*
            $($(#[$of_source_doc])* pub $of_source: u64),*
        }

        impl std::ops::AddAssign for Summary {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
                $(self.$of_source += other.$of_source;)*
            }
        }

        impl Totals {
            pub(super) fn summary(&self) -> Summary {
                Summary {
                    $($field: self.$field.load(Ordering::Relaxed),)*
                    $($of_source: self.$of_source.load(Ordering::Relaxed)),*
                }
            }
        }

        impl Counters {
            pub(super) fn new(totals: &Arc<Totals>, event_type: &EventType) -> Self {
                let name = || event_type.as_str().to_owned();
                Self {
                    totals: Arc::clone(totals),
                    $($field: counter!(meter::$metric, "type" => name() $(, $label => $value)?)),*
                }
            }

            $(pub(super) fn $field(&self) {
                self.totals.$field.fetch_add(1, Ordering::Relaxed);
                self.$field.increment(1);
            })*
        }

        impl SourceCounters {
            pub(super) fn new(totals: &Arc<Totals>, source: &Word) -> Self {
                let name = || source.as_str().to_owned();
                Self {
                    totals: Arc::clone(totals),
                    $($of_source: counter!(meter::$source_metric, "source" => name() $(, $source_label => $source_value)?)),*
                }
            }

            $(pub(super) fn $of_source(&self) {
                self.totals.$of_source.fetch_add(1, Ordering::Relaxed);
                self.$of_source.increment(1);
            })*
        }
    };
}

counters! {
    types {
    /// Deliveries taken from the broker, without the messages of sources.
    delivered => DELIVERED,
    /// Runs that succeeded and were settled.
    done => HANDLED ("outcome", "done"),
    /// Runs whose event the handler discarded, and that were settled.
    discarded => HANDLED ("outcome", "discarded"),
    /// Runs whose event was cancelled meanwhile.
    cancelled => HANDLED ("outcome", "cancelled"),
    /// Runs that failed and are tried again, in place or through a retry queue.
    retried => HANDLED ("outcome", "retried"),
    /// Runs that failed and whose event was dropped (`on-failure: drop`).
    dropped => HANDLED ("outcome", "dropped"),
    /// Runs whose event the handler requeued for a later time.
    requeued => HANDLED ("outcome", "requeued"),
    /// Events that were dead-lettered.
    dead_lettered => HANDLED ("outcome", "dead-lettered"),
    /// Events that expired before they started, and were discarded (`on-expiry: discard`).
    expired => HANDLED ("outcome", "expired"),
    /// Deliveries that are not valid events, for example because of a header of the wrong type. They are dead-lettered too, but
    /// not counted there.
    poisoned => HANDLED ("outcome", "poison"),
    /// Deliveries that were rejected so that the broker dead-letters them, because it refused their copies.
    rejected => HANDLED ("outcome", "rejected"),
    /// Copies that were dropped because their event was finished, cancelled, or has a later copy.
    stale => DUPLICATES ("cause", "stale"),
    /// Copies that were dropped because a newer event of the same reference waits.
    replaced => DUPLICATES ("cause", "replaced"),
    /// Copies that were published again with a delay because their reference was busy, because their handler was
    /// unavailable, or because the register's entry cannot be read.
    busy => BUSY,
    /// Deliveries that were returned to the queue, either not started or not finished.
    given_back => GIVEN_BACK,
    /// Deliveries that were moved to the quarantine queue to run alone, because they may have killed their worker.
    put_aside => PUT_ASIDE,
    }
    sources {
    /// Messages taken from the queues of sources.
    messages => SOURCE_DELIVERED,
    /// Messages of sources whose events were published.
    mapped => SOURCE_MESSAGES ("outcome", "mapped"),
    /// Messages of sources that became no event. They are dead-lettered.
    unmappable => SOURCE_MESSAGES ("outcome", "dead-lettered"),
    /// Messages of sources that no rule matches, and that the file drops.
    unmatched => SOURCE_MESSAGES ("outcome", "dropped"),
    /// Messages of sources that were returned to their queue, because their events were not confirmed or the worker stopped.
    returned => SOURCE_MESSAGES ("outcome", "returned"),
    }
}

impl Counters {
    /// Counts what has happened to an event.
    pub(super) fn count(&self, transition: &Transition) {
        match transition {
            Transition::Done { .. } => self.done(),
            Transition::Discarded { .. } => self.discarded(),
            Transition::Cancelled { .. } => self.cancelled(),
            Transition::Failed { .. } => self.retried(),
            Transition::Dropped { .. } => self.dropped(),
            Transition::Requeued { .. } => self.requeued(),
            Transition::PutOff => self.busy(),
            Transition::Replaced => self.replaced(),
            Transition::DeadLettered { .. } | Transition::Expired { dead_lettered: true, .. } => self.dead_lettered(),
            Transition::Expired { .. } => self.expired(),
            Transition::Started | Transition::LeaseLost => {}
        }
    }
}
