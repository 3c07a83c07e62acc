//! A schedule: its state as far as it is known, and as `topology schedule` shows it.

use std::borrow::Cow;

use hatchery::internals::{
    schedule::{definition::Definition, rule::Mode, run::ScheduledRun, state::ScheduleState},
    schedules,
    ttl::say,
    words::plain,
};
use jiff::{Timestamp, tz::TimeZone};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A schedule: its definition in the file, and its state in Redis.
#[derive(Clone, Debug)]
pub struct ScheduleInfo {
    /// The name.
    pub name: String,
    /// The definition. `None` if the file does not have the schedule.
    pub definition: Option<Definition>,
    /// The state. `None` if no `topology apply` has armed the schedule, or Redis has lost the state.
    pub state: Option<ScheduleState>,
}

impl ScheduleInfo {
    /// Returns the next instants of the schedule: that of the armed event, and those that follow it. None while the schedule is paused.
    /// With `mode: sequential` there is one, because the next one depends on the run.
    #[must_use]
    pub fn next(&self, count: usize) -> Vec<Timestamp> {
        let (Some(definition), Some(state)) = (&self.definition, &self.state) else { return Vec::new() };
        let Some(armed) = state.armed.filter(|_| state.paused.is_none()) else { return Vec::new() };
        if definition.rule.mode == Mode::Sequential {
            return vec![schedules::time(armed.arm.due)];
        }
        let first = Some(schedules::time(armed.arm.position));
        std::iter::successors(first, |at| definition.rule.calendar.next_after(*at)).take(count).collect()
    }
}

/// The number of instants that are shown.
pub const INSTANTS: usize = 3;

/// A schedule.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleView {
    /// The name.
    pub name: String,
    /// `armed`, `paused`, `not applied`, `changed` (the file has another definition than the last `apply`), or `not in the file`.
    pub state: Cow<'static, str>,
    /// The type of its events; `null` if the file does not have the schedule.
    #[serde(rename = "type")]
    pub event_type: Option<String>,
    /// The reference of its events.
    pub reference: Option<String>,
    /// When its events are due, for people.
    pub calendar: Option<String>,
    /// The time zone of its expression.
    pub timezone: Option<String>,
    /// `fixed` or `sequential`.
    pub mode: Option<Cow<'static, str>>,
    /// The most by which an event is later than its instant.
    pub jitter: Option<String>,
    /// `queue` or `skip`.
    pub overlap: Option<String>,
    /// `none`, `last` or `all`.
    pub catch_up: Option<String>,
    /// `continue` or `pause`.
    pub on_failure: Option<String>,
    /// The next instants.
    #[schemars(with = "Vec<String>")]
    pub next: Vec<Timestamp>,
    /// The newest run.
    pub last: Option<LastRun>,
    /// Since when it is paused.
    #[schemars(with = "Option<String>")]
    pub paused_since: Option<Timestamp>,
    /// Why it is paused.
    pub paused_because: Option<String>,
}

/// The newest run of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LastRun {
    /// The event's id.
    pub id: String,
    /// When it began.
    #[schemars(with = "Option<String>")]
    pub started: Option<Timestamp>,
    /// When it ended; `null` while it runs or waits for its next try.
    #[schemars(with = "Option<String>")]
    pub ended: Option<Timestamp>,
    /// How it ended.
    pub outcome: Option<String>,
}

/// The answer of `topology schedule list`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct ScheduleList {
    /// The schedules, by name.
    pub schedules: Vec<ScheduleView>,
}

/// The answer of a command that acts on a schedule.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct ActedSchedule {
    /// The schedule.
    pub schedule: String,
    /// Whether the command has changed anything.
    pub changed: bool,
    /// When the next event is due, after `resume`.
    #[schemars(with = "Option<String>")]
    pub next: Option<Timestamp>,
    /// The id of the event, after `run-now`.
    pub id: Option<String>,
}

