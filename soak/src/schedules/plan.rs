//! The schedules of the topology, and its file.

use std::fmt::Write as _;

use jiff::Timestamp;

/// The types of the events. The schedules take turns.
pub(super) const TYPES: [&str; 4] = ["work-0", "work-1", "work-2", "work-3"];

/// The longest run, in milliseconds: long enough for a kill to hit some runs.
pub(super) const PAUSE: u64 = 19;

/// How long an event of a killed worker waits at most before it runs again is this and up to 4 s more.
const LEASE: &str = "5s";

/// A schedule of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) event_type: &'static str,
}

/// The kinds of schedules. The times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cron`, with all instants made up for.
    Fixed { every: u32 },
    /// `every` and `mode: sequential`.
    Sequential { every: u32 },
}

impl Kind {
    pub(crate) const fn every(self) -> u32 {
        match self {
            Self::Fixed { every } | Self::Sequential { every } => every,
        }
    }
}

/// Returns the schedules: many fixed ones every second, a few sequential ones, and a few that run less often.
pub(super) fn schedules(fixed: u32, sequential: u32) -> Vec<Schedule> {
    let kinds = (0..fixed).map(|n| (format!("fixed-{n}"), Kind::Fixed { every: 1 }));
    let kinds = kinds.chain((0..sequential).map(|n| (format!("sequential-{n}"), Kind::Sequential { every: 1 })));
    let kinds = kinds.chain((0..2).map(|n| (format!("fixed-15s-{n}"), Kind::Fixed { every: 15 })));
    let kinds = kinds.chain((0..2).map(|n| (format!("sequential-20s-{n}"), Kind::Sequential { every: 20 })));
    let types = TYPES.iter().cycle();
    kinds.zip(types).map(|((name, kind), event_type)| Schedule { name, kind, event_type }).collect()
}

/// Returns the file. Another revision has the same instants and other payloads.
pub(super) fn file(schedules: &[Schedule], revision: u32) -> String {
    let mut text =
        format!("version: 1\nname: soak\ndefaults: {{ prefetch: 100, concurrency: 16, lease: {LEASE} }}\ntypes:\n");
    for event_type in TYPES {
        let _ = writeln!(text, "  {event_type}: {{}}");
    }
    text.push_str("schedules:\n");
    for Schedule { name, kind, event_type } in schedules {
        let when = match kind {
            Kind::Fixed { every: 1 } => "cron: \"* * * * * *\", catch-up: all".to_owned(),
            Kind::Fixed { every } => format!("cron: \"*/{every} * * * * *\", catch-up: all"),
            Kind::Sequential { every } => format!("every: {every}s, mode: sequential"),
        };
        let _ = writeln!(text, "  {name}: {{ type: {event_type}, {when}, payload: {{ revision: {revision} }} }}");
    }
    text
}

/// Returns the schedule of an event and its position: an instant in ms since 1970, or a number. `None` if the id is of no schedule.
pub(super) fn place(id: &str) -> Option<(&str, i64)> {
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
    fn an_id_has_the_place_of_its_event() {
        assert_eq!(place("fixed-1@1970-01-01T00:00:07Z"), Some(("fixed-1", 7_000)));
        assert_eq!(place("sequential-0#1780279200000"), Some(("sequential-0", 1_780_279_200_000)));
        assert_eq!(place("17"), None);
    }

    #[test]
    fn the_file_is_valid_and_its_revisions_differ() -> anyhow::Result<()> {
        let folder = tempfile::TempDir::new()?;
        let path = folder.path().join("topology.yaml");
        let schedules = schedules(100, 4);
        for revision in [1, 2] {
            std::fs::write(&path, file(&schedules, revision))?;
            assert_eq!(hatchery::read_file(&path)?.schedules.len(), 108);
        }
        assert_ne!(file(&schedules, 1), file(&schedules, 2));
        Ok(())
    }
}
