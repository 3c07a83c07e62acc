//! Builds the topology from the checked sections.

use std::{collections::BTreeMap, time::Duration};

use super::{
    keys::{
        ACK_TIMEOUT, ADOPT, BACKLOG_RETENTION, COALESCE, CONCURRENCY, CRASH_LIMIT, DEDUP_RETENTION, DEFAULTS, DELAY,
        DELAYED, DELAYS, DRAIN_TIMEOUT, EXCLUSIVE, FailureWord, HANDLER_TIMEOUT, HATCHERIES, HORIZON, IMMEDIATE,
        IN_PLACE, JITTER, KEEP_PAYLOAD, LADDER, LEASE, MAX_ATTEMPTS, MAX_PAYLOAD, MAX_WAIT, NAME, ON_FAILURE, PREFETCH,
        PREFIX, QUEUE_TYPE, REDIS, REGISTER, RENAMED_FROM, RESOLUTION, RETRY, RegisterWord, SHARDS, TRIES, TYPES,
        WINDOW,
    },
    section::{Named, Origin, Section, Timer},
    sources,
};
use crate::domain::{
    delay::Ladder,
    spec::{Coalesce, Delayed, Immediate, OnFailure, RedisSpec, Retry, Topology, TypeSpec},
    ttl::Ttl,
    words::{EventType, Word},
};

/// The default prefetch of a type with `on-failure: block`.
const PREFETCH_IN_ORDER: u64 = 10;
/// The default `max-wait` of a type with a window, in windows.
const MOST_WINDOWS: u32 = 10;
/// The default `max-wait` of a type without a window.
const WAIT_WITHOUT_WINDOW: Duration = Duration::from_secs(30);

/// Returns the section of each type, where a key that the type does not set has its value from `defaults`.
pub(super) fn types(top: &Section) -> Option<Vec<(&Named, Section)>> {
    let defaults = top.get(&DEFAULTS)?.clone().into_defaults();
    Some(top.get(&TYPES)?.iter().map(|named| (named, named.section.clone().over(&defaults))).collect())
}

/// Returns the topology, or `None` if a key that it needs was refused.
pub(super) fn topology(top: &Section) -> Option<Topology> {
    let types: Option<BTreeMap<EventType, TypeSpec>> =
        types(top)?.iter().map(|(named, section)| Some((named.name.parse().ok()?, type_spec(section)?))).collect();
    Some(Topology {
        name: top.get(&NAME)?.parse().ok()?,
        renamed_from: words(top)?,
        adopt: top.get(&ADOPT)?.iter().map(|name| name.text.clone()).collect(),
        queue_type: top.get(&QUEUE_TYPE).copied()?,
        hatcheries: ttls(top.get(&HATCHERIES)?)?,
        ladder: ladder(top.get(&LADDER)?)?,
        redis: redis(top.get(&REDIS)?)?,
        ack_timeout: top.get(&ACK_TIMEOUT).copied()?,
        max_payload: usize::try_from(top.get(&MAX_PAYLOAD).copied()?).ok()?,
        types: types?,
        sources: sources::specs(top)?,
    })
}

/// Returns the ladder, or `None` if no ladder has this resolution and horizon.
pub(super) fn ladder(section: &Section) -> Option<Ladder> {
    let ttl = |field| Ttl::new(*section.get(field)?).ok();
    Ladder::new(ttl(&RESOLUTION)?, ttl(&HORIZON)?).ok()
}

fn redis(section: &Section) -> Option<RedisSpec> {
    Some(RedisSpec {
        prefix: section.get(&PREFIX)?.to_owned(),
        shards: u16::try_from(section.get(&SHARDS).copied()?).ok()?,
        dedup_retention: section.get(&DEDUP_RETENTION).copied()?,
        backlog_retention: section.get(&BACKLOG_RETENTION).copied()?,
    })
}

fn type_spec(section: &Section) -> Option<TypeSpec> {
    let coalesce = coalesce(section.get(&COALESCE)?);
    Some(TypeSpec {
        renamed_from: words(section)?,
        prefetch: u16::try_from(prefetch(section)?).ok()?,
        concurrency: u16::try_from(concurrency(section)?).ok()?,
        handler_timeout: section.get(&HANDLER_TIMEOUT).copied()?,
        drain_timeout: section.get(&DRAIN_TIMEOUT).copied()?,
        coalesce,
        on_failure: on_failure(section)?,
        retry: retry(section)?,
        crash_limit: u32::try_from(section.get(&CRASH_LIMIT).copied()?).ok()?,
        register: section.get(&REGISTER).copied()? == RegisterWord::On,
        exclusive: section.get(&EXCLUSIVE).copied().unwrap_or_else(|| coalesces(&coalesce)),
        lease: section.get(&LEASE).copied()?,
        keep_payload: usize::try_from(section.get(&KEEP_PAYLOAD).copied()?).ok().filter(|bytes| *bytes > 0),
    })
}

