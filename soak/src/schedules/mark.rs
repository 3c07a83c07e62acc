//! What the workers note of each run, and an event's place in its schedule.

use std::{fmt, io, str::FromStr};

use jiff::Timestamp;

/// A line of the notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The process that wrote it.
    pub(crate) by: u32,
    pub(crate) step: Step,
    pub(crate) event_type: String,
    /// The event's id.
    pub(crate) id: String,
    /// The time, in microseconds since 1970.
    pub(crate) at: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The handler starts.
    Begun,
    /// The handler has finished the event; the settlement follows.
    Ended,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, step, event_type, id, at } = self;
        let step = match step {
            Step::Begun => "begun",
            Step::Ended => "ended",
        };
        write!(f, "{by} {step} {event_type} {id} {at}")
    }
}

impl FromStr for Mark {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Self> {
        let bad = || io::Error::other(format!("no note: {line}"));
        let words: Vec<&str> = line.split(' ').collect();
        let [by, step, event_type, id, at] = words[..] else { return Err(bad()) };
        let step = match step {
            "begun" => Step::Begun,
            "ended" => Step::Ended,
            _ => return Err(bad()),
        };
        let (by, at) = (by.parse().map_err(|_| bad())?, at.parse().map_err(|_| bad())?);
        Ok(Self { by, step, event_type: event_type.to_owned(), id: id.to_owned(), at })
    }
}

/// Returns the schedule of an event and its position: an instant in ms since 1970, or a number. `None` if the id is of no schedule.
pub(crate) fn place(id: &str) -> Option<(&str, i64)> {
    if let Some((schedule, slot)) = id.split_once('@') {
        return Some((schedule, slot.parse::<Timestamp>().ok()?.as_millisecond()));
    }
    let (schedule, number) = id.split_once('#')?;
    Some((schedule, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() -> anyhow::Result<()> {
        let mark = Mark {
            by: 3,
            step: Step::Ended,
            event_type: "work-1".to_owned(),
            id: "fixed-1@1970-01-01T00:00:07Z".to_owned(),
            at: 7_000_001,
        };
        assert_eq!(mark.to_string().parse::<Mark>()?, mark);
        Ok(())
    }

    #[test]
    fn an_id_has_the_place_of_its_event() {
        assert_eq!(place("fixed-1@1970-01-01T00:00:07Z"), Some(("fixed-1", 7_000)));
        assert_eq!(place("sequential-0#1780279200000"), Some(("sequential-0", 1_780_279_200_000)));
        assert_eq!(place("17"), None);
    }
}
