//! The rule of a schedule: when its events run.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::calendar::{Calendar, CalendarError};
use crate::domain::{
    time,
    ttl::{parse_duration, say},
    words::Word,
};

/// When the events of a schedule run, and what becomes of those that cannot run in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The instants, or the interval.
    pub calendar: Calendar,
    /// The time from which the next instant is counted.
    pub mode: Mode,
    /// The most by which an event may be later than its instant, so that many schedules do not run at one moment.
    pub jitter: Duration,
    /// The rule for an instant at which the run before has not ended.
    pub overlap: Overlap,
    /// The rule for instants that passed before their events could start: which of them run.
    pub catch_up: CatchUp,
    /// The rule for the schedule when an event of it goes to dead-letter.
    pub on_failure: OnScheduleFailure,
}

/// The time from which the next instant of a schedule is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The definition alone: a run that takes long moves no later run.
    Fixed,
    /// The end of the run before.
    Sequential,
}

/// The rule for an instant at which the run before has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// The event waits for the end of that run.
    #[default]
    Queue,
    /// The event does not run.
    Skip,
}

/// The rule for instants that passed before their events could start: which of them run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CatchUp {
    /// None of them.
    None,
    /// The last one.
    #[default]
    Last,
    /// All of them, one after the other.
    All,
}

/// The rule for a schedule when an event of it goes to dead-letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnScheduleFailure {
    /// The schedule goes on.
    #[default]
    Continue,
    /// The schedule stops until a person resumes it.
    Pause,
}

/// An event of a schedule that is to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Arm {
    /// The event's position in its schedule, in ms since 1970. With [`Mode::Fixed`] it is the instant. With [`Mode::Sequential`]
    /// it is a number that is one higher for each event; the first one is the time at which the schedule was armed, so that it
    /// is higher than all numbers before, even if Redis has lost them.
    pub position: i64,
    /// The time at which the event is due, in ms since 1970.
    pub due: i64,
}

impl Rule {
    /// Returns the first event of a schedule whose chain begins now. `after` is the highest position that the schedule had, and
    /// `owed` an instant that has passed and has not run. `None` if the calendar has no later instant.
    #[must_use]
    pub fn first(&self, name: &Word, now: Timestamp, after: Option<i64>, owed: Option<i64>) -> Option<Arm> {
        match self.mode {
            Mode::Fixed => {
                let from = owed.and_then(|owed| Timestamp::from_millisecond(owed.saturating_sub(1)).ok());
                self.at(name, self.calendar.next_after(from.map_or(now, |from| from.min(now)))?)
            }
            Mode::Sequential => {
                let position = now.as_millisecond().max(after.map_or(0, |after| after.saturating_add(1)));
                self.numbered(name, position, now)
            }
        }
    }

    /// Returns the event that follows the one at `position`.
    #[must_use]
    pub fn next(&self, name: &Word, position: i64, now: Timestamp) -> Option<Arm> {
        match self.mode {
            Mode::Fixed => {
                let this = Timestamp::from_millisecond(position).ok()?;
                let next = self.calendar.next_after(this)?;
                // An event that its jitter puts off does not wait for a worker.
                let passed = time::earlier(now, self.jitter);
                let slot = match self.catch_up {
                    _ if next > passed => next,
                    CatchUp::All => next,
                    CatchUp::Last => self.calendar.last_at_or_before(passed, this).unwrap_or(next),
                    CatchUp::None => self.calendar.next_after(passed)?,
                };
                self.at(name, slot)
            }
            Mode::Sequential => self.numbered(name, position.saturating_add(1), now),
        }
    }

    /// Tells whether an event cannot be the next one while no clock shows more than `latest`. A number is at most the time at which it was
    /// given.
    #[must_use]
    pub fn is_ahead(&self, name: &Word, arm: Arm, latest: Timestamp) -> bool {
        let ms = latest.as_millisecond();
        match self.mode {
            Mode::Fixed => arm.position > self.calendar.next_after(latest).map_or(ms, Timestamp::as_millisecond),
            Mode::Sequential => {
                let last = self.numbered(name, arm.position, latest);
                arm.position > ms || last.is_some_and(|last| arm.due > last.due)
            }
        }
    }

    fn at(&self, name: &Word, slot: Timestamp) -> Option<Arm> {
        let position = slot.as_millisecond();
        let due = time::due(slot, self.spread(name, position))?.as_millisecond();
        Some(Arm { position, due })
    }

    fn numbered(&self, name: &Word, position: i64, from: Timestamp) -> Option<Arm> {
        let next = match self.calendar.interval() {
            Some(interval) => time::due(from, interval)?,
            None => self.calendar.next_after(from)?,
        };
        let due = time::due(next, self.spread(name, position))?;
        Some(Arm { position, due: time::ceil_millis(due).as_millisecond() })
    }

    /// Returns the jitter of one event. It depends on nothing else, so that all copies of an event are due at one time.
    fn spread(&self, name: &Word, position: i64) -> Duration {
        let most = u64::try_from(self.jitter.as_millis()).unwrap_or(u64::MAX);
        let chance = xxh3_64(format!("{name}@{position}").as_bytes());
        Duration::from_millis(most.checked_add(1).map_or(0, |range| chance % range))
    }

    /// Returns the rule in the words of the file.
    pub(super) fn words(&self) -> RuleWords {
        let default = |is_default: bool, text: String| (!is_default).then_some(text);
        RuleWords {
            cron: self.calendar.expression().map(str::to_owned),
            timezone: self.calendar.expression().map(|_| self.calendar.zone_name().to_owned()),
            every: self.calendar.interval().map(say),
            mode: self.mode,
            jitter: default(self.jitter.is_zero(), say(self.jitter)),
            overlap: self.overlap,
            catch_up: self.catch_up,
            on_failure: self.on_failure,
        }
    }
}

/// A [`Rule`] in the words of the file, as a message carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RuleWords {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every: Option<String>,
    mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jitter: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    overlap: Overlap,
    #[serde(default, skip_serializing_if = "is_default")]
    catch_up: CatchUp,
    #[serde(default, skip_serializing_if = "is_default")]
    on_failure: OnScheduleFailure,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Why the words of a rule are not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The calendar is not one.
    #[error(transparent)]
    Calendar(#[from] CalendarError),
    /// A duration is not one.
    #[error("`{0}` is not a duration")]
    Duration(String),
    /// The rule says neither `cron` nor `every`, or both.
    #[error("a schedule has either `cron` or `every`")]
    NoCalendar,
}

impl TryFrom<RuleWords> for Rule {
    type Error = RuleError;

    fn try_from(words: RuleWords) -> Result<Self, RuleError> {
        let duration = |text: String| parse_duration(&text).map_err(|_| RuleError::Duration(text));
        let calendar = match (words.cron, words.every) {
            (Some(cron), None) => Calendar::cron(&cron, words.timezone.as_deref().unwrap_or("UTC"))?,
            (None, Some(every)) => Calendar::every(duration(every)?)?,
            _ => return Err(RuleError::NoCalendar),
        };
        Ok(Self {
            calendar,
            mode: words.mode,
            jitter: words.jitter.map_or(Ok(Duration::ZERO), duration)?,
            overlap: words.overlap,
            catch_up: words.catch_up,
            on_failure: words.on_failure,
        })
    }
}
