//! Worker processes that are killed and replaced, with their notes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hatchery_soak::{chance::Chance, stage::Stage};
use tokio::time::Instant;

use super::{
    notes::{Note, Notes, Step},
    process::Process,
    settled::Settled,
};

/// How many of a killed worker's last events are looked up: many times more than it can have had under way.
const LAST: usize = 2_000;

/// The arguments about workers and kills.
#[derive(clap::Args)]
pub(crate) struct Kills {
    /// Worker processes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) workers: u32,
    /// Milliseconds between two kills of a worker, on average; each is random
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(10..))]
    kill_every: u32,
    /// Fail if fewer workers were killed
    #[arg(long, default_value_t = 20)]
    pub(crate) at_least: usize,
}

pub(crate) struct Crew {
    arguments: Vec<String>,
    /// Each worker with its name, which is its number.
    running: Vec<(u32, Process)>,
    started: u32,
    file: Notes,
    /// The notes of all workers.
    pub(crate) notes: Vec<Note>,
    /// How many of them were looked at.
    looked: usize,
    settled: Settled,
    chance: Chance,
    /// The mean time between two kills, in ms.
    every: u64,
    next: Instant,
    pub(crate) killed: Killed,
}

/// The events that killed workers had finished and not settled.
#[derive(Default)]
pub(crate) struct Killed {
    /// For each kill, the number of these events.
    pub(crate) open: Vec<usize>,
    /// For each of these events, the workers.
    by: BTreeMap<String, BTreeSet<u32>>,
}

impl Crew {
    /// Starts the workers, each with these arguments.
    pub(crate) async fn start(
        stage: &Stage,
        kills: &Kills,
        chance: Chance,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let file = Notes::new(stage.path("notes"))?;
        let path = file.path();
        let arguments = ["--notes", &path].iter().chain(arguments).map(ToString::to_string).collect();
        let mut crew = Self {
            arguments,
            running: Vec::new(),
            started: 0,
            file,
            notes: Vec::new(),
            looked: 0,
            settled: Settled::connect(stage).await?,
            chance,
            every: kills.kill_every.into(),
            next: Instant::now(),
            killed: Killed::default(),
        };
        for _ in 0..kills.workers {
            crew.add(stage)?;
        }
        crew.wait();
        Ok(crew)
    }

    fn add(&mut self, stage: &Stage) -> anyhow::Result<()> {
        self.started += 1;
        let worker = Process::child(stage, "worker", self.started, &self.arguments)?;
        self.running.push((self.started, worker));
        Ok(())
    }

    /// Draws the time of the next kill.
    fn wait(&mut self) {
        let millis = self.chance.between(self.every / 2, self.every * 3 / 2);
        self.next = Instant::now() + Duration::from_millis(millis);
    }

    /// Returns the notes since the last look. Fails if a worker has ended by itself.
    pub(crate) fn look(&mut self) -> anyhow::Result<&[Note]> {
        for (_, worker) in &mut self.running {
            worker.require_alive()?;
        }
        self.notes.extend(self.file.read()?);
        let from = std::mem::replace(&mut self.looked, self.notes.len());
        Ok(&self.notes[from..])
    }

    /// Kills a random worker with SIGKILL if it is time, and starts another one. Notes the events that the killed worker
    /// had finished and that the register does not know as finished: these run again.
    pub(crate) async fn kill_if_due(&mut self, stage: &Stage) -> anyhow::Result<()> {
        if Instant::now() < self.next {
            return Ok(());
        }
        let hit = usize::try_from(self.chance.between(0, self.running.len() as u64 - 1))?;
        let (name, worker) = self.running.swap_remove(hit);
        worker.kill().await?;
        self.notes.extend(self.file.read()?);
        let done = self.notes.iter().rev().filter(|note| note.by == name && note.step == Step::Done);
        let last: BTreeSet<(&str, &str)> = done.take(LAST).map(|note| (&*note.event_type, &*note.id)).collect();
        let open = self.settled.unfinished(last).await?;
        self.killed.add(name, open);
        self.add(stage)?;
        self.wait();
        Ok(())
    }

    /// Stops the workers gracefully.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        for (_, worker) in self.running.drain(..) {
            worker.stop().await?;
        }
        self.notes.extend(self.file.read()?);
        Ok(())
    }
}

impl Killed {
    fn add(&mut self, name: u32, open: Vec<String>) {
        self.open.push(open.len());
        for id in open {
            self.by.entry(id).or_default().insert(name);
        }
    }

    /// Returns the events among these whose finished runs are not explained by kills: each run but the last has to be of a
    /// worker that was killed before it settled the event.
    pub(crate) fn unexplained(&self, twice: &BTreeMap<String, Vec<u32>>) -> Vec<String> {
        let is_explained = |id: &String, by: &[u32]| {
            let before = by.split_last().map_or(&[][..], |(_, before)| before);
            before.iter().all(|by| self.by.get(id).is_some_and(|open| open.contains(by)))
        };
        let unexplained = twice.iter().filter(|(id, by)| !is_explained(id, by));
        unexplained.map(|(id, by)| format!("{id} by {by:?}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kill_before_the_settlement_explains_a_second_run() {
        let mut killed = Killed::default();
        killed.add(1, vec!["7".to_owned(), "8".to_owned()]);
        let unexplained = |by: &[u32]| killed.unexplained(&BTreeMap::from([("7".to_owned(), by.to_vec())]));
        assert_eq!(killed.open, [2]);
        assert!(unexplained(&[1, 2]).is_empty());
        assert_eq!(unexplained(&[2, 1]), ["7 by [2, 1]"], "2 was not killed");
        assert_eq!(unexplained(&[1, 2, 3]).len(), 1);
    }
}
