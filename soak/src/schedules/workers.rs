//! The workers, and what their notes say about each schedule.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    args::Args,
    plan::{Kind, PAUSE, Schedule, TYPES, place},
};
use crate::harness::{Chance, Crew, Killer, Stage, Step};

/// How late a schedule may be in a healthy state, in ms.
const SLACK: i64 = 4_000;

pub(super) struct Workers {
    pub(super) crew: Crew,
    pub(super) killer: Killer,
    newest: BTreeMap<String, Newest>,
}

/// The newest run of a schedule.
#[derive(Clone, Copy, Default)]
struct Newest {
    /// When it began, in microseconds since 1970.
    begun: i64,
    /// The highest position with a finished run.
    ended: i64,
}

impl Workers {
    pub(super) async fn start(stage: &Stage, args: &Args, chance: Chance) -> anyhow::Result<Self> {
        let pause = PAUSE.to_string();
        let arguments = TYPES.iter().flat_map(|event_type| ["--type", event_type]).chain(["--pause", &pause]);
        let crew = Crew::start(stage, "worker", args.kills.workers, &arguments.collect::<Vec<_>>())?;
        let killer = Killer::new(stage, &args.kills, chance).await?;
        Ok(Self { crew, killer, newest: BTreeMap::new() })
    }

    /// Reads the new notes. Fails if a worker has ended by itself.
    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        for note in self.crew.look()? {
            let Some((schedule, position)) = place(&note.id) else { continue };
            let newest = self.newest.entry(schedule.to_owned()).or_default();
            match note.step {
                Step::Begun => newest.begun = newest.begun.max(note.at),
                _ => newest.ended = newest.ended.max(position),
            }
        }
        Ok(())
    }

    /// Returns the schedules that are late.
    pub(super) fn late(&self, schedules: &[Schedule]) -> Vec<String> {
        let now = Timestamp::now().as_millisecond();
        let is_late = |schedule: &&Schedule| {
            let newest = self.newest.get(&schedule.name).copied().unwrap_or_default();
            let done = match schedule.kind {
                Kind::Fixed { .. } => newest.ended,
                Kind::Sequential { .. } => newest.begun / 1_000,
            };
            done < now - i64::from(schedule.kind.every()) * 1_000 - SLACK
        };
        schedules.iter().filter(is_late).map(|schedule| schedule.name.clone()).collect()
    }

    /// Returns how long after this time each schedule ran for the first time, in ms. Times are microseconds since 1970.
    pub(super) fn first_after(&self, schedules: &[Schedule], time: i64) -> Vec<Option<i64>> {
        let mut first: BTreeMap<&str, i64> = BTreeMap::new();
        for note in self.crew.notes.iter().filter(|note| note.step == Step::Begun && note.at > time) {
            let Some((schedule, _)) = place(&note.id) else { continue };
            let first = first.entry(schedule).or_insert(note.at);
            *first = note.at.min(*first);
        }
        let after = |schedule: &Schedule| first.get(schedule.name.as_str()).map(|at| (at - time) / 1_000);
        schedules.iter().map(after).collect()
    }
}
