//! Runs the binary as processes: workers that run programs, and publishers.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{
    answers::CommandLine,
    broker::{PATIENCE, eventually},
    declared::Declared,
};

/// Returns a Python interpreter that can import pika. The first one in PATH may be another installation than the one
/// that has the packages.
pub(crate) fn python() -> &'static str {
    static FOUND: std::sync::OnceLock<&'static str> = std::sync::OnceLock::new();
    FOUND.get_or_init(|| {
        let knows = |python: &&str| {
            std::process::Command::new(python)
                .args(["-c", "import pika"])
                .output()
                .is_ok_and(|output| output.status.success())
        };
        ["python3", "/usr/bin/python3"].into_iter().find(knows).unwrap_or_else(|| {
            panic!("no Python with pika: `scripts/services install --python`, or `python3 -m pip install pika`")
        })
    })
}

/// Returns whether a process runs. A process that waits to be reaped does not.
pub(crate) fn is_running(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

/// A temporary folder with the file of a declared topology.
pub(crate) struct Place<'a> {
    pub(crate) declared: &'a Declared,
    folder: TempDir,
}

/// The exit status and the output of a process.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl<'a> Place<'a> {
    pub(crate) fn new(declared: &'a Declared) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("topology.yaml"), &declared.text).unwrap();
        Self { declared, folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the binary with an environment that names this topology's broker and Redis and nothing else.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_topology"));
        command.args(arguments);
        command
    }

    /// Returns any program with the same environment.
    pub(crate) fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("AMQP_URL", self.declared.host.amqp())
            .env("REDIS_URL", &self.declared.redis_url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, command: &mut Command) -> Ended {
        let output =
            tokio::time::timeout(PATIENCE, command.output()).await.expect("the process did not end in time").unwrap();
        Ended::of(&CommandLine::of(command.as_std()), output)
    }

    /// Returns a worker on one type that runs a shell script for each event. Its log goes to the file `log`.
    pub(crate) fn worker(&self, event_type: &str, script: &Path) -> Command {
        let mut command = self.command(&["-o", "json", "-v", "work", "--type", event_type, "--exec", "sh"]);
        let log = fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        command.arg(script).stderr(log);
        command
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Returns the lines of a file; none if the file does not exist.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        fs::read_to_string(self.path(name)).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

impl Ended {
    /// Fails if the process is `topology`, and its JSON is not as its schema says.
    fn of(line: &CommandLine, output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let ended = Self { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) };
        line.check(&ended.stdout);
        ended
    }

    pub(crate) fn killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    /// Returns the summary that a worker prints at its end.
    pub(crate) fn summary(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        self
    }
}

/// A process that runs until a test ends it. If the test fails before, it tells what the process has written.
pub(crate) struct Process {
    /// `None` once [`Process::ended`] waits for its end.
    child: Option<Child>,
    line: CommandLine,
}

impl Process {
    pub(crate) fn spawn(mut command: Command) -> Self {
        Self { line: CommandLine::of(command.as_std()), child: Some(command.spawn().unwrap()) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().and_then(Child::id).expect("the process has ended")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Sets the limit of open files of the process, and returns the former one.
    pub(crate) fn limit_files(&self, most: Option<u64>) -> Option<u64> {
        let id = Pid::from_raw(i32::try_from(self.id()).unwrap());
        let limits = Rlimit { current: most, maximum: getrlimit(Resource::Nofile).maximum };
        prlimit(id, Resource::Nofile, limits).unwrap().current
    }

    /// Returns the exit status if the process has ended.
    pub(crate) fn try_ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().unwrap().try_wait().unwrap()
    }

    /// Waits until the process ends. Kills one that does not, and tells what it has written.
    pub(crate) async fn ended(mut self) -> Ended {
        let mut child = self.child.take().unwrap();
        let in_time = tokio::time::timeout(PATIENCE, child.wait()).await.is_ok();
        if !in_time {
            child.start_kill().unwrap();
        }
        let output = child.wait_with_output().await.unwrap();
        assert!(in_time, "the process did not end within {PATIENCE:?}: {output:?}");
        Ended::of(&self.line, output)
    }

    /// Waits until the process ends, and sends it the signal again and again meanwhile.
    pub(crate) async fn ended_by(mut self, signal: Signal) -> Ended {
        let again = async || {
            let status = self.try_ended();
            if status.is_none() {
                self.signal(signal);
            }
            status
        };
        eventually("the process ends", again).await;
        self.ended().await
    }

    /// Stops a worker with SIGTERM, and expects exit code 0. Returns its summary.
    pub(crate) async fn stop(self) -> Value {
        self.signal(Signal::TERM);
        self.ended().await.expect(0).summary()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take().filter(|_| std::thread::panicking()) else { return };
        // One read gets all that a pipe can hold. It does not block, because tokio's pipes do not.
        let mut stderr = vec![0; 64 * 1024];
        let read = child.stderr.as_ref().and_then(|pipe| rustix::io::read(pipe, &mut stderr).ok()).unwrap_or_default();
        let (line, ended, stderr) = (&self.line, child.try_wait(), String::from_utf8_lossy(&stderr[..read]));
        let _ = writeln!(io::stderr(), "{line:?} (ended: {ended:?}) has written: {stderr}");
    }
}
