//! Runs the workers, kills them, and reads their notes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{
    args::Args,
    mark::{Mark, Step, place},
    plan::{Kind, Schedule},
};
use crate::{chance::Chance, child::Process, notes::Notes, settled::Settled, stage::Stage};

/// How many of a killed worker's last events are looked up: many times more than it can have had under way.
const LAST: usize = 1_000;

/// How late a schedule may be in a healthy state, in ms.
const SLACK: i64 = 4_000;

pub(super) struct Crew<'a> {
    stage: &'a Stage,
    pub(super) notes: Notes<Mark>,
    settled: Settled,
    running: Vec<Process>,
    names: u32,
    pub(super) kills: usize,
    /// For each event that a killed worker had finished and not settled, these workers.
    open: BTreeMap<String, BTreeSet<u32>>,
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

impl<'a> Crew<'a> {
    pub(super) async fn start(stage: &'a Stage, args: &Args) -> anyhow::Result<Self> {
        let mut crew = Self {
            stage,
            notes: Notes::new(stage.path("notes"))?,
            settled: Settled::connect(&stage.servers.redis, &stage.topology).await?,
            running: Vec::new(),
            names: 0,
            kills: 0,
            open: BTreeMap::new(),
            newest: BTreeMap::new(),
        };
        for _ in 0..args.workers {
            crew.add()?;
        }
        Ok(crew)
    }

    fn add(&mut self) -> anyhow::Result<()> {
        self.names += 1;
        let notes = self.notes.path().display().to_string();
        self.running.push(Process::start(self.stage, "scheduled", self.names, &["--notes".to_owned(), notes])?);
        Ok(())
    }

    /// Reads the new notes. Fails if a worker has ended by itself.
    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        for worker in &mut self.running {
            worker.require_alive()?;
        }
        for mark in self.notes.read()? {
            let Some((schedule, position)) = place(&mark.id) else { continue };
            let newest = self.newest.entry(schedule.to_owned()).or_default();
            match mark.step {
                Step::Begun => newest.begun = newest.begun.max(mark.at),
                Step::Ended => newest.ended = newest.ended.max(position),
            }
        }
        Ok(())
    }

    /// Kills a random worker with SIGKILL and starts another one, which reads the file as it is now.
    pub(super) async fn kill_one(&mut self, chance: &mut Chance) -> anyhow::Result<()> {
        let hit = usize::try_from(chance.between(0, self.running.len() as u64 - 1))?;
        let worker = self.running.swap_remove(hit);
        let name = worker.name;
        worker.kill().await?;
        self.kills += 1;
        self.look()?;
        let ended = self.notes.all.iter().rev().filter(|mark| mark.by == name && mark.step == Step::Ended);
        let last: Vec<Mark> = ended.take(LAST).cloned().collect();
        for mark in self.settled.unfinished(last, |mark| (mark.event_type.clone(), mark.id.clone())).await? {
            self.open.entry(mark.id).or_default().insert(name);
        }
        self.add()
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
        for mark in self.notes.all.iter().filter(|mark| mark.step == Step::Begun && mark.at > time) {
            let Some((schedule, _)) = place(&mark.id) else { continue };
            let first = first.entry(schedule).or_insert(mark.at);
            *first = mark.at.min(*first);
        }
        let after = |schedule: &Schedule| first.get(schedule.name.as_str()).map(|at| (at - time) / 1_000);
        schedules.iter().map(after).collect()
    }

    /// Returns the number of workers that had finished an event and were killed before they settled it.
    pub(super) fn open(&self) -> usize {
        self.open.values().map(BTreeSet::len).sum()
    }

    /// Tells whether kills explain all finished runs of an event: each but the last is of a worker that was killed before it
    /// settled the event.
    pub(super) fn explains(&self, id: &str, by: &[u32]) -> bool {
        let before = by.split_last().map_or(&[][..], |(_, before)| before);
        before.iter().all(|by| self.open.get(id).is_some_and(|open| open.contains(by)))
    }

    /// Stops the workers gracefully.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        for worker in self.running.drain(..) {
            worker.stop().await?;
        }
        Ok(())
    }
}
