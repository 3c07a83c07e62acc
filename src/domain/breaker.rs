//! The circuit breaker of a type: counts the errors of all workers, and lets nothing start while there are too many.
//!
//! All workers share one [`BreakerState`], a text in Redis that is replaced by compare-and-set. A worker sends what has happened as
//! a [`Report`], and the same function says what follows for everybody: [`BreakerState::report`]. A worker whose type has no register
//! keeps the state to itself.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{time::millis_text, ttl::say, words::EventType};

/// A breaker is open for at most so many times its `cooldown`.
const LONGEST: u32 = 10;

/// How many buckets a window has.
const BUCKETS: u32 = 10;

/// The most reasons that an opening keeps.
const REASONS: usize = 3;

/// How long the worker that opened a breaker has to publish the notice. Then any worker does.
const NOTICE_LIMIT: Duration = Duration::from_secs(5);

/// How long nothing is granted after a worker has restored a state that Redis had lost. Each worker reports within this time, also one
/// that has to find out first that Redis is back.
const RESTORING: Duration = Duration::from_secs(10);

/// The key `breaker` of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerSpec {
    /// The errors that open the breaker.
    pub errors: Errors,
    /// The time in which they come.
    pub window: Duration,
    /// How long the breaker is open before events are tried. `None` waits for a person.
    pub cooldown: Option<Duration>,
    /// How many events are tried. If all go well, the breaker closes.
    pub probes: u32,
}

/// The errors that open a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errors {
    /// This number of errors.
    Count(u64),
    /// This share of the runs.
    Share {
        /// The part, in thousandths.
        thousandths: u64,
        /// The least number of runs to judge by.
        minimum: u64,
    },
}

impl BreakerSpec {
    /// Returns how long the breaker is open after so many failed rounds of probes. `None` waits for a person.
    #[must_use]
    pub fn cooldown_after(&self, round: u32) -> Option<Duration> {
        Some(self.cooldown?.saturating_mul(2_u32.saturating_pow(round).min(LONGEST)))
    }

    fn is_too_much(&self, runs: u64, errors: u64) -> bool {
        match self.errors {
            Errors::Count(most) => errors >= most,
            Errors::Share { thousandths, minimum } => {
                runs >= minimum && errors > 0 && errors.saturating_mul(1_000) >= runs.saturating_mul(thousandths)
            }
        }
    }

    /// Whether runs that are no errors count too.
    #[must_use]
    pub const fn counts_runs(&self) -> bool {
        matches!(self.errors, Errors::Share { .. })
    }

    fn width(&self) -> i64 {
        millis(self.window / BUCKETS).max(1)
    }
}

/// The state of a breaker. Times are ms since 1970 by Redis's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerState {
    /// The last opening, and its rounds of probes.
    pub era: Era,
    /// Whether events may start.
    pub phase: Phase,
    /// The last opening of the breaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<Opening>,
    /// The runs of the last window. Empty unless the breaker is closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<Bucket>,
}

/// A span of time whose runs are counted together. What is known of a later era replaces what is known of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Era {
    /// The number of the last opening, higher than those before it. 0 if there was none.
    pub number: i64,
    /// How many rounds of probes have failed in this opening.
    pub round: u32,
}

/// Whether events may start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Nothing starts.
    Open {
        /// When the cooldown began.
        since: i64,
    },
    /// A few events start, to find out whether the errors are over.
    HalfOpen {
        /// The events that may start, run, or have gone well.
        grants: Vec<Grant>,
    },
    /// Events start.
    Closed {
        /// Who closed the breaker. `None` if it was never open.
        by: Option<ClosedBy>,
        /// When. `None` if it was never open, or was closed by a version that does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<i64>,
    },
}

/// The right of a worker to start one event while the breaker is half-open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The worker.
    pub to: String,
    /// When another worker may have it, because this one says nothing. `None` once the event has gone well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

