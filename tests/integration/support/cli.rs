//! Runs the binary in a temporary folder and against a virtual host of its own.

use std::{fs, path::Path, process::Output, time::Instant};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

use super::{
    answers::CommandLine,
    broker::{PASSWORD, PATIENCE, VirtualHost},
};

/// A folder with a `topology.yaml`, and the virtual host to apply it to.
pub(crate) struct Bench {
    pub(crate) host: VirtualHost,
    folder: TempDir,
}

/// The result of a run. Creating one fails if the output shows the test password.
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

    /// Returns the binary with an environment that names this virtual host and nothing else.
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

    /// Returns the same without a terminal and with a time limit.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::from_std(self.process(arguments));
        // Pruning takes long: it proves for one queue after the other that it is empty.
        command.timeout(4 * PATIENCE);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::run(&mut self.command(arguments))
    }

    /// Runs the binary and expects this exit code.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, arguments: &[&str]) -> Ran {
        self.run(arguments).expect(code)
    }

    /// Runs `apply`, and expects it to succeed. It is run again while the broker is busy, as its message says.
    #[track_caller]
    pub(crate) fn apply(&self) -> Ran {
        let until = Instant::now() + PATIENCE;
        loop {
            let ran = self.run(&["apply", "--auto-approve"]);
            if !is_busy(ran.code, &ran.stderr) || Instant::now() > until {
                return ran.expect(0);
            }
        }
    }
}

/// Returns whether a command failed because the broker was too busy to start a quorum queue in its five seconds. RabbitMQ
/// then closes the connection with `cluster_not_formed`; up to 4.0.5 (ra 2.14) also with nothing but `INTERNAL_ERROR`.
pub(crate) fn is_busy(code: i32, stderr: &str) -> bool {
    matches!(code, 5 | 6) && stderr.contains("it closed the connection: INTERNAL_ERROR")
}

impl Ran {
    /// Runs a command to its end. Fails if its JSON is not as its schema says.
    #[track_caller]
    pub(crate) fn run(command: &mut Command) -> Self {
        let ran = Self::of(command.output().unwrap());
        CommandLine::new(command.get_program(), command.get_args()).check(&ran.stdout);
        ran
    }

    #[track_caller]
    pub(crate) fn of(output: Output) -> Self {
        let ran = Self {
            code: output.status.code().expect("a signal ended the process"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        assert!(
            !ran.stdout.contains(PASSWORD) && !ran.stderr.contains(PASSWORD),
            "the output shows a password: {ran:?}"
        );
        ran
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Returns the last line of standard output.
    pub(crate) fn last(&self) -> &str {
        self.stdout.lines().last().unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}
