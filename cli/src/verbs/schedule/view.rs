//! A schedule as `topology schedule` shows it.

use hatchery::internals::{
    schedule::{rule::Mode, run::ScheduledRun},
    ttl::say,
    words::plain,
};
use hatchery_admin::schedules::ScheduleInfo;
use jiff::{Timestamp, tz::TimeZone};
use schemars::JsonSchema;
use serde::Serialize;

/// The number of instants that are shown.
const INSTANTS: usize = 3;

/// A schedule.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ScheduleView {
    /// The name.
    pub(crate) name: String,
    /// `armed`, `paused`, `not applied`, `changed` (the file has another definition than the last `apply`), or `not in the file`.
    pub(crate) state: &'static str,
    /// The type of its events; `null` if the file does not have the schedule.
    #[serde(rename = "type")]
    pub(crate) event_type: Option<String>,
    /// The reference of its events.
    pub(crate) reference: Option<String>,
    /// When its events are due, for people.
    pub(crate) calendar: Option<String>,
    /// The time zone of its expression.
    pub(crate) timezone: Option<String>,
    /// `fixed` or `sequential`.
    pub(crate) mode: Option<&'static str>,
    /// The most by which an event is later than its instant.
    pub(crate) jitter: Option<String>,
    /// `queue` or `skip`.
    pub(crate) overlap: Option<String>,
    /// `none`, `last` or `all`.
    pub(crate) catch_up: Option<String>,
    /// `continue` or `pause`.
    pub(crate) on_failure: Option<String>,
    /// The next instants.
    #[schemars(with = "Vec<String>")]
    pub(crate) next: Vec<Timestamp>,
    /// The newest run.
    pub(crate) last: Option<LastRun>,
    /// Since when it is paused.
    #[schemars(with = "Option<String>")]
    pub(crate) paused_since: Option<Timestamp>,
    /// Why it is paused.
    pub(crate) paused_because: Option<String>,
}

/// The newest run of a schedule.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LastRun {
    /// The event's id.
    pub(crate) id: String,
    /// When it began.
    #[schemars(with = "Option<String>")]
    pub(crate) started: Option<Timestamp>,
    /// When it ended; `null` while it runs or waits for its next try.
    #[schemars(with = "Option<String>")]
    pub(crate) ended: Option<Timestamp>,
    /// How it ended.
    pub(crate) outcome: Option<String>,
}

impl ScheduleView {
    pub(crate) fn of(info: &ScheduleInfo) -> Self {
        let definition = info.definition.as_ref();
        let rule = definition.map(|definition| &definition.rule);
        let paused = info.state.as_ref().and_then(|state| state.paused.as_ref());
        Self {
            name: info.name.clone(),
            state: state(info),
            event_type: definition.map(|definition| definition.event_type.to_string()),
            reference: definition.and_then(|definition| definition.reference.as_ref()).map(ToString::to_string),
            calendar: definition.map(|definition| definition.rule.calendar.to_string()),
            timezone: definition.map(|definition| definition.rule.calendar.zone_name().to_owned()),
            mode: definition.map(|definition| match definition.rule.mode {
                Mode::Fixed => "fixed",
                Mode::Sequential => "sequential",
            }),
            jitter: rule.map(|rule| say(rule.jitter)),
            overlap: rule.and_then(|rule| word(rule.overlap)),
            catch_up: rule.and_then(|rule| word(rule.catch_up)),
            on_failure: rule.and_then(|rule| word(rule.on_failure)),
            next: info.next(INSTANTS),
            last: info.state.as_ref().and_then(|state| state.run.as_ref()).map(last),
            paused_since: paused.and_then(|paused| time(paused.since)),
            paused_because: paused.map(|paused| plain(&paused.reason).into_owned()),
        }
    }

    /// Returns the time zone of the schedule; UTC if it has none.
    pub(crate) fn zone(&self) -> TimeZone {
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
pub(super) const WHEN: &str = "%Y-%m-%d %H:%M:%S %:z";

/// Returns a time in a zone, for people.
pub(super) fn when(at: Timestamp, zone: &TimeZone) -> String {
    shown(at, zone, WHEN)
}

/// Returns a time in a zone, in this format.
pub(super) fn shown(at: Timestamp, zone: &TimeZone, format: &str) -> String {
    at.to_zoned(zone.clone()).strftime(format).to_string()
}
