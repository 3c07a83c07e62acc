//! Tells how many messages have no line in a list of events.

use std::time::Duration;

use hatchery::{
    EventType, Events, Topology,
    internals::{compile::compile, names::Names, rabbitmq::connection::AmqpUrl, safety::Unsafe},
};
use jiff::Timestamp;
use tokio::time::timeout;

use super::{
    observation::{Observation, ObservedRegister, Reading, Redis},
    types::{Queues, Unlisted, lines, unlisted},
};
use crate::broker::look::look;

/// How long the broker may take. The list itself is from Redis, so a person need not wait longer.
const LIMIT: Duration = Duration::from_secs(5);

/// The messages of a topology, or of some of its types, that no list of events has. `None` if the broker or Redis does
/// not tell.
pub async fn not_listed(
    broker: &AmqpUrl,
    name: &str,
    topology: &Topology,
    only: &[String],
    events: &Events,
) -> Option<Vec<Unlisted>> {
    let asked = async {
        let looked = look(broker, name, &[], &queues(topology, only)?).await?;
        let queues = looked.queues.into_iter().map(|(name, counts)| (name, counts.into())).collect();
        let registered = topology.types.iter().filter(|(_, spec)| spec.register);
        let types: Vec<EventType> = registered.map(|(name, _)| name.clone()).collect();
        let counts = types.iter().cloned().zip(events.shared.index.count(&types).await?).collect();
        let register = ObservedRegister { counts, has_owner: true, evicts: None, refusal: None };
        let at = Timestamp::now();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Observation {
            at,
            readings: vec![Reading { at, queues }],
            redis: Redis::There(register),
            ..Observation::default()
        })
    };
    let seen = match timeout(LIMIT, asked).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(error)) => {
            tracing::debug!("messages that are not listed cannot be counted: {error}");
            return None;
        }
        Err(_) => return None,
    };
    let mut places = unlisted(topology, &lines(topology, &seen), &seen);
    places.retain(|place| only.is_empty() || only.contains(&place.place));
    Some(places)
}

/// Returns the queues to look at: those of these types, or all in which events are.
fn queues(topology: &Topology, only: &[String]) -> Result<Vec<String>, Unsafe> {
    let names = Names::new(topology.name.clone());
    if only.is_empty() {
        return Ok(compile(topology)?.queues.into_iter().map(|queue| queue.name).collect());
    }
    let of_types = only.iter().filter_map(|only| topology.types.get_key_value(only.as_str()));
    Ok(of_types.flat_map(|(name, spec)| Queues::of(&names, name, spec).into_names()).collect())
}