/// The answer of `topology schedule backfill`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Backfilled {
    /// The schedule.
    pub schedule: String,
    /// Whether nothing was published.
    pub dry_run: bool,
    /// The instants.
    #[schemars(with = "Vec<String>")]
    pub instants: Vec<Timestamp>,
    /// The ids of their events.
    pub ids: Vec<String>,
    /// Whether more instants follow than `--limit`.
    pub more: bool,
}

impl ScheduleView {
    /// Returns a schedule as JSON, with its next instants.
    #[must_use]
    pub fn of(info: &ScheduleInfo) -> Self {
        Self::with(info, INSTANTS)
    }

    /// Returns a schedule as JSON, with so many instants.
    #[must_use]
    pub fn with(info: &ScheduleInfo, instants: usize) -> Self {
        let definition = info.definition.as_ref();
        let rule = definition.map(|definition| &definition.rule);
        let paused = info.state.as_ref().and_then(|state| state.paused.as_ref());
        Self {
            name: info.name.clone(),
            state: state(info).into(),
            event_type: definition.map(|definition| definition.event_type.to_string()),
            reference: definition.and_then(|definition| definition.reference.as_ref()).map(ToString::to_string),
            calendar: definition.map(|definition| definition.rule.calendar.to_string()),
            timezone: definition.map(|definition| definition.rule.calendar.zone_name().to_owned()),
            mode: definition.map(|definition| match definition.rule.mode {
                Mode::Fixed => "fixed".into(),
                Mode::Sequential => "sequential".into(),
            }),
            jitter: rule.map(|rule| say(rule.jitter)),
            overlap: rule.and_then(|rule| word(rule.overlap)),
            catch_up: rule.and_then(|rule| word(rule.catch_up)),
            on_failure: rule.and_then(|rule| word(rule.on_failure)),
            next: info.next(instants),
            last: info.state.as_ref().and_then(|state| state.run.as_ref()).map(last),
            paused_since: paused.and_then(|paused| time(paused.since)),
            paused_because: paused.map(|paused| plain(&paused.reason).into_owned()),
        }
    }

    /// Returns the time zone of the schedule; UTC if it has none.
    #[must_use]
    pub fn zone(&self) -> TimeZone {
        self.timezone.as_deref().and_then(|name| TimeZone::get(name).ok()).unwrap_or(TimeZone::UTC)
    }
}

fn state(info: &ScheduleInfo) -> &'static str {
    match (&info.definition, &info.state) {
        (None, _) => "not in the file",
        (Some(_), None) => "not applied",
        (Some(definition), Some(state)) if state.digest != definition.digest() => "changed",
        (Some(_), Some(state)) if state.paused.is_some() => "paused",
        (Some(_), Some(_)) => "armed",
    }
}

/// Returns a key of a rule in the words of the file.
fn word(key: impl Serialize) -> Option<String> {
    serde_json::to_value(key).ok()?.as_str().map(str::to_owned)
}

fn last(run: &ScheduledRun) -> LastRun {
    let ScheduledRun { id, started, ended, outcome, .. } = run;
    LastRun {
        id: id.clone(),
        started: time(*started),
        ended: ended.and_then(time),
        outcome: outcome.as_ref().map(|outcome| plain(&outcome.to_string()).into_owned()),
    }
}

fn time(ms: i64) -> Option<Timestamp> {
    Timestamp::from_millisecond(ms).ok()
}

/// How a time is shown to people: `2026-06-01 03:00:00 +02:00`.
pub const WHEN: &str = "%Y-%m-%d %H:%M:%S %:z";

/// Returns a time in a zone, for people.
#[must_use]
pub fn when(at: Timestamp, zone: &TimeZone) -> String {
    shown(at, zone, WHEN)
}

/// Returns a time in a zone, in this format.
#[must_use]
pub fn shown(at: Timestamp, zone: &TimeZone, format: &str) -> String {
    at.to_zoned(zone.clone()).strftime(format).to_string()
}
