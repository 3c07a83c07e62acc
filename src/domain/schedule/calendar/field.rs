//! Parses a field of a cron expression, and says what is wrong with it.

use std::{fmt, ops::RangeInclusive};

use crate::domain::words::plain;

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

    /// Returns the set of the values: bit 5 is the value 5.
    pub(super) fn parse(self, text: &str) -> Result<u64, CronError> {
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

pub(super) fn bit(value: u8) -> u64 {
    1 << value
}
