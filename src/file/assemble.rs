//! Builds the topology from the checked sections.

use std::{collections::BTreeMap, time::Duration};

use super::{
    breakers,
    holding::{Holding, is_said},
    keys::{
        ACK_TIMEOUT, ADOPT, BACKLOG_RETENTION, COALESCE, CRASH_LIMIT, DEDUP_RETENTION, DEFAULTS, DELAY, DELAYED,
        DELAYS, EXCLUSIVE, FailureWord, HATCHERIES, HORIZON, IMMEDIATE, IN_PLACE, JITTER, KEEP_PAYLOAD, LADDER, LEASE,
        MAX_ATTEMPTS, MAX_PAYLOAD, MAX_WAIT, NAME, ON_EXPIRY, ON_FAILURE, PAUSED, PREFIX, QUEUE_TYPE, REDIS, REGISTER,
        RENAMED_FROM, RESOLUTION, RETRY, RegisterWord, SHARDS, TRIES, TYPES, WINDOW,
    },
    life_cycle, schedules,
    section::{Named, Section, Timer},
    sources,
};
use crate::domain::{
    delay::Ladder,
    spec::{Coalesce, Delayed, Immediate, OnFailure, RedisSpec, Retry, Topology, TypeSpec},
    ttl::Ttl,
    words::{EventType, Word},
};

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
    let ack_timeout = top.get(&ACK_TIMEOUT).copied()?;
    let of_type =
        |(named, section): &(&Named, Section)| Some((named.name.parse().ok()?, type_spec(section, ack_timeout)?));
    let types: Option<BTreeMap<EventType, TypeSpec>> = types(top)?.iter().map(of_type).collect();
    Some(Topology {
        name: top.get(&NAME)?.parse().ok()?,
        renamed_from: words(top)?,
        adopt: top.get(&ADOPT)?.iter().map(|name| name.text.clone()).collect(),
        paused: top.get(&PAUSED).map(str::to_owned),
        queue_type: top.get(&QUEUE_TYPE).copied()?,
        hatcheries: ttls(top.get(&HATCHERIES)?)?,
        ladder: ladder(top.get(&LADDER)?)?,
        redis: redis(top.get(&REDIS)?)?,
        ack_timeout,
        max_payload: usize::try_from(top.get(&MAX_PAYLOAD).copied()?).ok()?,
        life_cycle: life_cycle::spec(top)?,
        types: types?,
        schedules: schedules::definitions(top)?,
        sources: sources::specs(top)?,
        notify: breakers::notify(top),
    })
}

/// Returns the ladder, or `None` if no ladder has this resolution and horizon.
pub(super) fn ladder(section: &Section) -> Option<Ladder> {
    let (resolution, horizon) = resolution_and_horizon(section)?;
    Ladder::new(Ttl::new(resolution).ok()?, Ttl::new(horizon).ok()?).ok()
}

/// Returns the ladder's two lengths. The default of one gives way to the other.
pub(super) fn resolution_and_horizon(section: &Section) -> Option<(Duration, Duration)> {
    let (resolution, horizon) = (section.get(&RESOLUTION).copied()?, section.get(&HORIZON).copied()?);
    Some(match (is_said(section, RESOLUTION.name), is_said(section, HORIZON.name)) {
        (true, false) => (resolution, horizon.max(resolution)),
        (false, _) => (resolution.min(horizon), horizon),
        (true, true) => (resolution, horizon),
    })
}

fn redis(section: &Section) -> Option<RedisSpec> {
    Some(RedisSpec {
        prefix: section.get(&PREFIX)?.to_owned(),
        shards: u16::try_from(section.get(&SHARDS).copied()?).ok()?,
        dedup_retention: section.get(&DEDUP_RETENTION).copied()?,
        backlog_retention: section.get(&BACKLOG_RETENTION).copied()?,
    })
}

fn type_spec(section: &Section, ack: Duration) -> Option<TypeSpec> {
    let coalesce = coalesce(section.get(&COALESCE)?);
    let holding = Holding::of(section, ack)?;
    Some(TypeSpec {
        renamed_from: words(section)?,
        paused: section.get(&PAUSED).map(str::to_owned),
        prefetch: u16::try_from(holding.prefetch).ok()?,
        concurrency: u16::try_from(holding.concurrency).ok()?,
        handler_timeout: holding.handler,
        drain_timeout: holding.drain,
        coalesce,
        on_failure: on_failure(section)?,
        retry: retry(section)?,
        on_expiry: section.get(&ON_EXPIRY).copied()?,
        crash_limit: u32::try_from(section.get(&CRASH_LIMIT).copied()?).ok()?,
        register: section.get(&REGISTER).copied()? == RegisterWord::On,
        exclusive: section.get(&EXCLUSIVE).copied().unwrap_or_else(|| coalesces(&coalesce)),
        lease: section.get(&LEASE).copied()?,
        breaker: breakers::spec(section),
        keep_payload: usize::try_from(section.get(&KEEP_PAYLOAD).copied()?).ok().filter(|bytes| *bytes > 0),
    })
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

pub(super) fn coalesce(section: &Section) -> Coalesce {
    let immediate = section.get(&IMMEDIATE).copied().unwrap_or(Immediate::Off);
    let delayed = section.get(&DELAYED).copied().unwrap_or(Delayed::Off);
    let window = section.get(&WINDOW).copied().and_then(|window| Ttl::new(window).ok());
    let many_windows =
        || window.map_or(WAIT_WITHOUT_WINDOW, |window| window.as_duration().saturating_mul(MOST_WINDOWS));
    let max_wait = section.get(&MAX_WAIT).copied().unwrap_or_else(many_windows);
    Coalesce { immediate, delayed, window, max_wait }
}

/// Whether some events of the type replace each other.
pub(super) fn coalesces(coalesce: &Coalesce) -> bool {
    coalesce.immediate != Immediate::Off || coalesce.delayed != Delayed::Off
}

fn words(section: &Section) -> Option<Vec<Word>> {
    section.get(&RENAMED_FROM)?.iter().map(|name| name.text.parse().ok()).collect()
}

fn ttls(timers: &[Timer]) -> Option<Vec<Ttl>> {
    timers.iter().map(|timer| Ttl::new(timer.duration).ok()).collect()
}
