//! A cron expression, and the local times that it matches.
//!
//! Knows no time zone: a local time here is what a clock shows, whether or not a zone has this time.

use std::str::FromStr;

use jiff::{
    ToSpan,
    civil::{Date, DateTime, Time, Weekday},
};

use super::field::{CronError, Field, bit, shown};

/// A parsed expression. Each field is the set of its values: bit 5 of `minutes` is minute 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cron {
    text: String,
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// Bit 0 is Sunday.
    weekdays: u64,
    /// Both day fields are restricted, so a day needs to match one of them. Otherwise it matches both, and one of them
    /// has all days.
    either_day: bool,
}

/// 29 February is missing for eight years around 2100. All other days come back within a year.
const SEARCHED_MONTHS: usize = 8 * 12 + 1;

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let text = fields.join(" ");
        let written = match fields[..] {
            [nickname] if nickname.starts_with('@') => {
                expand(nickname).ok_or_else(|| CronError::Nickname(shown(nickname)))?.split(' ').collect()
            }
            _ => fields,
        };
        let (second, [minute, hour, day, month, weekday]) = match written[..] {
            [minute, hour, day, month, weekday] => ("0", [minute, hour, day, month, weekday]),
            [second, minute, hour, day, month, weekday] => (second, [minute, hour, day, month, weekday]),
            _ => return Err(CronError::Fields { text: shown(&text), count: written.len() }),
        };
        let cron = Self {
            seconds: Field::Second.parse(second)?,
            minutes: Field::Minute.parse(minute)?,
            hours: Field::Hour.parse(hour)?,
            days: Field::DayOfMonth.parse(day)?,
            months: Field::Month.parse(month)?,
            weekdays: Field::DayOfWeek.parse(weekday)?,
            either_day: is_restricted(day) && is_restricted(weekday),
            text,
        };
        if cron.can_match() { Ok(cron) } else { Err(CronError::Never(shown(&cron.text))) }
    }
}

impl Cron {
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the first local time of the expression that is not before this one, which is a whole second.
    pub(super) fn first_from(&self, from: DateTime) -> Option<DateTime> {
        let date = self.date_from(from.date())?;
        if date == from.date() {
            if let Some(time) = self.time_from(from.time()) {
                return Some(date.to_datetime(time));
            }
            let tomorrow = self.date_from(date.tomorrow().ok()?)?;
            return Some(tomorrow.to_datetime(self.time_from(Time::midnight())?));
        }
        Some(date.to_datetime(self.time_from(Time::midnight())?))
    }

    /// Returns the last local time of the expression that is not after this one, which is a whole second.
    pub(super) fn last_to(&self, to: DateTime) -> Option<DateTime> {
        const END: Time = Time::constant(23, 59, 59, 0);
        let date = self.date_to(to.date())?;
        if date == to.date() {
            if let Some(time) = self.time_to(to.time()) {
                return Some(date.to_datetime(time));
            }
            let yesterday = self.date_to(date.yesterday().ok()?)?;
            return Some(yesterday.to_datetime(self.time_to(END)?));
        }
        Some(date.to_datetime(self.time_to(END)?))
    }

    /// Tells whether some month of the expression has a day of it, in a leap year.
    fn can_match(&self) -> bool {
        (1..=12).any(|month| {
            let first = Date::constant(2000, 1, 1).with().month(month).build();
            has(self.months, month) && first.is_ok_and(|first| self.days_in(first) != 0)
        })
    }

    fn date_from(&self, from: Date) -> Option<Date> {
        let (mut first, mut day) = (from.first_of_month(), from.day());
        for _ in 0..SEARCHED_MONTHS {
            if has(self.months, first.month())
                && let Some(day) = at_least(self.days_in(first), day)
            {
                return first.with().day(day).build().ok();
            }
            first = first.checked_add(1.month()).ok()?;
            day = 1;
        }
        None
    }

    fn date_to(&self, to: Date) -> Option<Date> {
        let (mut first, mut day) = (to.first_of_month(), to.day());
        for _ in 0..SEARCHED_MONTHS {
            if has(self.months, first.month())
                && let Some(day) = at_most(self.days_in(first), day)
            {
                return first.with().day(day).build().ok();
            }
            first = first.checked_sub(1.month()).ok()?;
            day = 31;
        }
        None
    }

    /// Returns the days of this month that the two day fields choose. The month is given by its first day.
    fn days_in(&self, first: Date) -> u64 {
        let weekdays = (1..=first.days_in_month()).zip(first.weekday().cycle_forward());
        let chosen = weekdays
            .filter(|(day, weekday)| {
                let (day, weekday) = (has(self.days, *day), has(self.weekdays, sunday_zero(*weekday)));
                if self.either_day { day || weekday } else { day && weekday }
            })
            .map(|(day, _)| day);
        chosen.fold(0, |set, day| set | bit(day.unsigned_abs()))
    }

    fn time_from(&self, from: Time) -> Option<Time> {
        let (hour, minute) = (from.hour(), from.minute());
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = at_least(self.seconds, from.second())
            {
                return Time::new(hour, minute, second, 0).ok();
            }
            if let Some(minute) = at_least(self.minutes, minute + 1) {
                return Time::new(hour, minute, at_least(self.seconds, 0)?, 0).ok();
            }
        }
        let hour = at_least(self.hours, hour + 1)?;
        Time::new(hour, at_least(self.minutes, 0)?, at_least(self.seconds, 0)?, 0).ok()
    }

    fn time_to(&self, to: Time) -> Option<Time> {
        let (hour, minute) = (to.hour(), to.minute());
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = at_most(self.seconds, to.second())
            {
                return Time::new(hour, minute, second, 0).ok();
            }
            if let Some(minute) = at_most(self.minutes, minute - 1) {
                return Time::new(hour, minute, at_most(self.seconds, 59)?, 0).ok();
            }
        }
        let hour = at_most(self.hours, hour - 1)?;
        Time::new(hour, at_most(self.minutes, 59)?, at_most(self.seconds, 59)?, 0).ok()
    }
}

fn expand(nickname: &str) -> Option<&'static str> {
    Some(match nickname.to_ascii_lowercase().as_str() {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        _ => return None,
    })
}

/// Tells whether a day field leaves days out. `*/2` does: Kubernetes and croniter read it so, and Debian's cron does not.
fn is_restricted(day: &str) -> bool {
    !matches!(day, "*" | "?" | "*/1" | "?/1")
}

fn sunday_zero(weekday: Weekday) -> i8 {
    weekday.to_sunday_zero_offset()
}

fn has(set: u64, value: i8) -> bool {
    set >> value & 1 == 1
}

/// Returns the lowest value of the set that is not below this one.
fn at_least(set: u64, value: i8) -> Option<i8> {
    (value..=59).find(|value| has(set, *value))
}

/// Returns the highest value of the set that is not above this one.
fn at_most(set: u64, value: i8) -> Option<i8> {
    (0..=value).rev().find(|value| has(set, *value))
}
