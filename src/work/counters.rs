//! The counters of a worker: a summary at its end, and the metrics of each type meanwhile; and the other metrics of a type. They are made
//! when the worker starts, and not looked up for each event.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Instant;

use crate::{
    domain::{
        register::ClaimAnswer,
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
            /// In no total.
            leases_lost: Counter,
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
                    leases_lost: counter!(meter::LEASES_LOST, "type" => name()),
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
            Transition::LeaseLost => self.leases_lost.increment(1),
            Transition::Started => {}
        }
    }
}

/// The metrics of one type beside its counters.
pub(super) struct Meters {
    in_flight: Gauge,
    duration: Histogram,
    lateness: Histogram,
    claims: Claims,
}

/// The answers to claims. The last one is of a key in Redis that cannot be read.
struct Claims {
    run: Counter,
    alone: Counter,
    busy: Counter,
    later: Counter,
    stale: Counter,
    replaced: Counter,
    unreadable: Counter,
}

impl Meters {
    pub(super) fn new(event_type: &EventType) -> Self {
        let name = event_type.as_str().to_owned();
        let answer = |answer: &'static str| counter!(meter::CLAIMS, "type" => name.clone(), "answer" => answer);
        Self {
            in_flight: gauge!(meter::IN_FLIGHT, "type" => name.clone()),
            duration: histogram!(meter::HANDLER_DURATION, "type" => name.clone()),
            lateness: histogram!(meter::LATENESS, "type" => name.clone()),
            claims: Claims {
                run: answer("run"),
                alone: answer("alone"),
                busy: answer("busy"),
                later: answer("later"),
                stale: answer("stale"),
                replaced: answer("replaced"),
                unreadable: answer("unreadable"),
            },
        }
    }

    /// Counts the answer to a claim. `None` if the key in Redis cannot be read.
    pub(super) fn claimed(&self, answer: Option<&ClaimAnswer>) {
        let Claims { run, alone, busy, later, stale, replaced, unreadable } = &self.claims;
        let counter = match answer {
            Some(ClaimAnswer::Run { .. }) => run,
            Some(ClaimAnswer::Alone) => alone,
            Some(ClaimAnswer::Busy) => busy,
            Some(ClaimAnswer::Later(_)) => later,
            Some(ClaimAnswer::Stale) => stale,
            Some(ClaimAnswer::Replaced) => replaced,
            None => unreadable,
        };
        counter.increment(1);
    }

    /// Notes that a handler starts, and how late, unless it is late on purpose.
    pub(super) fn start(&self, late: Option<Duration>) -> Running<'_> {
        if let Some(late) = late {
            self.lateness.record(late);
        }
        self.in_flight.increment(1.0);
        Running { meters: self, since: Instant::now() }
    }
}

/// A handler that runs. It is in flight until this is dropped.
pub(super) struct Running<'a> {
    meters: &'a Meters,
    since: Instant,
}

impl Running<'_> {
    /// Records how long the run took. A run that is given up has no duration.
    pub(super) fn ended(&self) {
        self.meters.duration.record(self.since.elapsed());
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.meters.in_flight.decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use crate::{NewEvent, Outcome, Run, testing::TestHatchery};

    const FILE: &str = "
version: 1
name: t
hatcheries: [5s]
types:
  mail: { retry: { delays: [10s], jitter: 0% } }
  import: { exclusive: true }
";

    /// Fails in the first run of an event. The payload says what follows from the second.
    async fn mail(run: Run) -> Result<Outcome, String> {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        match &run.event.payload[..] {
            _ if run.event.attempts == 0 => Err("421".to_owned()),
            b"letter" => Ok(Outcome::dead_letter("550")),
            _ => Ok(Outcome::Done),
        }
    }

    async fn import(_: Run) -> Result<Outcome, String> {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        Ok(Outcome::Done)
    }

    #[tokio::test(start_paused = true)]
    async fn the_metrics_count_events_by_type_from_their_publish_to_their_end() {
        let recorder = PrometheusBuilder::new().set_buckets(&[1.0, 2.5, 5.0]).expect("buckets").build_recorder();
        let _counted_here = metrics::set_default_local_recorder(&recorder);
        let hatchery = TestHatchery::new(crate::file::read(FILE, "topology.yaml").expect("a valid file"));
        hatchery.start(hatchery.worker().handle("mail", mail).handle("import", import));
        let seconds = std::time::Duration::from_secs;
        let events = [
            NewEvent::new("mail", "letter"),
            NewEvent::new("mail", "").delay(seconds(5)),
            NewEvent::new("mail", "").delay(seconds(7)),
            NewEvent::new("import", "").reference("1"),
            NewEvent::new("import", "").reference("1"),
        ];
        for event in events {
            hatchery.publisher().publish(event).await.expect("published");
        }
        hatchery.advance(seconds(1)).await.expect("the worker runs");
        let running = recorder.handle().render();
        hatchery.advance(seconds(60)).await.expect("the worker runs");
        let page = recorder.handle().render();
        hatchery.stop().await.expect("the worker ends");

        for line in [r#"hatchery_in_flight{type="mail"} 1"#, r#"hatchery_consuming{type="import"} 1"#] {
            assert!(running.lines().any(|shown| shown == line), "{line} is not in\n{running}");
        }
        for line in [
            r#"hatchery_published_total{type="mail",route="now"} 1"#,
            r#"hatchery_published_total{type="mail",route="hatchery"} 1"#,
            r#"hatchery_published_total{type="mail",route="ladder"} 1"#,
            r#"hatchery_publish_failures_total{type="mail"} 0"#,
            r#"hatchery_delivered_total{type="mail"} 6"#,
            r#"hatchery_handled_total{type="mail",outcome="retried"} 3"#,
            r#"hatchery_handled_total{type="mail",outcome="done"} 2"#,
            r#"hatchery_handled_total{type="mail",outcome="dead-lettered"} 1"#,
            r#"hatchery_handled_total{type="import",outcome="done"} 2"#,
            r#"hatchery_claims_total{type="mail",answer="run"} 6"#,
            r#"hatchery_claims_total{type="import",answer="run"} 2"#,
            r#"hatchery_in_flight{type="mail"} 0"#,
            r#"hatchery_leases_lost_total{type="mail"} 0"#,
            r#"hatchery_handler_duration_seconds_bucket{type="mail",le="1"} 0"#,
            r#"hatchery_handler_duration_seconds_bucket{type="mail",le="2.5"} 6"#,
            // Of each event its first run alone.
            r#"hatchery_lateness_seconds_count{type="mail"} 3"#,
            r#"hatchery_lateness_seconds_bucket{type="mail",le="1"} 3"#,
            // The second one waited for the first one of its reference.
            r#"hatchery_lateness_seconds_bucket{type="import",le="2.5"} 1"#,
            r#"hatchery_lateness_seconds_count{type="import"} 2"#,
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line} is not in\n{page}");
        }
        let busy = page.lines().find(|line| line.starts_with(r#"hatchery_claims_total{type="import",answer="busy"} "#));
        assert!(busy.is_some_and(|line| !line.ends_with(" 0")), "{page}");
        assert!(page.contains("# HELP hatchery_lateness_seconds Time from"), "{page}");
    }
}
