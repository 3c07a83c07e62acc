//! Tells how many messages have no line in a list of events.

use std::time::Duration;

use hatchery::{
    Events, Topology,
    internals::{compile::compile, names::Names},
};
use hatchery_admin::broker::look::look;
use jiff::Timestamp;
use tokio::time::timeout;

use super::{
    observation::{Observation, Reading, Redis, Register},
    screen::unlisted_words,
    types::{Queues, Unlisted, lines, unlisted},
};
use crate::{args::Common, connect};

/// How long the broker may take. The list itself is from Redis, so a person need not wait longer.
const LIMIT: Duration = Duration::from_secs(5);

/// The messages of a topology, or of some of its types, that no list of events has. `None` if the broker or Redis does
/// not tell.
pub(crate) async fn not_listed(
    common: &Common,
    topology: &Topology,
    only: &[String],
    events: &Events,
) -> Option<Vec<Unlisted>> {
    let asked = async {
        let looked =
            look(&common.amqp_url()?, &connect::here("topology events"), &[], &queues(topology, only)?).await?;
        let queues = looked.queues.into_iter().map(|(name, counts)| (name, counts.into())).collect();
        let counts = events.counts().await?;
        let register = Register { counts, has_owner: true, evicts: None, refusal: None };
        let at = Timestamp::now();
        anyhow::Ok(Observation {
            at,
            readings: vec![Reading { at, queues }],
            redis: Redis::There(register),
            ..Observation::default()
        })
    };
    let seen = match timeout(LIMIT, asked).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(error)) => {
            tracing::debug!("messages that are not listed cannot be counted: {error:#}");
            return None;
        }
        Err(_) => return None,
    };
    let mut places = unlisted(topology, &lines(topology, &seen), &seen);
    places.retain(|place| only.is_empty() || only.contains(&place.place));
    Some(places)
}

/// Returns a sentence about these messages. `None` if there are none.
pub(crate) fn note(places: &[Unlisted]) -> Option<String> {
    unlisted_words(places, "at least")
}

/// Returns the queues to look at: those of these types, or all in which events are.
fn queues(topology: &Topology, only: &[String]) -> anyhow::Result<Vec<String>> {
    let names = Names::new(topology.name.clone());
    if only.is_empty() {
        return Ok(compile(topology)?.queues.into_iter().map(|queue| queue.name).collect());
    }
    let of_types = only.iter().filter_map(|only| topology.types.get_key_value(only.as_str()));
    Ok(of_types.flat_map(|(name, spec)| Queues::of(&names, name, spec).into_names()).collect())
}
