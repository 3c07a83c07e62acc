//! The metrics of a publisher.

use std::collections::BTreeMap;

use metrics::{Counter, counter};

use crate::{
    domain::{delay::Route, words::EventType},
    meter::{self, PUBLISH_FAILURES, PUBLISHED},
};

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
        meter::describe();
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
