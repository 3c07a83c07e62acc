//! Made-up observations, and their findings and figures.

mod commands;
mod failing;
mod finding;
mod left;
mod stopped;
mod types;

use std::collections::BTreeMap;

use hatchery::{
    EventType, Topology,
    internals::{
        compile::{Desired, compile},
        register::index::TypeCounts,
    },
};
use jiff::Timestamp;

use super::{
    finding::Finding,
    findings::findings,
    observation::{Observation, ObservedRegister, Reading, Redis},
    summary::Status,
};
use crate::{
    figures::{Channel, Figures, MessageStats, Rate, Sample},
    live::{Counts, LivePolicy, Observed},
};

/// A topology and what was seen of it. At first nothing is wrong, and no event is anywhere.
pub(super) struct World {
    pub(super) topology: Topology,
    desired: Desired,
    pub(super) seen: Observation,
}

const FILE: &str = "\
version: 1
name: billing
hatcheries: [5m, 1h]
types:
  hr-import: { coalesce: latest, handler-timeout: 2m }
  mail: { retry: { delays: [10s, 1m] } }
  log: { register: off }
";

impl World {
    pub(super) fn new() -> Self {
        Self::of(FILE)
    }

    pub(super) fn of(file: &str) -> Self {
        let topology = hatchery::file::read(file, "topology.yaml").expect("a valid file");
        let desired = compile(&topology).expect("safe");
        let at: Timestamp = "2026-06-01T09:00:00Z".parse().expect("a time");
        let idle = Figures {
            counts: Counts {
                messages: Some(0),
                messages_ready: Some(0),
                messages_unacknowledged: Some(0),
                messages_dlx: Some(0),
                messages_delayed: Some(0),
                consumers: Some(0),
            },
            messages_details: Some(Rate { rate: 0.0 }),
            message_stats: Some(MessageStats { publish: Some(0), ack_details: Some(Rate { rate: 0.0 }) }),
        };
        let queues = desired.queues.iter().map(|queue| (queue.name.clone(), idle.clone())).collect();
        let counts = topology.types.iter().filter(|(_, spec)| spec.register);
        let register = ObservedRegister {
            counts: counts.map(|(name, _)| (name.clone(), TypeCounts::default())).collect(),
            has_owner: true,
            evicts: None,
            refusal: None,
        };
        let seen = Observation {
            at,
            vhost: "/".to_owned(),
            version: Some("4.3.6".to_owned()),
            readings: vec![Reading { at, queues }],
            objects: Some(Observed::from(&desired)),
            channels: Some(Vec::new()),
            alarms: Some(Vec::new()),
            redis: Redis::There(register),
            ..Observation::default()
        };
        Self { topology, desired, seen }
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        findings(&self.topology, &self.desired, &self.seen)
    }

    pub(super) fn status(&self) -> Status {
        Status::of(&self.topology, &self.desired, &self.seen)
    }

    /// Changes the figures of a queue.
    pub(super) fn queue(&mut self, name: &str, change: impl FnOnce(&mut Figures)) {
        let reading = self.seen.readings.last_mut().expect("a reading");
        change(reading.queues.get_mut(name).unwrap_or_else(|| panic!("no queue {name}")));
    }

    /// Puts ready messages into a queue.
    pub(super) fn fill(&mut self, name: &str, ready: u64) {
        self.queue(name, |figures| {
            figures.counts.messages_ready = Some(ready);
            figures.counts.messages = Some(ready);
        });
    }

    /// Puts ready messages into a queue that the file does not ask for.
    pub(super) fn leave(&mut self, name: &str, ready: u64) {
        let reading = self.seen.readings.last_mut().expect("a reading");
        let like = reading.queues["billing.unrouted"].clone();
        reading.queues.insert(name.to_owned(), like);
        self.fill(name, ready);
    }

    /// Starts a worker that consumes this queue.
    pub(super) fn work(&mut self, name: &str) {
        self.queue(name, |figures| figures.counts.consumers = Some(1));
    }

    pub(super) fn register(&mut self) -> &mut ObservedRegister {
        match &mut self.seen.redis {
            Redis::There(register) => register,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn objects(&mut self) -> &mut Observed {
        self.seen.objects.as_mut().expect("they are known")
    }

    /// Lets a stranger set this policy.
    pub(super) fn policy(&mut self, name: &str, pattern: &str, key: &str) {
        self.objects().policies.push(LivePolicy {
            name: name.to_owned(),
            pattern: pattern.to_owned(),
            apply_to: "queues".to_owned(),
            priority: 0,
            definition: BTreeMap::from([(key.to_owned(), 60_000.into())]),
        });
    }
}

/// Returns the type that most of these tests are about.
pub(super) fn mail() -> EventType {
    "mail".parse().expect("a word")
}

/// Returns a channel that was given this many deliveries so many seconds ago, and has acknowledged none.
pub(super) fn holder(queues: &[&str], held: u64, seconds: i64) -> Channel {
    let times = (0..=30).map(|n| n * 10);
    let delivered =
        times.clone().map(|back| Sample { sample: if back <= seconds { held } else { 0 }, timestamp: -back * 1_000 });
    let acknowledged = times.map(|back| Sample { sample: 0, timestamp: -back * 1_000 });
    Channel {
        connection: "10.0.0.7:45118 -> 10.0.0.2:5672".to_owned(),
        program: Some("reports @ worker-7".to_owned()),
        is_worker: false,
        held,
        queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
        acknowledged: Some(acknowledged.collect()),
        delivered: Some(delivered.collect()),
    }
}
