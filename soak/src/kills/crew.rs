//! Runs the workers, and notes which events each had finished but not settled when it was killed.

use std::collections::{BTreeMap, BTreeSet};

use super::args::{Args, FAIL_EVERY, TYPE};
use crate::{
    chance::Chance,
    child::Process,
    notes::{Note, Notes, What},
    settled::Settled,
    stage::Stage,
};

/// How many of a killed worker's last events are looked up: many times more than it can have had under way.
const LAST: usize = 2_000;

pub(super) struct Crew<'a> {
    stage: &'a Stage,
    args: &'a Args,
    notes: Notes,
    settled: Settled,
    running: Vec<Process>,
    names: u32,
    pub(super) kills: usize,
    done: BTreeSet<u32>,
    ended: Ended,
}

/// The notes and the kills of the whole run.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) notes: Vec<Note>,
    /// For each kill, how many events the worker had finished but not settled.
    pub(super) cut: Vec<usize>,
    /// For each of these events, the killed workers that had finished it.
    open: BTreeMap<u32, BTreeSet<u32>>,
}

impl<'a> Crew<'a> {
    pub(super) fn start(stage: &'a Stage, args: &'a Args, notes: Notes, settled: Settled) -> anyhow::Result<Self> {
        let (running, done, ended) = (Vec::new(), BTreeSet::new(), Ended::default());
        let mut crew = Self { stage, args, notes, settled, running, names: 0, kills: 0, done, ended };
        for _ in 0..args.workers {
            crew.add()?;
        }
        Ok(crew)
    }

    fn add(&mut self) -> anyhow::Result<()> {
        self.names += 1;
        let notes = self.notes.path().display().to_string();
        let (pause, fails) = (self.args.pause.to_string(), FAIL_EVERY.to_string());
        let arguments = ["--notes", &notes, "--type", TYPE, "--pause", &pause, "--fail-every", &fails];
        self.running.push(Process::start(self.stage, "worker", self.names, &arguments.map(ToOwned::to_owned))?);
        Ok(())
    }

    /// Returns how many events have been finished at least once. Fails if a worker has ended by itself.
    pub(super) fn done(&mut self) -> anyhow::Result<usize> {
        for worker in &mut self.running {
            worker.require_alive()?;
        }
        let done = self.notes.read()?.iter().filter(|note| note.what == What::Done);
        self.done.extend(done.map(|note| note.number));
        Ok(self.done.len())
    }

    /// Kills a random worker with SIGKILL and starts another one. Notes the events that the killed worker had finished
    /// and that the register does not know as finished: these run again.
    pub(super) async fn kill_one(&mut self, chance: &mut Chance) -> anyhow::Result<()> {
        let hit = usize::try_from(chance.between(0, self.running.len() as u64 - 1))?;
        let worker = self.running.swap_remove(hit);
        let name = worker.name;
        worker.kill().await?;
        self.kills += 1;
        self.done()?;
        let done = self.notes.all.iter().rev().filter(|note| note.by == name && note.what == What::Done);
        let last: BTreeSet<u32> = done.take(LAST).map(|note| note.number).collect();
        let open =
            self.settled.unfinished(last.into_iter().collect(), |number| (TYPE.to_owned(), number.to_string())).await?;
        self.ended.cut.push(open.len());
        for number in open {
            self.ended.open.entry(number).or_default().insert(name);
        }
        self.add()
    }

    /// Stops the other workers gracefully.
    pub(super) async fn stop(mut self) -> anyhow::Result<Ended> {
        for worker in self.running.drain(..) {
            worker.stop().await?;
        }
        self.notes.read()?;
        Ok(Ended { notes: self.notes.all, ..self.ended })
    }
}

impl Ended {
    /// Returns whether kills explain all runs of this event: each run but the last was finished by a worker that was
    /// killed before it settled the event.
    pub(super) fn explains(&self, number: u32) -> bool {
        let runs: Vec<u32> =
            self.notes.iter().filter(|n| n.number == number && n.what == What::Done).map(|note| note.by).collect();
        let open = self.open.get(&number);
        let before = runs.split_last().map_or(&[][..], |(_, before)| before);
        before.iter().all(|by| open.is_some_and(|open| open.contains(by)))
    }
}
