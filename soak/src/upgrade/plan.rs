//! The topology, and the kinds of events.

use std::time::Duration;

use crate::{
    harness::Chance,
    schedules::plan::{Kind as Every, Schedule},
};

/// The kinds of events. Each is a type of the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Runs at once.
    Now,
    /// Has a date or a delay. Some are cancelled.
    Later,
    /// Its first run fails.
    Flaky,
    /// Its first run sends it to dead-letter, and the run after a replay succeeds.
    Hopeless,
    /// Its first run puts it off.
    PutOff,
    /// A newer change of the same reference replaces it.
    Change,
    /// Its type has no register.
    Free,
    /// Its type keeps the order.
    Line,
}

pub(super) const KINDS: [Kind; 8] =
    [Kind::Now, Kind::Later, Kind::Flaky, Kind::Hopeless, Kind::PutOff, Kind::Change, Kind::Free, Kind::Line];

/// The type of the schedules' events.
pub(super) const TICK: &str = "tick";

/// The references of a publisher's changes.
pub(super) const REFERENCES: u32 = 4;

/// How long an event is put off.
pub(super) const PUT_OFF: Duration = Duration::from_secs(2);

/// How long a cancelled event would have waited: longer than the cancel takes.
pub(super) const LONG: Duration = Duration::from_secs(12);

const HATCHERY: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(1);

impl Kind {
    /// Returns the name of the type.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Later => "later",
            Self::Flaky => "flaky",
            Self::Hopeless => "hopeless",
            Self::PutOff => "put-off",
            Self::Change => "change",
            Self::Free => "free",
            Self::Line => "line",
        }
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        KINDS.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the header `attempts` of each run of an event. A change may run once or not at all.
    pub(super) const fn attempts(self) -> &'static [u32] {
        match self {
            Self::Now | Self::Later | Self::Change | Self::Free | Self::Line => &[0],
            Self::Flaky => &[0, 1],
            Self::Hopeless | Self::PutOff => &[0, 0],
        }
    }

    /// Returns the least time between the first and the second run.
    pub(super) const fn pause(self) -> Duration {
        match self {
            Self::Flaky => RETRY,
            Self::PutOff => PUT_OFF,
            _ => Duration::ZERO,
        }
    }

    /// Draws a kind. Changes are frequent, so that there is something to replace.
    pub(super) fn draw(chance: &mut Chance) -> Self {
        match chance.between(0, 19) {
            0..=2 => Self::Now,
            3..=6 => Self::Later,
            7..=8 => Self::Flaky,
            9 => Self::Hopeless,
            10..=11 => Self::PutOff,
            12..=16 => Self::Change,
            17 => Self::Free,
            _ => Self::Line,
        }
    }
}

/// Draws the delay of an event of `later`: one in ten the delay of the hatchery, the others through the ladder.
pub(super) fn delay(chance: &mut Chance) -> Duration {
    if chance.between(0, 9) == 0 { HATCHERY } else { Duration::from_millis(chance.between(500, 8_000)) }
}

/// The schedules: one with fixed instants, and one each of whose runs begins after the end of the one before.
pub(super) fn schedules() -> Vec<Schedule> {
    [("fixed", Every::Fixed { every: 1 }), ("sequential", Every::Sequential { every: 2 })]
        .map(|(name, kind)| Schedule { name: name.to_owned(), kind, event_type: TICK })
        .into()
}

/// Returns the file without the schedules.
pub(super) fn file() -> String {
    "\
version: 1
name: soak
hatcheries: [2s]
defaults: { prefetch: 50, concurrency: 8, retry: { delays: [1s, 2s], max-attempts: 3 } }
types:
  now: {}
  later: {}
  flaky: {}
  hopeless: {}
  put-off: {}
  change: { coalesce: { immediate: latest, window: 1s, max-wait: 5s } }
  free: { register: off }
  line: { on-failure: block, prefetch: 10, concurrency: 1 }
  tick: {}
"
    .to_owned()
}

/// Returns the file with the schedules.
pub(super) fn file_with_schedules() -> String {
    file()
        + "\
schedules:
  fixed: { type: tick, cron: \"* * * * * *\", catch-up: all }
  sequential: { type: tick, every: 2s, mode: sequential }
"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_valid_and_have_all_types() {
        for (text, schedules) in [(file(), 0), (file_with_schedules(), schedules().len())] {
            let read = hatchery::file::read(&text, "topology.yaml").unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((read.types.len(), read.schedules.len()), (KINDS.len() + 1, schedules));
            assert!(KINDS.iter().all(|kind| read.types.contains_key(kind.name())));
        }
    }

    #[test]
    fn each_kind_is_drawn() {
        let mut chance = Chance::new(1);
        let drawn: Vec<Kind> = (0..1_000).map(|_| Kind::draw(&mut chance)).collect();
        assert!(KINDS.iter().all(|kind| drawn.contains(kind)));
    }
}
