//! A program as a handler: the payload on standard input, the fields in the environment, the outcome from its exit
//! status and the last line that it prints. No shell is involved.

mod group;
mod output;
mod payload;

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use self::{group::Group, output::Output};
use super::{
    Handler, HandlerError, Outcome, Run, answer,
    fields::{Field, fields},
};

/// The exit status that means "it will never work" (`EX_DATAERR` of sysexits.h).
const DEAD_LETTER: i32 = 65;

/// How long what a program that has ended left running may still print. After that it ends too, and this long is waited for
/// the output of what has left the group.
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
        command
            .args(&self.arguments)
            .stdin(payload::whole(&run.event.payload)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
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
        // Ends the whole group when this future is dropped: at the time limit, or when the worker gives the event back.
        let (mut child, mut group) = Group::start(|| self.spawn(&run)).map_err(cannot)?;
        let mut said = Output::read(child.stdout.take());
        let mut complained = Output::read(child.stderr.take());
        group.ended().await.map_err(failed)?;
        let mut closed = async || timeout(LAST_OUTPUT, join(said.closed(), complained.closed())).await.is_ok();
        let all_said = closed().await;
        drop(group);
        if !all_said {
            closed().await;
        }
        let status = child.wait().await.map_err(failed)?;
        outcome(status, &said.last_line(), &complained.last_line())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_found_out_before_it_is_needed() {
        assert!(matches!(Exec::new(&[]), Err(ExecError::Empty)));
        assert!(matches!(Exec::new(&["/no/such/program".into()]), Err(ExecError::NotExecutable { .. })));
        assert!(matches!(Exec::new(&["/etc/passwd".into()]), Err(ExecError::NotExecutable { .. })));
        assert!(Exec::new(&["sh".into(), "-c".into(), "true".into()]).is_ok());
    }
}
