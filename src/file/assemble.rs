//! From checked sections to the topology.

use std::{collections::BTreeMap, time::Duration};

use super::section::{Named, Origin, Section, Timer};
use crate::domain::{
    delay::Ladder,
    spec::{Coalesce, Delayed, Immediate, OnFailure, QueueType, RedisSpec, Retry, Topology, TypeSpec},
    ttl::Ttl,
    words::{EventType, Word},
};

/// The prefetch of a type that blocks, where nothing is said.
const PREFETCH_IN_ORDER: u64 = 10;
/// How many windows a stream of changes may put its reference off, where nothing is said.
const MOST_WINDOWS: u32 = 10;
/// The same for types without a window.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Every key of a type: its own, then those of `defaults`.
pub(super) fn types(top: &Section) -> Option<Vec<(&Named, Section)>> {
    let defaults = top.section("defaults")?.clone().into_defaults();
    Some(top.types("types")?.iter().map(|named| (named, named.section.clone().over(&defaults))).collect())
}

/// The topology, or nothing where a key was refused.
pub(super) fn topology(top: &Section) -> Option<Topology> {
    let types: Option<BTreeMap<EventType, TypeSpec>> =
        types(top)?.iter().map(|(named, section)| Some((named.name.parse().ok()?, type_spec(section)?))).collect();
    Some(Topology {
        name: top.text("name")?.parse().ok()?,
        renamed_from: words(top)?,
        adopt: top.names("adopt")?.iter().map(|name| name.text.clone()).collect(),
        queue_type: match top.word("queue-type")? {
            "classic" => QueueType::Classic,
            _ => QueueType::Quorum,
        },
        hatcheries: ttls(top.ttls("hatcheries")?)?,
        ladder: ladder(top.section("ladder")?)?,
        redis: redis(top.section("redis")?)?,
        ack_timeout: top.duration("ack-timeout")?,
        max_payload: usize::try_from(top.whole("max-payload")?).ok()?,
        types: types?,
    })
}

/// The ladder, where its horizon is at least one step.
pub(super) fn ladder(section: &Section) -> Option<Ladder> {
    let ttl = |key| Ttl::new(section.duration(key)?).ok();
    Ladder::new(ttl("resolution")?, ttl("horizon")?).ok()
}

fn redis(section: &Section) -> Option<RedisSpec> {
    Some(RedisSpec {
        prefix: section.text("prefix")?.to_owned(),
        shards: u16::try_from(section.whole("shards")?).ok()?,
        dedup_retention: section.duration("dedup-retention")?,
        backlog_retention: section.duration("backlog-retention")?,
    })
}

fn type_spec(section: &Section) -> Option<TypeSpec> {
    let coalesce = coalesce(section.section("coalesce")?);
    Some(TypeSpec {
        renamed_from: words(section)?,
        prefetch: u16::try_from(prefetch(section)?).ok()?,
        concurrency: u16::try_from(concurrency(section)?).ok()?,
        handler_timeout: section.duration("handler-timeout")?,
        drain_timeout: section.duration("drain-timeout")?,
        coalesce,
        on_failure: on_failure(section)?,
        retry: retry(section)?,
        crash_limit: u32::try_from(section.whole("crash-limit")?).ok()?,
        register: section.word("register")? == "on",
        exclusive: section.switch("exclusive").unwrap_or_else(|| coalesces(&coalesce)),
        lease: section.duration("lease")?,
        keep_payload: usize::try_from(section.whole("keep-payload")?).ok().filter(|bytes| *bytes > 0),
    })
}

/// Where nothing is said it depends on what follows a failure. A type that blocks has one delivery in its hand, and the next
/// ones wait for it: they need not be many. Several tries of each are as long as one of more deliveries.
pub(super) fn prefetch(section: &Section) -> Option<u64> {
    let prefetch = section.whole("prefetch")?;
    match section.word("on-failure")? {
        _ if is_said(section, "prefetch") => Some(prefetch),
        "block" => Some(PREFETCH_IN_ORDER.min(prefetch)),
        "in-place" => {
            let tries = section.section("in-place")?.whole("tries")?;
            Some((prefetch / tries).max(section.whole("concurrency")?.min(prefetch)))
        }
        _ => Some(prefetch),
    }
}

/// A type that blocks runs one handler, whatever `defaults` say for the others.
pub(super) fn concurrency(section: &Section) -> Option<u64> {
    let said = section.whole("concurrency")?;
    Some(if blocks(section) { 1 } else { said })
}

pub(super) fn blocks(section: &Section) -> bool {
    section.word("on-failure") == Some("block")
}

/// Whether the file says it, in the type or in `defaults`.
fn is_said(section: &Section, key: &str) -> bool {
    section.blame(&[key]).is_some_and(|(origin, _)| origin != Origin::Table)
}

fn on_failure(section: &Section) -> Option<OnFailure> {
    Some(match section.word("on-failure")? {
        "in-place" => {
            let in_place = section.section("in-place")?;
            let tries = u32::try_from(in_place.whole("tries")?).ok()?;
            OnFailure::InPlace { tries, delay: in_place.duration("delay")? }
        }
        "block" => OnFailure::Block,
        "drop" => OnFailure::Drop,
        _ => OnFailure::Retry,
    })
}

fn retry(section: &Section) -> Option<Retry> {
    let retry = section.section("retry")?;
    let max_attempts = u32::try_from(retry.whole("max-attempts")?).ok()?;
    let jitter = u16::try_from(retry.whole("jitter")?).ok()?;
    // After the tries in place come the retry queues that somebody asked for, and no others.
    let none = section.word("on-failure") == Some("in-place") && !is_said(section, "retry");
    let delays = if none { Vec::new() } else { ttls(retry.ttls("delays")?)? };
    Some(Retry { delays, max_attempts, jitter })
}

fn coalesce(section: &Section) -> Coalesce {
    let immediate = match section.word("immediate").unwrap_or("off") {
        "latest" => Immediate::Latest,
        "first" => Immediate::First,
        _ => Immediate::Off,
    };
    let delayed = match section.word("delayed").unwrap_or("off") {
        "latest" => Delayed::Latest,
        "each-time" => Delayed::EachTime,
        _ => Delayed::Off,
    };
    let window = section.duration("window").and_then(|window| Ttl::new(window).ok());
    let max_wait = section
        .duration("max-wait")
        .unwrap_or_else(|| window.map_or(MAX_WAIT, |window| window.as_duration().saturating_mul(MOST_WINDOWS)));
    Coalesce { immediate, delayed, window, max_wait }
}

/// Whether any of its events stand for each other.
fn coalesces(coalesce: &Coalesce) -> bool {
    coalesce.immediate != Immediate::Off || coalesce.delayed != Delayed::Off
}

fn words(section: &Section) -> Option<Vec<Word>> {
    section.names("renamed-from")?.iter().map(|name| name.text.parse().ok()).collect()
}

fn ttls(timers: &[Timer]) -> Option<Vec<Ttl>> {
    timers.iter().map(|timer| Ttl::new(timer.duration).ok()).collect()
}
