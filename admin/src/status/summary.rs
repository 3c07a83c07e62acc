//! The result of `status`: the command line shows it on the screen, and as a JSON document.

use hatchery::{
    Topology,
    internals::{compile::Desired, names::Names},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    finding::Finding,
    findings::findings,
    observation::{Blind, Observation, Redis},
    redis::just_back,
    severity::{RUNBOOK, Severity},
    types::{Queues, SourceLine, TypeLine, Unlisted, in_millis, lines, source_lines, unlisted},
    words::first,
};
use crate::{plan::plan, switches::PauseLine};

/// The status of a topology: its findings, and how many events are where.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Status {
    /// The name of the topology.
    pub topology: String,
    /// The version of RabbitMQ; `null` if the management API does not answer.
    pub broker: Option<String>,
    /// When the broker was read. Its figures are some seconds older.
    #[serde(serialize_with = "in_millis")]
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// How it is altogether.
    pub verdict: Verdict,
    /// The findings, the worst first.
    pub findings: Vec<Found>,
    /// The pauses. Events of a paused type wait, and nothing is wrong with that.
    pub pauses: Vec<PauseLine>,
    /// The figures of each type. A figure that is not known is `null`.
    pub types: Vec<TypeLine>,
    /// The figures of each source.
    pub sources: Vec<SourceLine>,
    /// Where messages are that have no line in `topology events list`.
    pub unlisted: Vec<Unlisted>,
    /// Owned objects that are no longer in the file; `null` if that is not known.
    pub leftovers: Option<usize>,
    /// A sentence for each part of the answer that is not known.
    pub unknown: Vec<String>,
}

/// The answer of `topology status`.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    /// The version of this format.
    format_version: u32,
    #[serde(flatten)]
    status: &'a Status,
}

impl<'a> Document<'a> {
    /// Returns the document of a status.
    #[must_use]
    pub const fn of(status: &'a Status) -> Self {
        Self { format_version: 1, status }
    }
}

/// How it is altogether.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing is wrong.
    #[default]
    Well,
    /// Somebody should look at it.
    Look,
    /// Events are stuck, or may be lost.
    Stuck,
}

/// A finding with its words.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// How bad it is.
    pub severity: Severity,
    /// The problem, as a sentence.
    pub message: String,
    /// A command that helps, or that shows more.
    pub command: String,
    /// The place in the documentation that says what to do.
    pub runbook: String,
    /// The finding itself. One that was read from JSON has its words alone.
    #[serde(flatten, skip_deserializing)]
    #[schemars(with = "Finding")]
    finding: Option<Finding>,
}

#[doc(hidden)]
impl From<Finding> for Found {
    fn from(finding: Finding) -> Self {
        Self {
            severity: finding.severity(),
            message: finding.words(),
            command: finding.command(),
            runbook: format!("{RUNBOOK}#{}", finding.anchor()),
            finding: Some(finding),
        }
    }
}

impl Status {
    /// Draws the conclusions from what was seen.
    pub(super) fn of(topology: &Topology, desired: &Desired, seen: &Observation) -> Self {
        let findings: Vec<Found> = findings(topology, desired, seen).into_iter().map(Found::from).collect();
        let types = lines(topology, seen);
        Self {
            topology: topology.name.to_string(),
            broker: seen.version.clone(),
            at: seen.at,
            verdict: match findings.iter().map(|found| found.severity).max() {
                None => Verdict::Well,
                Some(Severity::Look) => Verdict::Look,
                Some(Severity::Stuck) => Verdict::Stuck,
            },
            findings,
            pauses: pauses(seen),
            unlisted: unlisted(topology, &types, seen),
            types,
            sources: source_lines(topology, seen),
            leftovers: seen.objects.as_ref().map(|objects| plan(desired, objects).counts().leftover),
            unknown: unknown(topology, seen),
        }
    }
}

fn pauses(seen: &Observation) -> Vec<PauseLine> {
    let pauses = seen.switches.iter().flat_map(|switches| &switches.pauses);
    pauses.filter(|pause| pause.lasts(seen.at)).map(PauseLine::from).collect()
}

/// Returns what is not known and has no finding.
fn unknown(topology: &Topology, seen: &Observation) -> Vec<String> {
    let blind = seen.blind.iter().filter_map(|blind| match blind {
        Blind::Management { .. } => None,
        Blind::Switches { why } => Some(format!("what is paused: {why}")),
        Blind::Breakers { why } => breakers(topology, true, why),
        Blind::Register { what, why } => Some(format!("{what}: {why}")),
        Blind::Channels => Some("whether connections of other users acknowledge, whether their handlers are available, and whether strangers take messages: this user needs the tag `monitoring`".to_owned()),
        Blind::Writes => Some("whether Redis takes writes: the user of --redis-url (REDIS_URL) may not write".to_owned()),
        Blind::Eviction => Some("whether Redis evicts keys: the user of --redis-url (REDIS_URL) may not call INFO (+info)".to_owned()),
        Blind::Rates => Some("rates, and whether consumers acknowledge: management.rates_mode is `none`".to_owned()),
    });
    let redis = match seen.redis {
        Redis::NotGiven => {
            Some("delayed events, how late events are, and whether runs fail: set --redis-url (REDIS_URL)".to_owned())
        }
        Redis::Unused => Some("how late events are, and whether runs fail: no type of the file uses Redis".to_owned()),
        _ => None,
    };
    let back = just_back(seen).map(|up_for| {
        format!("whether types without a consumer have workers: Redis was started {}s ago", up_for.as_secs())
    });
    let of_workers = breakers(topology, false, "with `register: off` each worker has its own, and its log tells");
    blind.chain(redis).chain(back).chain(of_workers).chain(unreported(topology, seen)).collect()
}

/// Returns a sentence about the types with a breaker that workers share, or do not.
fn breakers(topology: &Topology, are_shared: bool, why: &str) -> Option<String> {
    let types = topology.types.iter().filter(|(_, spec)| spec.breaker.is_some() && spec.register == are_shared);
    let names: Vec<&str> = types.map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| format!("whether the circuit breakers of {} are open: {why}", names.join(", ")))
}

/// Returns a sentence about the types and sources with queues of which RabbitMQ has told no figures, as in the first seconds of a
/// queue.
fn unreported(topology: &Topology, seen: &Observation) -> Option<String> {
    let names = Names::new(topology.name.clone());
    let of_types = topology.types.iter().map(|(name, spec)| {
        let queues: Vec<String> = Queues::of(&names, name, spec).into_names().collect();
        (name.to_string(), queues)
    });
    let of_sources = topology
        .sources
        .iter()
        .map(|(name, spec)| (name.to_string(), vec![spec.queue(&names, name), names.source_dead_letters(name)]));
    let is_unknown = |queue: &String| {
        let figures = seen.queue(queue);
        seen.exists(queue)
            && figures.is_none_or(|figures| figures.held().is_none() || figures.counts.consumers.is_none())
    };
    let unknown = of_types.chain(of_sources).filter(|(_, queues)| queues.iter().any(is_unknown));
    let owners: Vec<String> = unknown.map(|(owner, _)| owner).collect();
    (!owners.is_empty()).then(|| format!("figures of the queues of {}: RabbitMQ has told none so far", first(&owners)))
}
