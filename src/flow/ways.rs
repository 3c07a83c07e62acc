//! Where copies of an event go, and the messages that they become.

use std::time::Duration;

use crate::domain::{
    compile,
    delay::{Ladder, Route},
    event::Event,
    names::{self, Names},
    spec::Topology,
    ttl::Ttl,
    wire::{self, Message},
};

/// The ways of one topology.
pub(super) struct Ways {
    pub(super) names: Names,
    hatcheries: Vec<Ttl>,
    ladder: Ladder,
}

impl Ways {
    pub(super) fn of(topology: &Topology) -> Self {
        Self {
            names: Names::new(topology.name.clone()),
            hatcheries: compile::hatcheries(topology).into_iter().collect(),
            ladder: topology.ladder,
        }
    }

    /// The way that takes this long.
    pub(super) fn after(&self, wait: Duration) -> Route {
        Route::after(wait, &self.hatcheries, self.ladder)
    }

    /// To the scheduler, by a way that has been chosen.
    pub(super) fn by(&self, route: Route, copy: &Event) -> Message {
        message(self.names.scheduler(), route.key(&copy.event_type), copy)
    }

    /// To the scheduler, by the way that takes this long.
    pub(super) fn to_scheduler(&self, copy: &Event, wait: Duration) -> Message {
        self.by(self.after(wait), copy)
    }

    pub(super) fn to_retry(&self, copy: &Event, ttl: Ttl) -> Message {
        message(self.names.retry(), names::retry_key(&copy.event_type, ttl), copy)
    }

    pub(super) fn to_dead_letter(&self, copy: &Event) -> Message {
        message(self.names.dead_letter(), names::dead_letter_key(&copy.event_type), copy)
    }

    pub(super) fn to_aside(&self, copy: &Event) -> Message {
        message(self.names.aside(), names::aside_key(&copy.event_type), copy)
    }
}

fn message(exchange: String, routing_key: String, copy: &Event) -> Message {
    Message { exchange, routing_key, properties: wire::encode(copy), body: copy.payload.clone() }
}