/// Who closed a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClosedBy {
    /// The probes, which went well.
    Probes,
    /// A person, with `topology breaker close`.
    Person,
}

/// The opening of a breaker, with its cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// When the breaker opened, in milliseconds since 1970.
    pub at: i64,
    /// The worker whose report opened it.
    pub by: String,
    /// The errors of the window.
    pub errors: u64,
    /// The runs of the window, as far as they were reported.
    pub runs: u64,
    /// The last reasons that this worker knew.
    pub reasons: Vec<String>,
    /// Whether the notice, an event of `notify`, is published, if there is to be one.
    pub is_notified: bool,
}

/// The runs that ended in a part of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// When the part begins.
    pub start: i64,
    /// The runs.
    pub runs: u64,
    /// The runs that were errors.
    pub errors: u64,
}

/// The counts that a worker reports, and the probes that it has and asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The era of the runs and probes.
    pub era: Era,
    /// The runs that have ended since the last report.
    pub runs: u64,
    /// The runs that were errors.
    pub errors: u64,
    /// The last reasons.
    pub reasons: Vec<String>,
    /// All probes of the era that went well.
    pub good: u32,
    /// Whether a probe of the era was an error.
    pub has_failed: bool,
    /// How many grants the worker has whose events wait or run.
    pub holds: u32,
    /// How many grants more it has events for.
    pub wants: u32,
    /// The number of an opening whose notice the worker has published.
    pub notified: Option<i64>,
}

impl Report {
    /// Adds the runs of a report that was not counted.
    pub fn add(&mut self, before: Self) {
        if self.era != before.era {
            return;
        }
        self.runs += before.runs;
        self.errors += before.errors;
        let later = std::mem::replace(&mut self.reasons, before.reasons);
        for reason in &later {
            self.add_reason(reason);
        }
    }

    /// Adds a reason, unless it is there.
    pub fn add_reason(&mut self, reason: &str) {
        if self.reasons.iter().any(|known| known == reason) {
            return;
        }
        self.reasons.push(reason.to_owned());
        if self.reasons.len() > REASONS {
            self.reasons.remove(0);
        }
    }
}

/// The answer to a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The state after the report.
    pub state: BreakerState,
    /// How many events the worker may start as probes.
    pub granted: u32,
}

/// The worker that reports.
#[derive(Clone, Copy, Debug)]
pub struct Reporter<'a> {
    /// Its own name.
    pub name: &'a str,
    /// After this time without a report, a grant of this worker goes to another one.
    pub patience: Duration,
    /// Whether the file has `notify`.
    pub notifies: bool,
}

impl Default for Phase {
    fn default() -> Self {
        Self::Closed { by: None, at: None }
    }
}

impl Phase {
    /// The place of the phase in an era.
    const fn rank(&self) -> u8 {
        match self {
            Self::Open { .. } => 0,
            Self::HalfOpen { .. } => 1,
            Self::Closed { .. } => 2,
        }
    }
}

impl BreakerState {
    /// Parses a state. `None` if the text is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the text of the state.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the stored state, unless what is known is of a later era or phase: then Redis has lost it.
    ///
    /// It may have lost grants too that this worker does not know. So for a moment nothing more is granted, in which the workers that
    /// have them report that they do.
    #[must_use]
    pub fn or_known(stored: Option<Self>, known: &Self, spec: &BreakerSpec, now: i64) -> Self {
        let stored = stored.unwrap_or_default();
        let place = |state: &Self| (state.era, state.phase.rank());
        if place(known) <= place(&stored) {
            return stored;
        }
        let mut state = known.clone();
        if state.is_half_open(spec, now) {
            let mut grants = match state.phase {
                Phase::HalfOpen { grants } => grants,
                Phase::Open { .. } | Phase::Closed { .. } => Vec::new(),
            };
            let lost = Grant { to: String::new(), until: Some(now.saturating_add(millis(RESTORING))) };
            grants.resize(grants.len().max(spec.probes.try_into().unwrap_or(usize::MAX)), lost);
            state.phase = Phase::HalfOpen { grants };
        }
        state
    }

