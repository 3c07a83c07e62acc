//! The metrics of the library: their names, their units and what they mean, for the recorder of the crate `metrics` that the
//! program installs. `docs/operations.md` lists them.
//!
//! Handles are made once, by [`PublishMeters`], by the worker's `meters` and by the adapter of the broker, and not for each
//! event. The only label values that are not fixed are the types, the sources and the schedules of the file.

use std::collections::BTreeMap;

use metrics::{Counter, Unit, counter, describe_counter, describe_gauge, describe_histogram};

use crate::domain::{delay::Route, words::EventType};

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
pub(crate) const REGISTER_STATE: &str = "hatchery_register_state";
pub(crate) const REGISTER_ERRORS: &str = "hatchery_register_errors_total";
pub(crate) const HANDLER_UNAVAILABLE: &str = "hatchery_handler_unavailable";
pub(crate) const REGISTER_EMPTIED: &str = "hatchery_register_emptied_total";
pub(crate) const SOURCE_DELIVERED: &str = "hatchery_source_delivered_total";
pub(crate) const SOURCE_MESSAGES: &str = "hatchery_source_messages_total";
pub(crate) const SOURCE_CONSUMING: &str = "hatchery_source_consuming";
pub(crate) const SCHEDULE_OVERDUE: &str = "hatchery_schedule_overdue_seconds";
pub(crate) const SCHEDULE_LAST_START: &str = "hatchery_schedule_last_start_timestamp_seconds";
pub(crate) const SCHEDULE_FAILED: &str = "hatchery_schedule_failed";

const COUNTERS: [(&str, &str); 17] = [
    (PUBLISHED, "Events that the broker has confirmed, by type and route"),
    (PUBLISH_FAILURES, "Publishes that ended with an error, by type"),
    (UNVERSIONED, "Events published without a version because Redis gave none in time"),
    (CONFIRMS, "Messages sent, copies included, by the broker's answer"),
    (RECONNECTS, "Connections to the broker opened again after they were lost"),
    (DELIVERED, "Deliveries taken from the broker, by type"),
    (HANDLED, "Events by type and outcome; one event counts for each run"),
    (DUPLICATES, "Copies dropped because their event is finished, cancelled or replaced"),
    (BUSY, "Events that wait because their reference runs, or their key in Redis is damaged"),
    (GIVEN_BACK, "Deliveries returned to their queue, not started or not finished"),
    (PUT_ASIDE, "Deliveries moved to the aside queue because they may have killed their worker"),
    (CLAIMS, "Answers of Redis to the question whether an event may start"),
    (LEASES_LOST, "Runs whose lease ended before they did"),
    (REGISTER_ERRORS, "Calls to Redis without an answer, for each event"),
    (REGISTER_EMPTIED, "Times that Redis was found emptied"),
    (SOURCE_DELIVERED, "Messages taken from the queue of a source"),
    (SOURCE_MESSAGES, "Messages of a source by what became of them"),
];

const GAUGES: [(&str, &str); 6] = [
    (IN_FLIGHT, "Handlers that run now, by type"),
    (CONSUMING, "Whether the worker consumes the type's queue: 1 or 0"),
    (SOURCE_CONSUMING, "Whether the worker consumes the queue of the source: 1 or 0"),
    (HANDLER_UNAVAILABLE, "1 while the service or the program of the type is away, else 0"),
    (REGISTER_STATE, "1 while Redis is in this state, else 0"),
    (SCHEDULE_FAILED, "1 if the newest run of the schedule ended in dead-letter, else 0"),
];

const TIMES: [(&str, &str); 2] = [
    (SCHEDULE_OVERDUE, "How long the next event of the schedule is due and has not started"),
    (SCHEDULE_LAST_START, "When the newest run of the schedule began, since 1970"),
];

const HISTOGRAMS: [(&str, &str); 3] = [
    (CONFIRM_DURATION, "Time from a publish to the broker's confirm"),
    (HANDLER_DURATION, "Time that one run of a handler took"),
    (LATENESS, "Time from an event's due time to the start of its first run"),
];

/// Describes the metrics to the recorder.
pub(crate) fn describe() {
    for (name, text) in COUNTERS {
        describe_counter!(name, Unit::Count, text);
    }
    for (name, text) in GAUGES {
        describe_gauge!(name, Unit::Count, text);
    }
    for (name, text) in TIMES {
        describe_gauge!(name, Unit::Seconds, text);
    }
    for (name, text) in HISTOGRAMS {
        describe_histogram!(name, Unit::Seconds, text);
    }
}

/// The metrics of a publisher, by type.
pub(crate) struct PublishMeters(BTreeMap<EventType, OfType>);

struct OfType {
    now: Counter,
    hatchery: Counter,
    ladder: Counter,
    failures: Counter,
}

impl PublishMeters {
    pub(crate) fn new<'a>(types: impl Iterator<Item = &'a EventType>) -> Self {
        describe();
        let of_type = |event_type: &EventType| {
            let name = event_type.as_str().to_owned();
            let route = |route: &'static str| counter!(PUBLISHED, "type" => name.clone(), "route" => route);
            let failures = counter!(PUBLISH_FAILURES, "type" => name.clone());
            OfType { now: route("now"), hatchery: route("hatchery"), ladder: route("ladder"), failures }
        };
        Self(types.map(|event_type| (event_type.clone(), of_type(event_type))).collect())
    }

    /// Counts a publish. `route` is `None` if it failed.
    pub(crate) fn published(&self, event_type: &EventType, route: Option<Route>) {
        let Some(meters) = self.0.get(event_type) else { return };
        let counter = match route {
            Some(Route::Now) => &meters.now,
            Some(Route::Hatchery(_)) => &meters.hatchery,
            Some(Route::Ladder(..)) => &meters.ladder,
            None => &meters.failures,
        };
        counter.increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_in_the_docs() {
        let docs = include_str!("../docs/operations.md");
        let missing: Vec<_> = COUNTERS
            .iter()
            .chain(&GAUGES)
            .chain(&TIMES)
            .chain(&HISTOGRAMS)
            .map(|(name, _)| *name)
            .filter(|name| !docs.contains(&format!("| `{name}` |")))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
