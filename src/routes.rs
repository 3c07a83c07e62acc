//! Where copies of an event go, and the messages that they become. The ladder and the hatcheries are behind this file: another timer
//! would change [`Routes::after`] and [`Routes::by`].

use std::time::Duration;

use crate::domain::{
    compile,
    delay::{Ladder, Route},
    event::Event,
    life_cycle::{LifeCycle, Told},
    names::{self, Names},
    safety::Unsafe,
    spec::Topology,
    ttl::Ttl,
    wire::{self, Message},
    words::{EventType, Word},
};

/// The routes of one topology.
pub(crate) struct Routes {
    pub(crate) names: Names,
    hatcheries: Vec<Ttl>,
    ladder: Ladder,
}

impl Routes {
    pub(crate) fn of(topology: &Topology) -> Self {
        Self {
            names: Names::new(topology.name.clone()),
            hatcheries: compile::hatcheries(topology).into_iter().collect(),
            ladder: topology.ladder,
        }
    }

    /// Returns the route that takes this long.
    pub(crate) fn after(&self, wait: Duration) -> Route {
        Route::after(wait, &self.hatcheries, self.ladder)
    }

    /// Returns the message that sends a copy to the scheduler by a route that was chosen before.
    pub(crate) fn by(&self, route: Route, copy: &Event) -> Message {
        message(self.names.scheduler(), route.key(&copy.event_type), copy)
    }

    /// Returns the message that sends a copy to the scheduler by the route that takes this long.
    pub(crate) fn to_scheduler(&self, copy: &Event, wait: Duration) -> Message {
        self.by(self.after(wait), copy)
    }

    /// Returns the message that sends a copy to the retry queue with this TTL.
    pub(crate) fn to_retry(&self, copy: &Event, ttl: Ttl) -> Message {
        message(self.names.retry(), names::retry_key(&copy.event_type, ttl), copy)
    }

    /// Returns the message that sends a copy to the dead-letter queue.
    pub(crate) fn to_dead_letter(&self, copy: &Event) -> Message {
        message(self.names.dead_letter(), names::dead_letter_key(&copy.event_type), copy)
    }

    /// Returns the message that sends a copy to the quarantine queue, where it runs alone, and where RabbitMQ counts its returns from 0.
    pub(crate) fn to_quarantine(&self, copy: &Event) -> Message {
        message(self.names.quarantine(), names::quarantine_key(&copy.event_type), copy)
    }
}

fn message(exchange: String, routing_key: String, copy: &Event) -> Message {
    Message { exchange, routing_key, properties: wire::encode(copy), body: copy.payload.clone() }
}

/// The exchanges and queues that events of these types may pass, and events that these sources make. If one is missing, a copy is
/// confirmed and lost, or unrouted.
pub(crate) fn needed(
    topology: &Topology,
    handled: impl Fn(&EventType) -> bool,
    consumed: impl Fn(&Word) -> bool,
) -> Result<(Vec<String>, Vec<String>), Unsafe> {
    // An event that waits as long as the window of another type takes its hatchery.
    let hatcheries = compile::hatcheries(topology).into_iter().collect();
    // No event needs the stream that is told of it.
    let life_cycle = LifeCycle { events: Told::Off, ..topology.life_cycle.clone() };
    let mut needed = Topology { hatcheries, life_cycle, ..topology.clone() };
    needed.sources.retain(|source, _| consumed(source));
    let made: Vec<&EventType> =
        needed.sources.values().flat_map(|spec| &spec.rules).map(|rule| &rule.event_type).collect();
    needed.types.retain(|event_type, _| handled(event_type) || made.contains(&event_type));
    let desired = compile::compile(&needed)?;
    let exchanges = desired.exchanges.into_iter().map(|exchange| exchange.name).collect();
    Ok((exchanges, desired.queues.into_iter().map(|queue| queue.name).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_type_needs_is_all_that_its_events_may_pass_and_nothing_of_other_types() {
        let text = "version: 1
name: t
hatcheries: [5s]
ladder: { resolution: 1s, horizon: 3s }
types:
  mail: { retry: { delays: [1m] } }
  import: { coalesce: { immediate: latest, window: 2s }, retry: { delays: [2m] } }
  plain: { register: off }
";
        let topology = crate::file::read(text, "topology.yaml").expect("a valid file");
        let (mut exchanges, mut queues) = needed(&topology, |name| name.as_str() == "mail", |_| false).expect("safe");
        exchanges.sort();
        queues.sort();
        let expected =
            "control dead-letter ladder.1s-2.00-1s ladder.1s-2.01-2s processor retry scheduler unrouted".split(' ');
        assert_eq!(exchanges, expected.map(|name| format!("t.{name}")).collect::<Vec<_>>());
        let expected = [
            "control",
            "dead-letter.mail",
            "hatchery.250ms",
            "hatchery.2s",
            "hatchery.5s",
            "ladder.1s-2.00-1s",
            "ladder.1s-2.01-2s",
            "processor.mail",
            "retry.mail.1m",
            "unrouted",
        ];
        assert_eq!(queues, expected.map(|name| format!("t.{name}")));
    }

    #[test]
    fn a_source_needs_its_queues_and_those_of_the_types_that_it_makes() {
        let text = "version: 1
name: t
ladder: { resolution: 1s, horizon: 1s }
types: { mail: { register: off }, import: {}, rare: {} }
sources:
  hr: { declare: on, events: [ { type: mail } ] }
  other: { queue: q, events: [ { type: rare } ] }
";
        let topology = crate::file::read(text, "topology.yaml").expect("a valid file");
        let (_, queues) = needed(&topology, |_| false, |source| source.as_str() == "hr").expect("safe");
        let ours = |name: &&String| name.contains("source") || name.contains("processor");
        let ours: Vec<&String> = queues.iter().filter(ours).collect();
        assert_eq!(ours, ["t.dead-letter.source-hr", "t.processor.mail", "t.source.hr"]);
    }
}
