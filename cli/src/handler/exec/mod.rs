//! A handler that runs a program: the payload on standard input, the fields in the environment, the outcome from its
//! exit status and its last line. No shell is involved.

mod group;
mod output;
mod output_log;

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Seek as _, Write as _},
    os::fd::OwnedFd,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join;
use hatchery::{Handler, IntoOutcome as _, Outcome, Run};
use jiff::Timestamp;
use rustix::io::Errno;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

pub use self::output_log::HandlerOutput;
use self::{
    group::Group,
    output::{Line, Output},
    output_log::{OutputLog, Sink, Stream},
};
use super::{
    answer,
    fields::{Field, fields},
};

/// The exit status that means `dead-letter` (`EX_DATAERR` of sysexits.h).
const DEAD_LETTER: i32 = 65;

/// How long processes that a program has left behind may still print. Then the group is killed, and the output of
/// processes that have left the group is waited for once more, as long.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// A program and its arguments.
#[derive(Clone, Debug)]
pub struct Exec {
    program: PathBuf,
    arguments: Vec<OsString>,
    pass_urls: bool,
    output: HandlerOutput,
}

/// The error for a program that cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The command is empty.
    #[error("no program given")]
    Empty,
    /// The file does not exist.
    #[error("the program `{program}` {}", nowhere(.program))]
    Missing {
        /// The program as it was given.
        program: String,
    },
    /// The name is that of a directory.
    #[error("the program `{}` is a directory", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The file exists and may not be executed.
    #[error("the program `{}` is not executable; run `chmod +x {}`", .path.display(), .path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
}

/// Describes where a missing program was looked for.
fn nowhere(program: &str) -> &'static str {
    if program.contains('/') {
        "does not exist"
    } else {
        "is in no directory of PATH; write `./` before a file that is here"
    }
}

/// Environment variables with URLs of a broker or Redis, which may hold passwords.
const URLS: [&str; 6] = [
    "AMQP_URL",
    "AMQP_URL_FILE",
    "REDIS_URL",
    "REDIS_URL_FILE",
    "RABBITMQ_MANAGEMENT_URL",
    "RABBITMQ_MANAGEMENT_URL_FILE",
];

impl Exec {
    /// Takes a command: a program and its arguments. The program is looked up in `PATH`, unless its name has a slash.
    ///
    /// # Errors
    /// When there is no such program, or it is not executable: before the first delivery is requested.
    pub fn new(command: &[OsString]) -> Result<Self, ExecError> {
        let (program, arguments) = command.split_first().ok_or(ExecError::Empty)?;
        let found = which::which(program).map_err(|_| why_not_found(program))?;
        Ok(Self { program: found, arguments: arguments.to_vec(), pass_urls: false, output: HandlerOutput::default() })
    }

    /// Keeps `AMQP_URL`, `REDIS_URL`, `RABBITMQ_MANAGEMENT_URL`, and the same with `_FILE`, in the program's
    /// environment. They may hold passwords, so they are removed by default.
    #[must_use]
    pub fn pass_urls(self, pass_urls: bool) -> Self {
        Self { pass_urls, ..self }
    }

    /// Says where the program's output goes. By default it is logged.
    #[must_use]
    pub fn output(self, output: HandlerOutput) -> Self {
        Self { output, ..self }
    }

    /// Describes why the program cannot be started. If the file exists and the error says "not found", the interpreter
    /// in its first line is missing.
    fn why_not(&self, error: &io::Error) -> String {
        let program = self.program.display();
        if error.kind() == io::ErrorKind::NotFound && self.program.exists() {
            return format!("{program}: the interpreter that its first line names does not exist");
        }
        format!("{program}: {error}")
    }

    fn spawn(&self, run: &Run) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(whole(&run.event.payload)?).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !self.pass_urls {
            for name in URLS {
                command.env_remove(name);
            }
        }
        for Field { variable, value, .. } in fields(&run.event, run.fence) {
            match value {
                // A variable cannot hold a NUL, while a header may.
                Some(value) => command.env(variable, value.replace('\0', "")),
                None => command.env_remove(variable),
            };
        }
        // The program gets its own process group, so that its children are killed with it at the time limit.
        command.process_group(0).kill_on_drop(true).spawn()
    }
}

