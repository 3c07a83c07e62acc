//! Runs `topology` as child processes. None of them outlives the demo.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// How long a worker may take to stop: longer than its drain timeout.
const PATIENCE: Duration = Duration::from_secs(40);

/// The paths of the binary, and of the folder that the demo writes to.
pub(crate) struct House {
    binary: PathBuf,
    pub(crate) folder: PathBuf,
}

impl House {
    /// Finds the binary `topology` beside this one, where cargo puts both, and creates the folder.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let binary = std::env::current_exe()?.with_file_name("topology");
        ensure!(binary.exists(), "{} is missing; scripts/demo builds it", binary.display());
        let folder = std::env::current_dir()?.join(".demo");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { binary, folder })
    }

    /// Locks the folder, so that only one demo uses it at a time. Closing the file releases the lock.
    pub(crate) fn lock(&self) -> anyhow::Result<File> {
        let lock = File::create(self.folder.join("lock"))?;
        ensure!(lock.try_lock().is_ok(), "another demo is running (it holds {}/lock)", self.folder.display());
        Ok(lock)
    }

    /// Creates an empty file in the folder.
    pub(crate) fn empty(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(name);
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Returns the command for a verb of `topology`. Its process is killed when the demo ends.
    pub(crate) fn topology(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(["-f", "topology.yaml"]).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

/// A worker process.
pub(crate) struct Worker {
    /// The name that its handlers write down.
    pub(crate) name: String,
    child: Child,
}

/// The workers that run.
pub(crate) struct Workers<'a> {
    house: &'a House,
    handled: PathBuf,
    running: Vec<Worker>,
}

impl<'a> Workers<'a> {
    pub(crate) fn new(house: &'a House, handled: &Path) -> Self {
        Self { house, handled: handled.to_owned(), running: Vec::new() }
    }

    /// Starts a worker, and returns its process id.
    pub(crate) fn start(&mut self, name: &str) -> anyhow::Result<u32> {
        let log = File::create(self.house.folder.join(format!("worker-{name}.log")))?;
        let work = ["work", "--type", "hr-import", "--type", "mail", "--exec", "demo/handler.sh"];
        let mut command = tied(&self.house.topology(&work));
        command.env("DEMO_OUT", &self.handled).env("DEMO_WORKER", name);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        // In a process group of its own, so that Ctrl-C reaches only the demo, which then stops its workers with
        // SIGTERM.
        let child = command.process_group(0).spawn().context("cannot start a worker")?;
        let pid = child.id().context("a worker ended at once")?;
        self.running.push(Worker { name: name.to_owned(), child });
        Ok(pid)
    }

    /// Kills a worker with SIGKILL, and returns its process id.
    pub(crate) async fn kill(&mut self, name: &str) -> anyhow::Result<u32> {
        let at = self.running.iter().position(|worker| worker.name == name).context("no such worker")?;
        let mut worker = self.running.remove(at);
        let pid = worker.child.id().context("the worker had ended already")?;
        worker.child.kill().await?;
        Ok(pid)
    }

    /// Fails if a worker has ended by itself.
    pub(crate) fn require_alive(&mut self) -> anyhow::Result<()> {
        for worker in &mut self.running {
            if let Some(status) = worker.child.try_wait()? {
                bail!("worker {} has ended ({status}); see {}", worker.name, self.house.folder.display());
            }
        }
        Ok(())
    }

    /// Sends SIGTERM to all workers. Each must finish its running events, give the others back, and exit with 0.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        for worker in &self.running {
            if let Some(pid) = worker.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
                kill_process(pid, Signal::TERM)?;
            }
        }
        let mut statuses: Vec<(String, ExitStatus)> = Vec::new();
        for mut worker in self.running.drain(..) {
            let ended = tokio::time::timeout(PATIENCE, worker.child.wait()).await;
            let status = ended.with_context(|| format!("worker {} does not stop", worker.name))??;
            statuses.push((worker.name, status));
        }
        for (name, status) in statuses {
            ensure!(status.success(), "worker {name} ended with {status}; see {}", self.house.folder.display());
        }
        Ok(())
    }
}

/// Returns the command such that its process gets SIGTERM if the demo itself is killed. This needs `setpriv`, which
/// every Linux has; elsewhere the command stays as it is.
fn tied(command: &Command) -> Command {
    let command = command.as_std();
    let setpriv = Path::new("/usr/bin/setpriv");
    let mut tied = Command::new(command.get_program());
    if setpriv.exists() {
        tied = Command::new(setpriv);
        tied.args(["--pdeathsig", "TERM", "--"]).arg(command.get_program());
    }
    tied.args(command.get_args());
    tied
}