/// The default depends on `on-failure`. With `block` the deliveries are handled one by one, so a small prefetch is enough.
/// With `in-place` each delivery may take several tries, so the prefetch is divided by their number.
pub(super) fn prefetch(section: &Section) -> Option<u64> {
    let prefetch = section.get(&PREFETCH).copied()?;
    match section.get(&ON_FAILURE).copied()? {
        _ if is_said(section, PREFETCH.name) => Some(prefetch),
        FailureWord::Block => Some(PREFETCH_IN_ORDER.min(prefetch)),
        FailureWord::InPlace => {
            let tries = section.get(&IN_PLACE)?.get(&TRIES)?;
            Some((prefetch / tries).max(section.get(&CONCURRENCY).copied()?.min(prefetch)))
        }
        _ => Some(prefetch),
    }
}

/// A type with `on-failure: block` runs one handler, whatever `concurrency` is in `defaults`.
pub(super) fn concurrency(section: &Section) -> Option<u64> {
    let said = section.get(&CONCURRENCY).copied()?;
    Some(if blocks(section) { 1 } else { said })
}

pub(super) fn blocks(section: &Section) -> bool {
    section.get(&ON_FAILURE) == Some(&FailureWord::Block)
}

/// Whether the file sets this key, in the type or in `defaults`.
fn is_said(section: &Section, key: &str) -> bool {
    section.blame(&[key]).is_some_and(|(origin, _)| origin != Origin::Table)
}

fn on_failure(section: &Section) -> Option<OnFailure> {
    Some(match section.get(&ON_FAILURE).copied()? {
        FailureWord::InPlace => {
            let in_place = section.get(&IN_PLACE)?;
            let tries = u32::try_from(in_place.get(&TRIES).copied()?).ok()?;
            OnFailure::InPlace { tries, delay: in_place.get(&DELAY).copied()? }
        }
        FailureWord::Block => OnFailure::Block,
        FailureWord::Drop => OnFailure::Drop,
        FailureWord::Retry => OnFailure::Retry,
    })
}

fn retry(section: &Section) -> Option<Retry> {
    let retry = section.get(&RETRY)?;
    let max_attempts = u32::try_from(retry.get(&MAX_ATTEMPTS).copied()?).ok()?;
    let jitter = u16::try_from(retry.get(&JITTER).copied()?).ok()?;
    // The tries in place are followed by retry queues only if the file has the key `retry`.
    let none = section.get(&ON_FAILURE) == Some(&FailureWord::InPlace) && !is_said(section, RETRY.name);
    let delays = if none { Vec::new() } else { ttls(retry.get(&DELAYS)?)? };
    Some(Retry { delays, max_attempts, jitter })
}

fn coalesce(section: &Section) -> Coalesce {
    let immediate = section.get(&IMMEDIATE).copied().unwrap_or(Immediate::Off);
    let delayed = section.get(&DELAYED).copied().unwrap_or(Delayed::Off);
    let window = section.get(&WINDOW).copied().and_then(|window| Ttl::new(window).ok());
    let many_windows =
        || window.map_or(WAIT_WITHOUT_WINDOW, |window| window.as_duration().saturating_mul(MOST_WINDOWS));
    let max_wait = section.get(&MAX_WAIT).copied().unwrap_or_else(many_windows);
    Coalesce { immediate, delayed, window, max_wait }
}

/// Whether some events of the type replace each other.
fn coalesces(coalesce: &Coalesce) -> bool {
    coalesce.immediate != Immediate::Off || coalesce.delayed != Delayed::Off
}

fn words(section: &Section) -> Option<Vec<Word>> {
    section.get(&RENAMED_FROM)?.iter().map(|name| name.text.parse().ok()).collect()
}

fn ttls(timers: &[Timer]) -> Option<Vec<Ttl>> {
    timers.iter().map(|timer| Ttl::new(timer.duration).ok()).collect()
}
