//! The two programs as processes: workers, publishers, and commands that end by themselves.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::{
    notes::Side,
    plan::{KINDS, TICK},
    service,
};
use crate::stage::Stage;

/// How long a process may take to stop, or a command to end: longer than a worker's drain timeout.
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
        // In a process group of its own, so that Ctrl-C reaches only this process.
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    fn log(&self, name: &str) -> anyhow::Result<(PathBuf, File)> {
        let path = self.stage.path(name);
        let file = File::options().create(true).append(true).open(&path)?;
        Ok((path, file))
    }

    /// Starts a worker of all types.
    pub(super) fn work(&self, side: Side, name: u32) -> anyhow::Result<Worker> {
        let (log, file) = self.log(&format!("worker-{name}-{}.log", side.name()))?;
        let types: Vec<&str> = KINDS.iter().map(|kind| kind.name()).chain([TICK]).collect();
        let mut command = self.command(side);
        command.args(["work", "--type", &types.join(","), "--http", &service::url(self.port, side, name)]);
        let child = command.stderr(file).spawn()?;
        Ok(Worker { side, child, log })
    }

    /// Starts a publisher, which takes one line at a time.
    pub(super) fn publish(&self, side: Side, name: u32) -> anyhow::Result<Publisher> {
        let (log, file) = self.log(&format!("publisher-{name}-{}.log", side.name()))?;
        let mut command = self.command(side);
        command.args(["publish", "--batch", "-", "-o", "ndjson"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file).spawn()?;
        let input = child.stdin.take().context("a pipe")?;
        let answers = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        Ok(Publisher { side, child, input, answers, log })
    }

    /// Returns for how many events Redis gave no version in time, as the publishers have said at their ends.
    pub(super) fn unversioned(&self, publishers: u32) -> anyhow::Result<usize> {
        let mut count = 0;
        for (name, side) in (0..publishers).flat_map(|name| Side::BOTH.map(|side| (name, side))) {
            let (log, _) = self.log(&format!("publisher-{name}-{}.log", side.name()))?;
            for line in std::fs::read_to_string(log)?.lines() {
                let number = line.split_once("gave no version for ").and_then(|(_, rest)| rest.split(' ').next());
                count += number.map_or(Ok(0), str::parse::<usize>)?;
            }
        }
        Ok(count)
    }

    /// Runs a command to its end, and returns its exit code.
    pub(super) async fn run(&self, side: Side, arguments: &[&str]) -> anyhow::Result<i32> {
        let (log, file) = self.log(&format!("{}-{}.log", arguments[0], side.name()))?;
        let mut child = self.command(side).args(arguments).stdout(file.try_clone()?).stderr(file).spawn()?;
        let ended = timeout(PATIENCE, child.wait()).await;
        let status = ended.with_context(|| format!("{arguments:?} does not end: {}", log.display()))??;
        status.code().with_context(|| format!("{arguments:?}: {status}"))
    }
}

/// A process of `topology work`.
pub(super) struct Worker {
    pub(super) side: Side,
    child: Child,
    log: PathBuf,
}

impl Worker {
    pub(super) fn require_alive(&mut self) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "a worker has ended by itself: {}", said(&self.log));
        Ok(())
    }

    /// Stops the worker as a roll-out does, and waits for its end. Fails if its exit status is not 0.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        kill_process(pid.context("the worker has ended")?, Signal::TERM)?;
        end(self.child, &self.log).await
    }
}

/// A process of `topology publish --batch -`.
pub(super) struct Publisher {
    pub(super) side: Side,
    child: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Publisher {
    /// Publishes an event, and waits for its confirm.
    pub(super) async fn publish(&mut self, event: &Value) -> anyhow::Result<()> {
        self.input.write_all(format!("{event}\n").as_bytes()).await?;
        let answer = timeout(PATIENCE, self.answers.next_line()).await.context("a publisher does not answer")??;
        let answer = answer.with_context(|| format!("a publisher has ended by itself: {}", said(&self.log)))?;
        let answer: Value = serde_json::from_str(&answer)?;
        ensure!(answer["id"] == event["id"], "{event} was answered with {answer}");
        Ok(())
    }

    /// Ends the input, and waits for the end. Fails if the exit status is not 0.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        drop(self.input);
        end(self.child, &self.log).await
    }
}

async fn end(mut child: Child, log: &Path) -> anyhow::Result<()> {
    let ended = timeout(PATIENCE, child.wait()).await;
    let status = ended.with_context(|| format!("{} does not stop", log.display()))??;
    ensure!(status.success(), "{status}: {}", said(log));
    Ok(())
}

fn said(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}
