//! The metrics of the library: their names, their labels, their units and what they mean, for the recorder of the crate `metrics`
//! that the program installs. `docs/reference/metrics.md` is made from these rows.
//!
//! Handles are made once, by the `meters` of the publisher, of the worker and of the adapter of the broker, and not for each
//! event. The only label values that are not fixed are the types, the sources and the schedules of the file.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

use crate::domain::trouble::Trouble;

pub(crate) const PUBLISHED: &str = "hatchery_published_total";
pub(crate) const PUBLISH_FAILURES: &str = "hatchery_publish_failures_total";
pub(crate) const UNVERSIONED: &str = "hatchery_published_unversioned_total";
pub(crate) const CONFIRMS: &str = "hatchery_confirms_total";
pub(crate) const CONFIRM_DURATION: &str = "hatchery_confirm_duration_seconds";
pub(crate) const RECONNECTS: &str = "hatchery_broker_reconnects_total";
pub(crate) const DELIVERED: &str = "hatchery_delivered_total";
pub(crate) const HANDLED: &str = "hatchery_handled_total";
pub(crate) const DUPLICATES: &str = "hatchery_duplicates_dropped_total";
pub(crate) const BUSY: &str = "hatchery_busy_total";
pub(crate) const GIVEN_BACK: &str = "hatchery_given_back_total";
pub(crate) const PUT_ASIDE: &str = "hatchery_put_aside_total";
pub(crate) const CLAIMS: &str = "hatchery_claims_total";
pub(crate) const LEASES_LOST: &str = "hatchery_leases_lost_total";
pub(crate) const IN_FLIGHT: &str = "hatchery_in_flight";
pub(crate) const CONSUMING: &str = "hatchery_consuming";
pub(crate) const HANDLER_DURATION: &str = "hatchery_handler_duration_seconds";
pub(crate) const LATENESS: &str = "hatchery_lateness_seconds";
pub(crate) const OLDEST_DUE: &str = "hatchery_oldest_due_seconds";
pub(crate) const REGISTER_STATE: &str = "hatchery_register_state";
pub(crate) const REGISTER_ERRORS: &str = "hatchery_register_errors_total";
pub(crate) const HANDLER_UNAVAILABLE: &str = "hatchery_handler_unavailable";
pub(crate) const BREAKER_OPEN: &str = "hatchery_breaker_open";
pub(crate) const REGISTER_EMPTIED: &str = "hatchery_register_emptied_total";
pub(crate) const PAUSED: &str = "hatchery_paused";
pub(crate) const SOURCE_PAUSED: &str = "hatchery_source_paused";
pub(crate) const SOURCE_DELIVERED: &str = "hatchery_source_delivered_total";
pub(crate) const SOURCE_MESSAGES: &str = "hatchery_source_messages_total";
pub(crate) const SOURCE_CONSUMING: &str = "hatchery_source_consuming";
pub(crate) const SCHEDULE_OVERDUE: &str = "hatchery_schedule_overdue_seconds";
pub(crate) const SCHEDULE_LAST_START: &str = "hatchery_schedule_last_start_timestamp_seconds";
pub(crate) const SCHEDULE_FAILED: &str = "hatchery_schedule_failed";
pub(crate) const RECORDS_DROPPED: &str = "hatchery_records_dropped_total";
pub(crate) const CLOCK_OFFSET: &str = "hatchery_clock_offset_seconds";

/// A metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name. The names of metrics in seconds, and of no others, contain `_seconds`.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its labels.
    #[cfg_attr(not(feature = "internals"), expect(dead_code, reason = "only the reference shows it"))]
    pub labels: &'static [Label],
    /// The events or values that the metric counts or measures.
    pub about: &'static str,
    /// The value at which an operator should be told, or an empty text.
    #[cfg_attr(not(feature = "internals"), expect(dead_code, reason = "only the reference shows it"))]
    pub alert: &'static str,
}

/// A kind of metric, as Prometheus names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value only rises.
    Counter,
    /// The value rises and falls.
    Gauge,
    /// The metric counts values by their size.
    Histogram,
}

/// A label of a metric.
#[derive(Debug)]
pub struct Label {
    /// Its name.
    #[cfg_attr(not(feature = "internals"), expect(dead_code, reason = "only the reference shows it"))]
    pub name: &'static str,
    /// Its values; empty if they are names of the file.
    #[cfg_attr(not(feature = "internals"), expect(dead_code, reason = "only the reference shows it"))]
    pub values: &'static [&'static str],
}

impl Metric {
    /// Adds the value at which an operator should be told.
    #[must_use]
    pub const fn alert(self, alert: &'static str) -> Self {
        Self { alert, ..self }
    }

    /// Returns the unit of the metric.
    #[must_use]
    pub fn unit(&self) -> Unit {
        if self.name.contains("_seconds") { Unit::Seconds } else { Unit::Count }
    }
}

const fn counter(name: &'static str, labels: &'static [Label], about: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, about, alert: "" }
}