/// Returns why a program was not found: there is no file with its name, or the first one cannot be executed.
fn why_not_found(program: &OsStr) -> ExecError {
    let named = Path::new(program);
    let places: Vec<PathBuf> = if named.components().count() > 1 || named.is_absolute() {
        vec![named.to_owned()]
    } else {
        env::var_os("PATH")
            .map(|path| env::split_paths(&path).map(|folder| folder.join(named)).collect())
            .unwrap_or_default()
    };
    match places.into_iter().find(|path| path.exists()) {
        Some(path) if path.is_dir() => ExecError::Directory { path },
        Some(path) => ExecError::NotExecutable { path },
        None => ExecError::Missing { program: program.to_string_lossy().into_owned() },
    }
}

#[async_trait]
impl Handler for Exec {
    async fn handle(&self, run: Run) -> Outcome {
        self.run(run).await.into_outcome()
    }
}

impl Exec {
    async fn run(&self, run: Run) -> Result<Outcome, Outcome> {
        // The event's fields alone may be too long for an environment. Any other error would meet the next event too: a program
        // that is missing, or a machine without room (processes, open files, memory).
        let cannot = |error: io::Error| match self.why_not(&error) {
            why if Errno::from_io_error(&error) == Some(Errno::TOOBIG) => Outcome::retry(why),
            why => Outcome::unavailable(why),
        };
        let failed = |error: io::Error| Outcome::retry(format_args!("{}: {error}", self.program.display()));
        let (printed, ending) = OutputLog::new(&run, self.output);
        let sink = |stream| match self.output {
            HandlerOutput::Inherit => Sink::Inherit(stream),
            HandlerOutput::Log | HandlerOutput::Discard => Sink::Log(Arc::clone(&printed), stream),
        };
        // Dropping this future kills the whole group: at the time limit, or when the worker gives the event back.
        let (mut child, mut group) = Group::start(|| self.spawn(&run)).map_err(cannot)?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Outcome::unavailable("the output of the program cannot be read"));
        };
        let read = |pipe: io::Result<OwnedFd>, stream| pipe.and_then(|pipe| Output::read(pipe, sink(stream)));
        let mut said = read(stdout.into_owned_fd(), Stream::Out).map_err(failed)?;
        let mut complained = read(stderr.into_owned_fd(), Stream::Err).map_err(failed)?;
        tokio::select! {
            biased;
            ended = group.ended() => ended.map_err(failed)?,
            () = run.cancelled() => {
                // The worker drops this future after five seconds, which kills the group.
                group.terminate();
                group.ended().await.map_err(failed)?;
            }
        }
        let by_itself = (said.last_line(), complained.last_line());
        let mut closed = async || timeout(LAST_OUTPUT, join(said.closed(), complained.closed())).await.is_ok();
        let all_said = closed().await;
        group.kill();
        if !all_said {
            closed().await;
        }
        let status = child.wait().await.map_err(failed)?;
        group.over();
        let now = run.now();
        let (said, complained) =
            (answer(by_itself.0, said.last_line(), now), reason(by_itself.1, complained.last_line()));
        let outcome = outcome(status, &said, &complained.text, now);
        if !matches!(outcome, Outcome::Retry { .. } | Outcome::DeadLetter { .. }) {
            ending.succeeded();
        }
        Ok(outcome)
    }
}

