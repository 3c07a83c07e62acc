//! The two programs as processes: workers, publishers, and commands that end by themselves.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{ChildStdout, Command},
    time::timeout,
};

use super::{
    notes::Side,
    plan::{KINDS, TICK},
    service,
};
use crate::harness::{Process, Stage};

/// How long a publisher may take to answer, or a command to end.
const PATIENCE: Duration = Duration::from_mins(1);

/// The two programs, and where their processes work.
pub(super) struct Programs<'a> {
    stage: &'a Stage,
    released: PathBuf,
    this: PathBuf,
    port: u16,
}

impl<'a> Programs<'a> {
    pub(super) fn new(stage: &'a Stage, released: &Path, port: u16) -> anyhow::Result<Self> {
        let find = |path: &Path| path.canonicalize().with_context(|| format!("{} is missing", path.display()));
        let this = find(&std::env::current_exe()?.with_file_name("topology"))?;
        let released = find(released)?;
        ensure!(this != released, "{} is the program of this tree, not of a release", released.display());
        Ok(Self { stage, released, this, port })
    }

    /// Returns a command that gets SIGTERM if this process is killed. This needs `setpriv`, which every Linux has.
    fn command(&self, side: Side) -> Command {
        let program = match side {
            Side::Released => &self.released,
            Side::This => &self.this,
        };
        let setpriv = Path::new("/usr/bin/setpriv");
        let mut command = if setpriv.exists() {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "TERM", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        self.stage.with_urls(&mut command);
        command
    }

    fn log(&self, what: &str, side: Side) -> PathBuf {
        self.stage.path(&format!("{what}-{}.log", side.name()))
    }

    /// Starts a worker of all types.
    pub(super) fn work(&self, side: Side, name: u32) -> anyhow::Result<Worker> {
        let types: Vec<&str> = KINDS.iter().map(|kind| kind.name()).chain([TICK]).collect();
        let mut command = self.command(side);
        command.args(["work", "--type", &types.join(","), "--http", &service::url(self.port, side, name)]);
        let process = Process::start(&mut command, self.log(&format!("worker-{name}"), side))?;
        Ok(Worker { side, process })
    }

    /// Starts a publisher, which takes one line at a time.
    pub(super) fn publish(&self, side: Side, name: u32) -> anyhow::Result<Publisher> {
        let mut command = self.command(side);
        command.args(["publish", "--batch", "-", "-o", "ndjson"]).stdout(Stdio::piped());
        let mut process = Process::start(&mut command, self.log(&format!("publisher-{name}"), side))?;
        let answers = BufReader::new(process.output()?).lines();
        Ok(Publisher { side, process, answers })
    }

    /// Returns for how many events Redis gave no version in time, as the publishers have said at their ends.
    pub(super) fn unversioned(&self, publishers: u32) -> anyhow::Result<usize> {
        let mut count = 0;
        for (name, side) in (0..publishers).flat_map(|name| Side::BOTH.map(|side| (name, side))) {
            for line in std::fs::read_to_string(self.log(&format!("publisher-{name}"), side))?.lines() {
                let number = line.split_once("gave no version for ").and_then(|(_, rest)| rest.split(' ').next());
                count += number.map_or(Ok(0), str::parse::<usize>)?;
            }
        }
        Ok(count)
    }

    /// Runs a command to its end, and returns its exit code.
    pub(super) async fn run(&self, side: Side, arguments: &[&str]) -> anyhow::Result<i32> {
        let log = self.log(arguments[0], side);
        let file = File::options().create(true).append(true).open(&log)?;
        let mut command = self.command(side);
        // In a process group of its own, so that Ctrl-C reaches only this process.
        command.args(arguments).stdin(Stdio::null()).process_group(0);
        let mut child = command.stdout(file.try_clone()?).stderr(file).spawn()?;
        let ended = timeout(PATIENCE, child.wait()).await;
        let status = ended.with_context(|| format!("{arguments:?} does not end: {}", log.display()))??;
        status.code().with_context(|| format!("{arguments:?}: {status}"))
    }
}

/// A process of `topology work`.
pub(super) struct Worker {
    pub(super) side: Side,
    pub(super) process: Process,
}

/// A process of `topology publish --batch -`.
pub(super) struct Publisher {
    pub(super) side: Side,
    pub(super) process: Process,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Publisher {
    /// Publishes an event, and waits for its confirm.
    pub(super) async fn publish(&mut self, event: &Value) -> anyhow::Result<()> {
        self.process.input.write_all(format!("{event}\n").as_bytes()).await?;
        let answer = timeout(PATIENCE, self.answers.next_line()).await.context("a publisher does not answer")??;
        let answer = answer.with_context(|| format!("a publisher has ended by itself: {}", self.process.said()))?;
        let answer: Value = serde_json::from_str(&answer)?;
        ensure!(answer["id"] == event["id"], "{event} was answered with {answer}");
        Ok(())
    }
}