const fn gauge(name: &'static str, labels: &'static [Label], about: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, about, alert: "" }
}

const fn histogram(name: &'static str, labels: &'static [Label], about: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, about, alert: "" }
}

const TYPE: Label = Label { name: "type", values: &[] };
const SOURCE: Label = Label { name: "source", values: &[] };
const SCHEDULE: Label = Label { name: "schedule", values: &[] };
const ROUTE: Label = Label { name: "route", values: &["now", "hatchery", "ladder"] };
const SIDE: Label = Label { name: "side", values: &["publisher", "worker"] };
const STATE: Label = Label { name: "state", values: &STATES };
const STATES: [&str; Trouble::ALL.len()] = {
    let mut states = [""; Trouble::ALL.len()];
    let mut at = 0;
    while at < states.len() {
        states[at] = Trouble::ALL[at].label();
        at += 1;
    }
    states
};
const CONFIRM: Label = Label { name: "answer", values: &["ack", "nack", "none"] };
const CONNECTION: Label =
    Label { name: "connection", values: &["publishing", "consuming", "aside", "looking", "control", "recording"] };
const CLAIM: Label =
    Label { name: "answer", values: &["run", "alone", "busy", "later", "stale", "replaced", "unreadable"] };
const CAUSE: Label = Label { name: "cause", values: &["stale", "replaced"] };
const OUTCOME: Label = Label {
    name: "outcome",
    values: &[
        "done",
        "discarded",
        "cancelled",
        "retried",
        "requeued",
        "dropped",
        "dead-lettered",
        "expired",
        "poison",
        "rejected",
    ],
};
const MESSAGE: Label = Label { name: "outcome", values: &["mapped", "dead-lettered", "dropped", "returned"] };

/// Every metric, in the order of an event's way.
pub static METRICS: [Metric; 34] = [
    counter(PUBLISHED, &[TYPE, ROUTE], "Events that the broker has confirmed, by the way that they took"),
    counter(PUBLISH_FAILURES, &[TYPE], "Publishes that ended with an error after they were sent").alert("any"),
    counter(
        UNVERSIONED,
        &[SIDE],
        "Events published without a version because Redis gave none in time; older ones of their reference may run too",
    )
    .alert("a steady rate"),
    counter(CONFIRMS, &[CONFIRM], "Messages sent, copies included, by the broker's answer: ack, nack, or none if the connection was lost first")
        .alert("`nack`"),
    histogram(CONFIRM_DURATION, &[], "Time from a publish to the broker's confirm").alert("p99 above 1 s"),
    counter(RECORDS_DROPPED, &[], "Records of what happens to events that the broker did not take in time; the events went on")
        .alert("any"),
    counter(RECONNECTS, &[CONNECTION], "Connections to the broker opened again after they were lost")
        .alert("several in an hour"),
    gauge(CONSUMING, &[TYPE], "1 while the worker consumes the queue of the type, else 0")
        .alert("0 for 5 minutes, unless it is paused"),
    gauge(PAUSED, &[TYPE], "1 while somebody has paused the type, else 0"),
    counter(DELIVERED, &[TYPE], "Deliveries taken from the broker"),
    counter(CLAIMS, &[TYPE, CLAIM], "Answers of Redis to the question whether an event may start")
        .alert("`unreadable`, `alone`"),
    gauge(IN_FLIGHT, &[TYPE], "Handlers that run now").alert("the type's `concurrency` for long"),
    counter(HANDLED, &[TYPE, OUTCOME], "Events by what became of them; one event counts for each run")
        .alert("dead letters; the share of `retried`"),
    histogram(HANDLER_DURATION, &[TYPE], "Time that one run of a handler took, also one that failed or timed out")
        .alert("p99 near `handler-timeout`"),
    histogram(
        LATENESS,
        &[TYPE],
        "Time from an event's due time to the start of its first run; a coalescing window counts, retries and events \
         re-sent by hand do not",
    )
    .alert("p95 above what the type may wait"),
    gauge(
        OLDEST_DUE,
        &[TYPE],
        "How long the oldest due event has waited, by Redis, also for types that this worker does not handle; NaN if that is not \
         known",
    )
    .alert("more than the type may wait"),
    counter(DUPLICATES, &[TYPE, CAUSE], "Copies dropped: their event is finished or cancelled, or a newer one waits"),
    counter(BUSY, &[TYPE], "Events that wait because their reference runs, or their key in Redis is damaged"),
    counter(LEASES_LOST, &[TYPE], "Runs whose lease ended before they did; another worker may run their reference")
        .alert("any"),
    gauge(HANDLER_UNAVAILABLE, &[TYPE], "1 while the service or the program of the type is away, else 0")
        .alert("1 for a minute"),
    gauge(BREAKER_OPEN, &[TYPE], "1 while the circuit breaker of the type is open, else 0; 0 too while it is half-open").alert("1"),
    counter(GIVEN_BACK, &[TYPE], "Deliveries returned to their queue, not started or not finished"),
    counter(PUT_ASIDE, &[TYPE], "Events put into quarantine because they may have killed their worker").alert("any"),
    gauge(
        REGISTER_STATE,
        &[STATE, SIDE],
        "1 while Redis is in this state, else 0; with several publishers or workers in one process, their number",
    )
    .alert("1 for a minute"),
    counter(REGISTER_ERRORS, &[STATE, SIDE], "Calls to Redis without an answer, for each event"),
    counter(REGISTER_EMPTIED, &[SIDE], "Times that Redis was emptied, counted by each process that had used it before")
        .alert("any"),
    gauge(CLOCK_OFFSET, &[], "How far the clock of the worker's machine is ahead of Redis's at least; negative if it is behind")
        .alert("more than 5 either way"),
    counter(SOURCE_DELIVERED, &[SOURCE], "Messages taken from the queue of the source"),
    counter(SOURCE_MESSAGES, &[SOURCE, MESSAGE], "Messages of the source by what became of them").alert("`dead-lettered`"),
    gauge(SOURCE_CONSUMING, &[SOURCE], "1 while the worker consumes the queue of the source, else 0")
        .alert("0 for a minute, unless it is paused"),
    gauge(SOURCE_PAUSED, &[SOURCE], "1 while somebody has paused the source, else 0"),
    gauge(
        SCHEDULE_OVERDUE,
        &[SCHEDULE],
        "How long the next event of the schedule is due and has not started; 0 while it is paused or a run is under way",
    )
    .alert("above 180"),
    gauge(SCHEDULE_LAST_START, &[SCHEDULE], "When the newest run of the schedule began, since 1970; 0 if none has"),
    gauge(SCHEDULE_FAILED, &[SCHEDULE], "1 if the newest run of the schedule ended in dead-letter, else 0").alert("1"),
];