    /// Whether events start as usual.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed { .. })
    }

    /// Returns when events are tried. `None` unless the breaker is open and does not wait for a person.
    #[must_use]
    pub fn until(&self, spec: &BreakerSpec) -> Option<i64> {
        let Phase::Open { since } = self.phase else { return None };
        Some(since.saturating_add(millis(spec.cooldown_after(self.era.round)?)))
    }

    /// Whether a few events are tried, as soon as a worker has them.
    #[must_use]
    pub fn is_half_open(&self, spec: &BreakerSpec, now: i64) -> bool {
        matches!(self.phase, Phase::HalfOpen { .. }) || self.until(spec).is_some_and(|until| until <= now)
    }

    /// Returns how many events are tried now.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn tried(&self, now: i64) -> usize {
        let Phase::HalfOpen { grants } = &self.phase else { return 0 };
        let is_tried = |grant: &&Grant| !grant.to.is_empty() && grant.until.is_some_and(|until| until > now);
        grants.iter().filter(is_tried).count()
    }

    /// Whether a report of this worker has opened the breaker last.
    #[must_use]
    pub fn is_opened_by(&self, worker: &str) -> bool {
        self.opening.as_ref().is_some_and(|opening| opening.by == worker)
    }

    /// Whether the notice of the last opening is not known to be published.
    #[must_use]
    pub fn lacks_notice(&self) -> bool {
        self.opening.as_ref().is_some_and(|opening| !opening.is_notified)
    }

    /// Whether any worker has to publish the notice, because the one that opened the breaker may have died before it could.
    #[must_use]
    pub fn is_notice_late(&self, now: i64) -> bool {
        self.lacks_notice() && self.opening.as_ref().is_some_and(|opening| now - opening.at >= millis(NOTICE_LIMIT))
    }

    /// Returns the payload of the notice.
    #[must_use]
    pub fn notice(&self, event_type: &EventType, spec: &BreakerSpec) -> Option<String> {
        let Opening { at, errors, runs, reasons, .. } = self.opening.as_ref()?;
        let notice = json!({
            "type": event_type.as_str(),
            "number": self.era.number,
            "errors": errors,
            "runs": runs,
            "window": say(spec.window),
            "opened_at": millis_text(Timestamp::from_millisecond(*at).unwrap_or_default()),
            "reasons": reasons,
        });
        Some(notice.to_string())
    }

    /// Returns the state after a person has closed the breaker. `None` if it is closed.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn close(self, now: i64) -> Option<Self> {
        (!self.is_closed()).then(|| self.closed(ClosedBy::Person, now))
    }

    /// Takes a report. The runs in it must not be reported twice; the rest may be.
    #[must_use]
    pub fn report(self, spec: &BreakerSpec, now: i64, report: &Report, reporter: Reporter<'_>) -> Answer {
        let mut state = self;
        let is_notified = report.notified == Some(state.era.number) || !reporter.notifies;
        if let Some(opening) = state.opening.as_mut() {
            opening.is_notified |= is_notified;
        }
        // A run that began before the breaker opened, or in an earlier round, counts no more.
        if report.era == state.era {
            state = match &state.phase {
                Phase::Closed { .. } => state.count(spec, now, report, reporter),
                Phase::HalfOpen { .. } => state.probed(spec, now, report, reporter),
                Phase::Open { .. } => state,
            };
        }
        if let Phase::Open { since } = &mut state.phase {
            // A clock that was set back must not prolong the cooldown.
            *since = now.min(*since);
        }
        if report.wants > 0 && state.until(spec).is_some_and(|until| until <= now) {
            state.phase = Phase::HalfOpen { grants: Vec::new() };
        }
        let granted = state.grant(spec, now, report.wants, reporter);
        Answer { state, granted }
    }

    /// Counts the runs, and opens the breaker if there are too many errors.
    fn count(mut self, spec: &BreakerSpec, now: i64, report: &Report, reporter: Reporter<'_>) -> Self {
        if report.runs == 0 {
            return self;
        }
        let (window, width) = (millis(spec.window), spec.width());
        let start = now.div_euclid(width) * width;
        // The clock of another worker may be a little ahead.
        self.buckets.retain(|bucket| bucket.start > now - window && bucket.start < now + window);
        match self.buckets.iter_mut().find(|bucket| bucket.start == start) {
            Some(bucket) => {
                bucket.runs += report.runs;
                bucket.errors += report.errors;
            }
            None => self.buckets.push(Bucket { start, runs: report.runs, errors: report.errors }),
        }
        let sum = |count: fn(&Bucket) -> u64| self.buckets.iter().map(count).sum();
        let (runs, errors): (u64, u64) = (sum(|bucket| bucket.runs), sum(|bucket| bucket.errors));
        if !spec.is_too_much(runs, errors) {
            return self;
        }
        let (reasons, by) = (report.reasons.clone(), reporter.name.to_owned());
        let opening = Opening { at: now, by, errors, runs, reasons, is_notified: !reporter.notifies };
        // Higher than that of any opening that an emptied Redis has forgotten.
        let number = self.era.number.saturating_add(1).max(now / 1_000);
        let era = Era { number, round: 0 };
        Self { era, phase: Phase::Open { since: now }, opening: Some(opening), buckets: Vec::new() }
    }

    /// Takes the ends of probes. A probe without a grant does not count. A grant that Redis has lost is there again while its event
    /// waits or runs.
    fn probed(mut self, spec: &BreakerSpec, now: i64, report: &Report, reporter: Reporter<'_>) -> Self {
        let Phase::HalfOpen { grants } = &mut self.phase else { return self };
        if report.has_failed {
            let era = Era { round: self.era.round.saturating_add(1), ..self.era };
            return Self { era, phase: Phase::Open { since: now }, ..self };
        }
        let (mut good, mut holds) = (report.good, report.holds);
        grants.retain_mut(|grant| {
            if grant.to != reporter.name {
                return true;
            }
            // Those that went well before are the first ones.
            if good > 0 {
                (grant.until, good) = (None, good - 1);
            } else if grant.until.is_some() {
                let is_held = holds > 0;
                holds = holds.saturating_sub(1);
                return is_held;
            }
            true
        });
        let until = Some(now.saturating_add(millis(reporter.patience)));
        grants.extend((0..holds).map(|_| Grant { to: reporter.name.to_owned(), until }));
        let good = grants.iter().filter(|grant| grant.until.is_none()).count();
        if good >= usize::try_from(spec.probes).unwrap_or(usize::MAX) {
            self.closed(ClosedBy::Probes, now)
        } else {
            self
        }
    }

    /// Grants probes to a worker that has events in hand.
    fn grant(&mut self, spec: &BreakerSpec, now: i64, wants: u32, reporter: Reporter<'_>) -> u32 {
        let Phase::HalfOpen { grants } = &mut self.phase else { return 0 };
        let until = now.saturating_add(millis(reporter.patience));
        // One that ends far away was granted by a clock that was wrong.
        let latest = until.saturating_add(millis(spec.window));
        grants.retain(|grant| grant.until.is_none_or(|until| until > now && until <= latest));
        let taken = u32::try_from(grants.len()).unwrap_or(u32::MAX);
        let granted = wants.min(spec.probes.saturating_sub(taken));
        grants.extend((0..granted).map(|_| Grant { to: reporter.name.to_owned(), until: Some(until) }));
        granted
    }

    fn closed(self, by: ClosedBy, now: i64) -> Self {
        Self { phase: Phase::Closed { by: Some(by), at: Some(now) }, buckets: Vec::new(), ..self }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
