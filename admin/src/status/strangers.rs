//! Finds programs that take messages which are not theirs.

use std::collections::{BTreeMap, BTreeSet};

use hatchery::{
    Topology,
    internals::{compile::Desired, names::Names, spec::OnFailure},
};

use super::{finding::Finding, observation::Observation};
use crate::{
    figures::{Client, Consumer},
    live::is_labelled,
    names,
};

/// Finds connections of strangers that consume queues of the topology. Those of this library do not: its workers consume the queues of
/// types, `topology dead-letter` and migrations others for a moment. A worker without the library says with the argument
/// `x-hatchery-owner` whose it is.
pub(super) fn strangers(topology: &Topology, desired: &Desired, seen: &Observation) -> Vec<Finding> {
    let owners: BTreeSet<&str> = desired.owners().collect();
    let queues = seen.objects.iter().flat_map(|objects| &objects.queues);
    let labelled = queues.filter(|queue| is_labelled(desired, &queue.arguments));
    let labelled = labelled.map(|queue| queue.name.as_str());
    let wanted = desired.queues.iter().map(|queue| queue.name.as_str());
    // A reader of a stream takes nothing away.
    let streams: BTreeSet<String> = desired.owners().flat_map(names::streams).collect();
    let owned: BTreeSet<&str> = wanted.chain(labelled).filter(|queue| !streams.contains(*queue)).collect();
    let is_worker = |consumer: &Consumer| {
        let owner = consumer.owner.as_deref().filter(|owner| owners.contains(owner));
        owner.is_some() && owners.iter().any(|owner| names::is_consumed(owner, &consumer.queue))
    };
    let mut by_connection: BTreeMap<&str, (&Client, BTreeSet<&Consumer>)> = BTreeMap::new();
    for consumer in seen.consumers.iter().filter(|consumer| owned.contains(consumer.queue.as_str())) {
        let (Some(connection), Some(client)) = (&consumer.connection, &consumer.client) else { continue };
        if client.product.as_deref() != Some(names::PRODUCT) && !is_worker(consumer) {
            by_connection.entry(connection).or_insert((client, BTreeSet::new())).1.insert(consumer);
        }
    }
    let names = Names::new(topology.name.clone());
    let ordered = topology.types.iter().filter(|(_, spec)| spec.on_failure == OnFailure::Block);
    let ordered: BTreeMap<String, &str> = ordered.map(|(name, _)| (names.processing(name), name.as_str())).collect();
    let finding = |(connection, (client, consumers)): (&str, (&Client, BTreeSet<&Consumer>))| {
        let active = consumers.iter().filter(|consumer| !consumer.waits);
        let queues: BTreeSet<&String> = consumers.iter().map(|consumer| &consumer.queue).collect();
        Finding::Stranger {
            connection: connection.to_owned(),
            program: client.program.clone().or_else(|| client.product.clone()),
            keeps_out: active.filter_map(|consumer| ordered.get(&consumer.queue)).map(ToString::to_string).collect(),
            queues: queues.into_iter().cloned().collect(),
        }
    };
    by_connection.into_iter().map(finding).collect()
}
