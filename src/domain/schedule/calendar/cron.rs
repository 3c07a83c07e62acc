//! Parses a cron expression, and finds the local times that it matches.
//!
//! Knows no time zone: a local time here is what a clock shows, whether or not a zone has this time.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use jiff::{
    ToSpan,
    civil::{Date, DateTime, Time, Weekday},
};

use crate::domain::words::plain;

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

/// A field of a cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// 0 to 59, in expressions of six fields.
    Second,
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// 1 to 31.
    DayOfMonth,
    /// 1 to 12, or JAN to DEC.
    Month,
    /// 0 to 7, or SUN to SAT. Both 0 and 7 are Sunday.
    DayOfWeek,
}

/// Why a text is not a cron expression. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CronError {
    /// The expression has neither five nor six fields.
    #[error(
        "`{text}` has {} and a cron expression has five: minute, hour, day of month, month, day of week (or six, with \
         seconds first)", match count { 0 => "no fields".to_owned(), 1 => "one field".to_owned(), n => format!("{n} fields") }
    )]
    Fields {
        /// The expression, shortened if it is long.
        text: String,
        /// The number of its fields.
        count: usize,
    },
    /// The expression begins with `@` and is no known nickname.
    #[error("`{0}` is not a nickname; write @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually")]
    Nickname(String),
    /// A number is not in the field's range.
    #[error("{field} {value} is out of range: {}", field.allowed())]
    OutOfRange {
        /// The field.
        field: Field,
        /// The number, shortened if it is long.
        value: String,
    },
    /// The text of a value is neither a number nor a name of the field.
    #[error("`{text}` is not a {field}; {}", match nearest {
        Some(name) => format!("is it `{name}`?"),
        None => format!("write {}, as in {}", field.allowed(), field.example()),
    })]
    NotAValue {
        /// The field.
        field: Field,
        /// The text, shortened if it is long.
        text: String,
        /// The most similar name, if one is similar enough.
        nearest: Option<&'static str>,
    },
    /// The end of a range is before its beginning.
    #[error("{field} {text} goes backwards; write two ranges, like {}", field.two_ranges())]
    Backwards {
        /// The field.
        field: Field,
        /// The range.
        text: String,
    },
    /// The step is 0, too large or not a number.
    #[error("{field} step `{text}` is not a number from 1 to {}{}", field.most(), match field.interval() {
        Some(unit) => format!(" (to run less often, use an interval, like `every: 90{unit}`)"),
        None => String::new(),
    })]
    Step {
        /// The field.
        field: Field,
        /// The step, shortened if it is long.
        text: String,
    },
    /// No month of the expression has a day of the expression.
    #[error("`{0}` never runs, because none of its months has any of its days")]
    Never(String),
}

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// 29 February is missing for eight years around 2100. All other days come back within a year.
const SEARCHED_MONTHS: usize = 8 * 12 + 1;

impl Field {
    fn range(self) -> RangeInclusive<u8> {
        match self {
            Self::Second | Self::Minute => 0..=59,
            Self::Hour => 0..=23,
            Self::DayOfMonth => 1..=31,
            Self::Month => 1..=12,
            Self::DayOfWeek => 0..=7,
        }
    }

    /// Returns the last value, where `*` and `5/2` end. 7 would be Sunday a second time.
    fn last(self) -> u8 {
        if self == Self::DayOfWeek { 6 } else { *self.range().end() }
    }

    fn is_day(self) -> bool {
        matches!(self, Self::DayOfMonth | Self::DayOfWeek)
    }

