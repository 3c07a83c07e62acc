//! A process that logs to a file, and ends when its standard input ends.

use std::{fs::File, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a process may take to stop: longer than a worker's drain timeout.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Process {
    child: Child,
    pub(crate) input: ChildStdin,
    log: PathBuf,
}

impl Process {
    /// Starts a command. Its log is appended to this file.
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(&log)?;
        // In a process group of its own, so that Ctrl-C reaches only the parent; the process ends with its standard
        // input.
        let mut child = command.stdin(Stdio::piped()).stderr(file).process_group(0).spawn()?;
        let input = child.stdin.take().context("a pipe")?;
        Ok(Self { child, input, log })
    }

    /// Returns the standard output, if it was piped.
    pub(crate) fn output(&mut self) -> anyhow::Result<ChildStdout> {
        self.child.stdout.take().context("a pipe")
    }

    /// Kills the process with SIGKILL, and waits for its end.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.require_alive()?;
        Ok(self.child.kill().await?)
    }

    /// Stops the process with SIGTERM, as a roll-out does.
    pub(crate) async fn terminate(self) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        kill_process(pid.context("the process has ended")?, Signal::TERM)?;
        self.stop().await
    }

    /// Stops the process, and waits for its end. Fails if its exit status is not 0.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.input);
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = ended.with_context(|| format!("{} does not stop", self.log.display()))??;
        ensure!(status.success(), "{status}: {}", std::fs::read_to_string(&self.log)?);
        Ok(())
    }

    pub(crate) fn require_alive(&mut self) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "a process has ended by itself: {}", self.said());
        Ok(())
    }

    /// Returns the log.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the resident memory in KiB.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        let id = self.child.id().context("the process has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}
