//! A program as a handler: the payload on standard input, the fields in the environment, the outcome from its exit
//! status and the last line that it prints. No shell is involved.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Seek as _, Write as _},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Handler, HandlerError, Outcome, Run, answer,
    fields::{Field, fields},
};

/// The exit status that means "it will never work" (`EX_DATAERR` of sysexits.h).
const DEAD_LETTER: i32 = 65;

/// The longest line that counts. Of a longer one the end is kept.
const LINE: usize = 64 * 1024;

/// How long a program that has ended may leave its output open to its own children.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// A program and its arguments.
#[derive(Clone, Debug)]
pub struct Exec {
    program: PathBuf,
    arguments: Vec<OsString>,
}

/// There is nothing that could be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// No program given.
    #[error("no program given")]
    Empty,
    /// Not there, or not executable.
    #[error("the program `{program}` is not there, or not executable")]
    NotExecutable {
        /// As it was given.
        program: String,
    },
}

impl Exec {
    /// A program, found in `PATH` unless it has a slash, and its arguments.
    ///
    /// # Errors
    /// When there is no such program, or it is not executable: found out now, before the first delivery is asked for.
    pub fn new(command: &[OsString]) -> Result<Self, ExecError> {
        let (program, arguments) = command.split_first().ok_or(ExecError::Empty)?;
        let found = which::which(program)
            .map_err(|_| ExecError::NotExecutable { program: program.to_string_lossy().into_owned() })?;
        Ok(Self { program: found, arguments: arguments.to_vec() })
    }

    fn spawn(&self, run: &Run) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(whole(&run.event.payload)?).stdout(Stdio::piped()).stderr(Stdio::piped());
        for Field { variable, value, .. } in fields(&run.event, run.fence) {
            match value {
                // The environment holds no NUL, and a header may.
                Some(value) => command.env(variable, value.replace('\0', "")),
                None => command.env_remove(variable),
            };
        }
        // A group of its own, so that its children end with it at the time limit.
        command.process_group(0).kill_on_drop(true).spawn()
    }
}

#[async_trait]
impl Handler for Exec {
    async fn handle(&self, run: Run) -> Result<Outcome, HandlerError> {
        let cannot = |error: io::Error| HandlerError::CannotStart(format!("{}: {error}", self.program.display()));
        let failed = |error: io::Error| HandlerError::Failed(format!("{}: {error}", self.program.display()));
        let mut child = self.spawn(&run).map_err(cannot)?;
        // Ends the whole group when this future is dropped: at the time limit, or when the worker gives the event back.
        let mut group = Group::of(&child);
        let said = AbortOnDropHandle::new(tokio::spawn(last_line(child.stdout.take())));
        let complained = AbortOnDropHandle::new(tokio::spawn(last_line(child.stderr.take())));
        let status = child.wait().await.map_err(failed)?;
        group.disarm();
        let (said, complained) = tokio::join!(line(said), line(complained));
        outcome(status, &said, &complained)
    }
}

/// What an exit status and the last lines mean.
fn outcome(status: ExitStatus, said: &str, complained: &str) -> Result<Outcome, HandlerError> {
    let reason = |otherwise: String| if complained.is_empty() { otherwise } else { complained.to_owned() };
    match status.code() {
        Some(0) => answer::read(said).map_err(HandlerError::Failed),
        Some(DEAD_LETTER) => Ok(Outcome::DeadLetter { reason: reason(format!("exit status {DEAD_LETTER}")) }),
        Some(code) => Err(HandlerError::Failed(reason(format!("exit status {code}")))),
        None => {
            let signal = status.signal().unwrap_or_default();
            Err(HandlerError::Failed(reason(format!("killed by signal {signal}"))))
        }
    }
}

/// The payload as a file that is all there before the program starts. A pipe would end early if this process were
/// killed while it feeds it, and the program, which outlives it, would take what it got for the whole.
fn whole(payload: &[u8]) -> io::Result<Stdio> {
    let mut file = nameless()?;
    file.write_all(payload)?;
    file.rewind()?;
    Ok(file.into())
}

/// A file in memory.
#[cfg(target_os = "linux")]
fn nameless() -> io::Result<File> {
    let file = rustix::fs::memfd_create("payload", rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(File::from(file))
}

/// A file that is removed before anything is in it.
#[cfg(not(target_os = "linux"))]
fn nameless() -> io::Result<File> {
    let path = std::env::temp_dir().join(uuid::Uuid::now_v7().to_string());
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

/// What was read, unless a grandchild holds the output open: what that has printed is not the program's answer.
async fn line(reading: AbortOnDropHandle<String>) -> String {
    let read = tokio::time::timeout(LAST_OUTPUT, reading).await;
    read.ok().and_then(Result::ok).unwrap_or_default()
}

/// The last line with anything in it, in bounded memory. Everything is read, so that the program never waits.
async fn last_line(output: Option<impl AsyncRead + Unpin>) -> String {
    let (mut last, mut current) = (Vec::new(), Vec::new());
    let Some(output) = output else { return String::new() };
    let mut reader = BufReader::new(output);
    while let Ok(chunk) = reader.fill_buf().await
        && !chunk.is_empty()
    {
        let length = chunk.len();
        for (n, part) in chunk.split(|byte| *byte == b'\n').enumerate() {
            if n > 0 {
                keep(&mut last, &mut current);
            }
            current.extend_from_slice(part);
            if current.len() > 2 * LINE {
                current.drain(..current.len() - LINE);
            }
        }
        reader.consume(length);
    }
    keep(&mut last, &mut current);
    let start = last.len().saturating_sub(LINE);
    String::from_utf8_lossy(&last[start..]).trim().to_owned()
}

/// The line that has ended becomes the last one, unless it is blank.
fn keep(last: &mut Vec<u8>, current: &mut Vec<u8>) {
    if !current.trim_ascii().is_empty() {
        std::mem::swap(last, current);
    }
    current.clear();
}

/// A process group that is killed when this is dropped.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%error, "killing a handler's process group");
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", "")]
    #[case("one", "one")]
    #[case("one\n", "one")]
    #[case("one\ntwo\n\n  \n", "two")]
    #[case("one\r\ntwo\r\n", "two")]
    #[tokio::test]
    async fn the_last_line_with_anything_in_it_counts(#[case] output: &str, #[case] expected: &str) {
        assert_eq!(last_line(Some(output.as_bytes())).await, expected);
    }

    #[tokio::test]
    async fn of_a_line_without_end_the_end_is_kept() {
        let output = [vec![b'a'; 3_000_000], b"the end".to_vec()].concat();
        let line = last_line(Some(output.as_slice())).await;
        assert!(line.len() <= LINE && line.ends_with("the end"), "{} bytes", line.len());
    }

    #[test]
    fn a_missing_program_is_found_out_before_it_is_needed() {
        assert!(matches!(Exec::new(&[]), Err(ExecError::Empty)));
        assert!(matches!(Exec::new(&["/no/such/program".into()]), Err(ExecError::NotExecutable { .. })));
        assert!(matches!(Exec::new(&["/etc/passwd".into()]), Err(ExecError::NotExecutable { .. })));
        assert!(Exec::new(&["sh".into(), "-c".into(), "true".into()]).is_ok());
    }
}
