//! Child processes with their notes, and workers among them that are killed and replaced.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hatchery_soak::{chance::Chance, stage::Stage};
use tokio::{process::Command, time::Instant};

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

/// Child processes of one kind, with their notes in one file.
pub(crate) struct Crew {
    kind: &'static str,
    arguments: Vec<String>,
    /// Each process with its name, which is its number.
    running: Vec<(u32, Process)>,
    started: u32,
    file: Notes,
    /// The notes of all processes.
    pub(crate) notes: Vec<Note>,
    /// How many of them were looked at.
    looked: usize,
}

impl Crew {
    /// Starts this many processes, each with these arguments.
    pub(crate) fn start(stage: &Stage, kind: &'static str, count: u32, arguments: &[&str]) -> anyhow::Result<Self> {
        let file = Notes::new(stage.path(&format!("{kind}.notes")))?;
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut crew = Self { kind, arguments, running: Vec::new(), started: 0, file, notes: Vec::new(), looked: 0 };
        for _ in 0..count {
            crew.add(stage)?;
        }
        Ok(crew)
    }

    fn add(&mut self, stage: &Stage) -> anyhow::Result<()> {
        self.started += 1;
        let (kind, name) = (self.kind, self.started.to_string());
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["child", "--name", &name, "--notes"]).arg(&self.file.path).arg(kind).args(&self.arguments);
        let process = Process::start(stage.with_urls(&mut command), stage.path(&format!("{kind}-{name}.log")))?;
        self.running.push((self.started, process));
        Ok(())
    }

    /// Returns the notes since the last look. Fails if a process has ended by itself.
    pub(crate) fn look(&mut self) -> anyhow::Result<&[Note]> {
        for (_, process) in &mut self.running {
            process.require_alive()?;
        }
        self.notes.extend(self.file.read()?);
        let from = std::mem::replace(&mut self.looked, self.notes.len());
        Ok(&self.notes[from..])
    }

    /// Returns the resident memory of all processes, in KiB.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        self.running.iter().map(|(_, process)| process.resident()).sum()
    }

    /// Stops the processes gracefully.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        for (_, process) in self.running.drain(..) {
            process.stop().await?;
        }
        self.notes.extend(self.file.read()?);
        Ok(())
    }
}

/// Kills workers of a crew at random moments.
pub(crate) struct Killer {
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
    /// The workers that were killed, in order.
    pub(crate) workers: Vec<u32>,
    /// For each kill, the number of these events.
    pub(crate) open: Vec<usize>,
    /// For each of these events, the workers.
    by: BTreeMap<String, BTreeSet<u32>>,
}

impl Killer {
    pub(crate) async fn new(stage: &Stage, kills: &Kills, chance: Chance) -> anyhow::Result<Self> {
        let (settled, every) = (Settled::connect(stage).await?, kills.kill_every.into());
        let mut killer = Self { settled, chance, every, next: Instant::now(), killed: Killed::default() };
        killer.wait();
        Ok(killer)
    }

    /// Draws the time of the next kill.
    fn wait(&mut self) {
        let millis = self.chance.between(self.every / 2, self.every * 3 / 2);
        self.next = Instant::now() + Duration::from_millis(millis);
    }

    /// Kills a random worker with SIGKILL if it is time, and starts another one. Notes the events that the killed worker
    /// had finished and that the register does not know as finished: these run again.
    pub(crate) async fn kill_if_due(&mut self, crew: &mut Crew, stage: &Stage) -> anyhow::Result<()> {
        if Instant::now() < self.next {
            return Ok(());
        }
        let hit = usize::try_from(self.chance.between(0, crew.running.len() as u64 - 1))?;
        let (name, worker) = crew.running.swap_remove(hit);
        worker.kill().await?;
        crew.notes.extend(crew.file.read()?);
        let done = crew.notes.iter().rev().filter(|note| note.by == name && note.step == Step::Done);
        let last: BTreeSet<(&str, &str)> = done.take(LAST).map(|note| (&*note.event_type, &*note.id)).collect();
        let open = self.settled.unfinished(last).await?;
        self.killed.add(name, open);
        crew.add(stage)?;
        self.wait();
        Ok(())
    }

    /// Returns what the progress says of the kills.
    pub(crate) fn said(&self) -> String {
        format!(", {} kills", self.killed.open.len())
    }
}

impl Killed {
    fn add(&mut self, name: u32, open: Vec<String>) {
        self.workers.push(name);
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