/// Describes the metrics to the recorder.
pub(crate) fn describe() {
    for metric @ Metric { name, about, .. } in &METRICS {
        match metric.kind {
            Kind::Counter => describe_counter!(*name, metric.unit(), *about),
            Kind::Gauge => describe_gauge!(*name, metric.unit(), *about),
            Kind::Histogram => describe_histogram!(*name, metric.unit(), *about),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::{NewEvent, Outcome, Run, testing::TestHatchery};

    const FILE: &str = "
version: 1
name: t
types: { mail: { retry: { delays: [1s] }, breaker: {} } }
schedules: { good: { type: mail, every: 1m } }
sources: { hr: { declare: on, events: [ { type: mail } ] } }
";

    /// Metrics that appear when something happens that this test does not do, or that the adapters have.
    const NOT_SHOWN: [&str; 7] =
        [CONFIRMS, CONFIRM_DURATION, HANDLER_UNAVAILABLE, REGISTER_STATE, RECONNECTS, REGISTER_ERRORS, CLOCK_OFFSET];

    #[tokio::test(start_paused = true)]
    async fn every_metric_of_a_page_has_the_labels_and_values_of_its_row() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let _counted_here = metrics::set_default_local_recorder(&recorder);
        let hatchery = TestHatchery::new(crate::file::read(FILE, "topology.yaml").expect("a valid file"));
        let mail = async |run: Run| if run.event.attempts == 0 { Err("421") } else { Ok(Outcome::Done) };
        hatchery.start(hatchery.worker().handle("mail", mail).source("hr"));
        hatchery.publisher().publish(NewEvent::new("mail", "")).await.expect("published");
        hatchery.advance(Duration::from_mins(2)).await.expect("the worker runs");
        let page = recorder.handle().render();
        hatchery.stop().await.expect("the worker ends");

        let mut shown = BTreeSet::new();
        for line in page.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (name, labels) = line.split_once([' ', '{']).expect("a metric and its value");
            let of_row = |metric: &&Metric| match metric.kind {
                Kind::Histogram => {
                    name.strip_prefix(metric.name).is_some_and(|rest| ["", "_sum", "_count"].contains(&rest))
                }
                Kind::Counter | Kind::Gauge => name == metric.name,
            };
            let metric = METRICS.iter().find(of_row).unwrap_or_else(|| panic!("no row: {line}"));
            shown.insert(metric.name);
            let labels = labels.rsplit_once("} ").map_or("", |(labels, _)| labels);
            let labels: Vec<(&str, &str)> = labels.split(',').filter_map(|label| label.split_once('=')).collect();
            let labels: Vec<_> = labels.into_iter().filter(|(name, _)| *name != "quantile").collect();
            assert_eq!(labels.len(), metric.labels.len(), "{line}");
            for (name, value) in labels {
                let label = metric.labels.iter().find(|label| label.name == name);
                let values = label.unwrap_or_else(|| panic!("no label {name} in the row: {line}")).values;
                assert!(values.is_empty() || values.contains(&value.trim_matches('"')), "{line}");
            }
        }
        let missing: Vec<_> = METRICS.iter().map(|metric| metric.name).filter(|name| !shown.contains(name)).collect();
        assert!(missing.iter().all(|name| NOT_SHOWN.contains(name)), "{missing:?}");
    }
}