/// Returns the payload as a file that is complete before the program starts. With a pipe, the program would see an
/// early end if this process were killed while it writes: the program outlives it, and would take the part for the
/// whole.
fn whole(payload: &[u8]) -> io::Result<Stdio> {
    let mut file = File::from(rustix::fs::memfd_create("payload", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(payload)?;
    file.rewind()?;
    Ok(file.into())
}

/// Chooses the answer. If the last line at the end of the program is an answer, it counts: later output of other
/// processes does not hide it. Otherwise the last line of all counts, because a program like `tee` may pass an answer on
/// late.
fn answer(by_itself: Line, later: Line, now: Timestamp) -> Line {
    if matches!(meaning(&by_itself, now), Ok(Outcome::Done)) { later } else { by_itself }
}

/// Chooses the reason of a failure, in the same way: the line that the program had printed by its end, unless that is
/// blank.
fn reason(by_itself: Line, later: Line) -> Line {
    if by_itself.text.is_empty() { later } else { by_itself }
}

/// Returns the meaning of a line on standard output.
fn meaning(line: &Line, now: Timestamp) -> Result<Outcome, String> {
    match &line.beginning {
        Some(beginning) if answer::begins(beginning) => Err("the answer is too long".to_owned()),
        Some(_) => Ok(Outcome::Done),
        None => answer::read(&line.text, now),
    }
}

/// Returns the meaning of an exit status and the last lines.
fn outcome(status: ExitStatus, said: &Line, complained: &str, now: Timestamp) -> Outcome {
    let reason = |otherwise: String| if complained.is_empty() { otherwise } else { complained.to_owned() };
    match status.code() {
        Some(0) => meaning(said, now).into_outcome(),
        Some(DEAD_LETTER) => Outcome::dead_letter(reason(format!("exit status {DEAD_LETTER}"))),
        Some(code) => Outcome::retry(reason(format!("exit status {code}"))),
        None => {
            let signal = status.signal().unwrap_or_default();
            Outcome::retry(reason(format!("killed by signal {signal}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use rstest::rstest;

    use super::*;
    use crate::handler::tests::run;

    async fn shell(script: &str) -> Outcome {
        let shell = Exec::new(&["sh".into(), "-c".into(), script.into()]).expect("there is a shell");
        shell.handle(run("")).await
    }

    fn discarded() -> Outcome {
        Outcome::Discard { reason: "discarded".into() }
    }

    #[rstest]
    #[case::noise("(sleep 0.3; echo noise) & echo '{\"discard\": {}}'", Ok(discarded()))]
    #[case::another("(sleep 0.3; echo '{\"retry\": {}}') & echo '{\"discard\": {}}'", Ok(discarded()))]
    #[case::by_another("(sleep 0.1; echo '{\"discard\": {}}') & echo working", Ok(discarded()))]
    #[case::noise_for_an_error("(sleep 0.3; echo noise >&2) & echo 'no table' >&2; exit 1", Err("no table"))]
    #[case::error_by_another("(sleep 0.1; echo 'no table' >&2) & exit 1", Err("no table"))]
    #[case::too_long(
        "printf '{\"discard\": {\"reason\": \"'; head -c 70000 /dev/zero | tr '\\0' x; echo '\"}}'",
        Err("the answer is too long")
    )]
    #[case::long_chatter("head -c 70000 /dev/zero | tr '\\0' x", Ok(Outcome::Done))]
    #[case::broken_off("printf '{\"requeue\":{\"after\":\"1h\"'", Err("the answer is broken off"))]
    #[case::byte_order_mark("printf '\\357\\273\\277{\"discard\": {}}\\n'", Ok(discarded()))]
    #[tokio::test]
    async fn the_answer_of_a_program_is_read(#[case] script: &str, #[case] expected: Result<Outcome, &'static str>) {
        assert_eq!(shell(script).await, expected.into_outcome());
    }

    #[tokio::test]
    async fn a_missing_interpreter_is_not_a_missing_program() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let script = folder.path().join("script");
        fs::write(&script, "#!/nonexistent\n").expect("written");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
        let exec = Exec::new(&[script.into()]).expect("it is there");
        let Outcome::Unavailable { reason: why } = exec.handle(run("")).await else { panic!("it cannot start") };
        assert!(why.ends_with("/script: the interpreter that its first line names does not exist"), "{why}");
    }

    #[test]
    fn a_missing_program_is_found_before_the_first_event() {
        assert!(matches!(Exec::new(&[]), Err(ExecError::Empty)));
        assert!(matches!(Exec::new(&["/no/such/program".into()]), Err(ExecError::Missing { .. })));
        assert!(matches!(Exec::new(&["/etc/passwd".into()]), Err(ExecError::NotExecutable { .. })));
        assert!(Exec::new(&["sh".into(), "-c".into(), "true".into()]).is_ok());
    }

    #[test]
    fn a_program_that_is_not_executable_is_not_reported_as_missing() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let script = folder.path().join("script");
        fs::write(&script, "#!/bin/sh\n").expect("written");
        let why = |program: &std::path::Path| Exec::new(&[program.into()]).expect_err("no program").to_string();
        assert!(why(&script).contains("is not executable; run `chmod +x "), "{}", why(&script));
        assert!(why(folder.path()).contains("is a directory"), "{}", why(folder.path()));
        assert!(why(&folder.path().join("none")).contains("does not exist"), "{}", why(&folder.path().join("none")));
        assert!(why("no-such-program".as_ref()).contains("is in no directory of PATH"));
    }
}
