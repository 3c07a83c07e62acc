//! How long a worker may hold a delivery: the keys of a type that decide it. A default gives way to what the file says.

use std::time::Duration;

use super::{
    keys::{CONCURRENCY, DELAY, DRAIN_TIMEOUT, FailureWord, HANDLER_TIMEOUT, IN_PLACE, ON_FAILURE, PREFETCH, TRIES},
    section::{Origin, Section},
};

/// The default prefetch of a type with `on-failure: block`.
const PREFETCH_IN_ORDER: u64 = 10;

/// The default of `drain-timeout` gives way no further: a worker that stops at once breaks off its runs.
const LEAST_DRAIN: Duration = Duration::from_secs(5);

/// What a worker does with a delivery of a type before its acknowledgement.
#[derive(Clone, Copy)]
pub(super) struct Holding {
    pub(super) prefetch: u64,
    pub(super) concurrency: u64,
    pub(super) handler: Duration,
    pub(super) drain: Duration,
    /// How often the handler runs for one delivery.
    pub(super) tries: u64,
    /// The pause between two tries.
    pub(super) pause: Duration,
    /// A worker of a type that blocks returns all its deliveries after this time, and starts no run after that.
    pub(super) held: Duration,
}

impl Holding {
    /// Returns `None` if a key that it needs was refused.
    ///
    /// The default of `handler-timeout` does not give way: runs would be stopped earlier than anybody has said.
    pub(super) fn of(section: &Section, ack: Duration) -> Option<Self> {
        let (tries, pause) = tries(section)?;
        let concurrency = concurrency(section)?;
        let mut holding = Self {
            prefetch: prefetch(section)?,
            concurrency,
            handler: section.get(&HANDLER_TIMEOUT).copied()?,
            drain: section.get(&DRAIN_TIMEOUT).copied()?,
            tries,
            pause,
            held: if blocks(section) { ack / 2 } else { Duration::ZERO },
        };
        let run = holding.run();
        if let (Some(left), false) =
            (ack.checked_sub(holding.held.saturating_add(run)), is_said(section, DRAIN_TIMEOUT.name))
        {
            holding.drain = holding.drain.min(left.max(LEAST_DRAIN));
        }
        if !is_said(section, PREFETCH.name) {
            let fitting = how_often(run, ack.saturating_sub(holding.held + holding.drain));
            let most = if blocks(section) { u64::MAX } else { fitting.saturating_mul(concurrency) };
            holding.prefetch = holding.prefetch.min(most).max(concurrency);
        }
        Some(holding)
    }

    /// Returns how long all tries of one delivery take.
    pub(super) fn run(&self) -> Duration {
        times(self.handler, self.tries).saturating_add(times(self.pause, self.tries))
    }

    /// Returns how many runs are before the end of the last delivery.
    pub(super) fn runs(&self) -> u64 {
        if self.held.is_zero() { self.prefetch.div_ceil(self.concurrency) } else { 1 }
    }

    /// Returns how long a worker may hold a delivery.
    pub(super) fn longest(&self) -> Duration {
        self.held.saturating_add(times(self.run(), self.runs())).saturating_add(self.drain)
    }
}

/// Returns how often a duration fits into another one.
pub(super) fn how_often(duration: Duration, into: Duration) -> u64 {
    u64::try_from(into.as_millis() / duration.as_millis().max(1)).unwrap_or(u64::MAX)
}

pub(super) fn times(duration: Duration, times: u64) -> Duration {
    duration.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX))
}

/// The default depends on `on-failure`. With `block` the deliveries are handled one by one, so a small prefetch is enough.
/// With `in-place` each delivery may take several tries, so the prefetch is divided by their number.
fn prefetch(section: &Section) -> Option<u64> {
    let prefetch = section.get(&PREFETCH).copied()?;
    match section.get(&ON_FAILURE).copied()? {
        _ if is_said(section, PREFETCH.name) => Some(prefetch),
        FailureWord::Block => Some(PREFETCH_IN_ORDER.min(prefetch)),
        FailureWord::InPlace => Some(prefetch / section.get(&IN_PLACE)?.get(&TRIES)?),
        _ => Some(prefetch),
    }
}

/// A type with `on-failure: block` runs one handler, whatever `concurrency` is in `defaults`.
fn concurrency(section: &Section) -> Option<u64> {
    let (concurrency, prefetch) = (section.get(&CONCURRENCY).copied()?, section.get(&PREFETCH).copied()?);
    if blocks(section) {
        return Some(1);
    }
    Some(if is_said(section, CONCURRENCY.name) { concurrency } else { concurrency.min(prefetch) })
}

fn tries(section: &Section) -> Option<(u64, Duration)> {
    if *section.get(&ON_FAILURE)? != FailureWord::InPlace {
        return Some((1, Duration::ZERO));
    }
    let in_place = section.get(&IN_PLACE)?;
    Some((in_place.get(&TRIES).copied()?, in_place.get(&DELAY).copied()?))
}

pub(super) fn blocks(section: &Section) -> bool {
    section.get(&ON_FAILURE) == Some(&FailureWord::Block)
}

/// Whether the file sets this key, in the type or in `defaults`.
pub(super) fn is_said(section: &Section, key: &str) -> bool {
    section.blame(&[key]).is_some_and(|(origin, _)| origin != Origin::Table)
}