    /// Returns the names of the values, from the first value on.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Month => &MONTHS,
            Self::DayOfWeek => &WEEKDAYS,
            _ => &[],
        }
    }

    fn allowed(self) -> &'static str {
        match self {
            Self::Second | Self::Minute => "0 to 59",
            Self::Hour => "0 to 23",
            Self::DayOfMonth => "1 to 31",
            Self::Month => "1 to 12 or JAN to DEC",
            Self::DayOfWeek => "0 to 7 (both are Sunday) or SUN to SAT",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Second | Self::Minute => "*/15 or 0,30",
            Self::Hour => "3 or 8-18",
            Self::DayOfMonth => "1,15",
            Self::Month => "JAN-MAR",
            Self::DayOfWeek => "MON-FRI",
        }
    }

    fn two_ranges(self) -> &'static str {
        match self {
            Self::Second | Self::Minute => "50-59,0-10",
            Self::Hour => "22-23,0-6",
            Self::DayOfMonth => "25-31,1-5",
            Self::Month => "11-12,1-2",
            Self::DayOfWeek => "5-6,0-1",
        }
    }

    /// Returns the largest step, which is the number of values.
    fn most(self) -> u8 {
        match self {
            Self::Second | Self::Minute => 59,
            Self::Hour => 23,
            Self::DayOfMonth => 31,
            Self::Month => 12,
            Self::DayOfWeek => 7,
        }
    }

    /// Returns the unit of an interval for those who write `*/90`.
    fn interval(self) -> Option<char> {
        match self {
            Self::Second => Some('s'),
            Self::Minute => Some('m'),
            Self::Hour => Some('h'),
            _ => None,
        }
    }

    fn parse(self, text: &str) -> Result<u64, CronError> {
        text.split(',').try_fold(0, |values, part| Ok(values | self.part(part)?))
    }

    /// Parses what is between two commas: `*`, `5`, `5-9`, `*/2`, `5/2` (from 5 to the end) or `5-9/2`.
    fn part(self, text: &str) -> Result<u64, CronError> {
        let (base, step) = match text.split_once('/') {
            Some((base, step)) => (base, Some(self.step(step)?)),
            None => (text, None),
        };
        let (first, last) = if base == "*" || (base == "?" && self.is_day()) {
            (*self.range().start(), self.last())
        } else if let Some((first, last)) = base.split_once('-') {
            match (self.value(first)?, self.value(last)?) {
                // Sunday ends a week as well: FRI-SUN.
                (first, 0) if self == Self::DayOfWeek && first > 0 => (first, 7),
                range => range,
            }
        } else {
            let value = self.value(base)?;
            (value, if step.is_some() { self.last().max(value) } else { value })
        };
        if first > last {
            return Err(CronError::Backwards { field: self, text: shown(base) });
        }
        let values = (first..=last).step_by(step.unwrap_or(1));
        Ok(values.fold(0, |set, value| set | bit(if self == Self::DayOfWeek { value % 7 } else { value })))
    }

    fn step(self, text: &str) -> Result<usize, CronError> {
        match number(text) {
            Some(step) if (1..=usize::from(self.most())).contains(&step) => Ok(step),
            _ => Err(CronError::Step { field: self, text: shown(text) }),
        }
    }

    fn value(self, text: &str) -> Result<u8, CronError> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let value = number(text).and_then(|value| u8::try_from(value).ok());
            return value
                .filter(|value| self.range().contains(value))
                .ok_or_else(|| CronError::OutOfRange { field: self, value: shown(text) });
        }
        let named = self.names().iter().zip(*self.range().start()..).find(|(name, _)| name.eq_ignore_ascii_case(text));
        named.map(|(_, value)| value).ok_or_else(|| CronError::NotAValue {
            field: self,
            text: shown(text),
            nearest: self.nearest(text),
        })
    }

    /// Returns the name that begins a longer one (`MONDAY`), or has one other letter.
    fn nearest(self, text: &str) -> Option<&'static str> {
        let (text, names) = (text.get(..text.len().min(16))?.to_ascii_uppercase(), self.names());
        names.iter().find(|name| text.starts_with(**name)).copied().or_else(|| {
            let (edits, name) = names.iter().map(|name| (strsim::damerau_levenshtein(name, &text), *name)).min()?;
            (edits == 1).then_some(name)
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        })
    }
}

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

/// Returns foreign text for a message: short, and without control characters.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 40;
    let short: String = text.chars().take(LONGEST).collect();
    let dots = if short.len() < text.len() { "…" } else { "" };
    format!("{}{dots}", plain(&short))
}

fn number(digits: &str) -> Option<usize> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

fn sunday_zero(weekday: Weekday) -> i8 {
    weekday.to_sunday_zero_offset()
}

fn bit(value: u8) -> u64 {
    1 << value
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
