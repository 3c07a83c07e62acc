//! Runs the binary in a folder of its own, against a virtual host of its own.

use std::{fs, path::Path, process::Output};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

use super::broker::{PASSWORD, PATIENCE, VirtualHost};

/// A folder with a topology.yaml, and where to apply it.
pub(crate) struct Bench {
    pub(crate) host: VirtualHost,
    folder: TempDir,
}

/// How a run ended. No password is in it.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Bench {
    pub(crate) fn new(topology: &str) -> Self {
        let bench = Self { host: VirtualHost::new(), folder: TempDir::new().unwrap() };
        bench.write(topology);
        bench
    }

    pub(crate) fn write(&self, topology: &str) {
        fs::write(self.folder.path().join("topology.yaml"), topology).unwrap();
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The binary, which knows of nothing but this virtual host.
    pub(crate) fn process(&self, arguments: &[&str]) -> std::process::Command {
        let mut process = std::process::Command::new(env!("CARGO_BIN_EXE_topology"));
        process
            .current_dir(self.folder())
            .env_clear()
            .env("AMQP_URL", self.host.amqp())
            .env("RABBITMQ_MANAGEMENT_URL", self.host.management())
            .args(arguments);
        process
    }

    /// The same without a terminal, and not for ever.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::from_std(self.process(arguments));
        // Pruning proves that queues are empty, one after the other.
        command.timeout(4 * PATIENCE);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// Runs it, and expects this exit code.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, arguments: &[&str]) -> Ran {
        self.run(arguments).expect(code)
    }

    /// Makes the broker as the file says.
    #[track_caller]
    pub(crate) fn apply(&self) -> Ran {
        self.expect(0, &["apply", "--auto-approve"])
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn of(output: Output) -> Self {
        let ran = Self {
            code: output.status.code().expect("ended by itself"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        assert!(!ran.stdout.contains(PASSWORD) && !ran.stderr.contains(PASSWORD), "a password is shown: {ran:?}");
        ran
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// The last line of the answer.
    pub(crate) fn last(&self) -> &str {
        self.stdout.lines().last().unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}
