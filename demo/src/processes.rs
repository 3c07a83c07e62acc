//! The real binary as child processes. None of them outlives the demo.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// More than a worker's own drain limit.
const PATIENCE: Duration = Duration::from_secs(40);

/// Where everything is: the binary, and the folder for what the demo writes.
pub(crate) struct House {
    binary: PathBuf,
    pub(crate) folder: PathBuf,
}

impl House {
    /// The binary lies beside the folder of the examples, where cargo put both.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let example = std::env::current_exe()?;
        let binary = example.ancestors().nth(2).context("no folder of a build")?.join("topology");
        ensure!(binary.exists(), "{} is missing; scripts/demo builds it", binary.display());
        let folder = std::env::current_dir()?.join(".demo");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { binary, folder })
    }

    /// One demo at a time in one folder, for as long as this file is open.
    pub(crate) fn lock(&self) -> anyhow::Result<File> {
        let lock = File::create(self.folder.join("lock"))?;
        lock.try_lock().with_context(|| format!("another demo runs in {}", self.folder.display()))?;
        Ok(lock)
    }

    /// A file of the demo's, empty.
    pub(crate) fn empty(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(name);
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// A verb of `topology`, which ends with the demo.
    pub(crate) fn topology(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(["-f", "topology.yaml"]).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

/// A worker process.
pub(crate) struct Worker {
    /// What its handlers call themselves.
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

    /// Starts one, and says its process id.
    pub(crate) fn start(&mut self, name: &str) -> anyhow::Result<u32> {
        let log = File::create(self.house.folder.join(format!("worker-{name}.log")))?;
        let work = ["work", "--type", "hr-import", "--type", "mail", "--exec", "demo/handler.sh"];
        let mut command = tied(&self.house.topology(&work));
        command.env("DEMO_OUT", &self.handled).env("DEMO_WORKER", name);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        // Ctrl-C is for the demo, which then stops its workers in order.
        let child = command.process_group(0).spawn().context("cannot start a worker")?;
        let pid = child.id().context("a worker ended at once")?;
        self.running.push(Worker { name: name.to_owned(), child });
        Ok(pid)
    }

    /// `kill -9`. Says whom it hit.
    pub(crate) async fn kill(&mut self, name: &str) -> anyhow::Result<u32> {
        let at = self.running.iter().position(|worker| worker.name == name).context("no such worker")?;
        let mut worker = self.running.remove(at);
        let pid = worker.child.id().context("the worker had ended already")?;
        worker.child.kill().await?;
        Ok(pid)
    }

    /// Fails when one has ended by itself.
    pub(crate) fn require_alive(&mut self) -> anyhow::Result<()> {
        for worker in &mut self.running {
            if let Some(status) = worker.child.try_wait()? {
                bail!("worker {} has ended ({status}); see {}", worker.name, self.house.folder.display());
            }
        }
        Ok(())
    }

    /// SIGTERM to all. Each finishes what runs, gives the rest back, and must exit with 0.
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

/// The command, told to stop should the demo itself be killed. `setpriv` is on every Linux; elsewhere it is done
/// without.
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
