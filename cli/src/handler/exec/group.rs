//! The process group of a program, which is killed when the run ends.

use std::io;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::{
    process::Child,
    runtime::Handle,
    signal::unix::{self, SignalKind, signal},
};

/// A process group that is killed when this value is dropped. This ends a program at its time limit, or when the event
/// is given back, and also the processes that a program leaves behind.
pub(super) struct Group {
    /// The process id of the program, which is that of the group too.
    leader: Option<Pid>,
    /// Receives a signal whenever a child of this process ends.
    ended: unix::Signal,
}

impl Group {
    /// Starts a program as the leader of a new group.
    pub(super) fn start(spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<(Child, Self)> {
        // Installed before the start, so that the end of the program is not missed.
        let ended = signal(SignalKind::child())?;
        let child = spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok((child, Self { leader, ended }))
    }

    /// Waits until the program has ended, without reaping it: as long as it is not reaped, its process id is not given
    /// to another process, and the group can be killed safely.
    pub(super) async fn ended(&mut self) -> io::Result<()> {
        let Some(leader) = self.leader else { return Ok(()) };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(leader), look)?.is_none() {
            self.ended.recv().await;
        }
        Ok(())
    }

    /// Asks the processes of the group to end. Only safe before the program is reaped.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills the remaining processes of the group. Only safe before the program is reaped.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.leader
            && let Err(error) = kill_process_group(group, signal)
        {
            tracing::debug!(%error, "cannot signal a program's process group");
        }
    }

    /// Ends the use of a group that was killed and whose program was reaped.
    pub(super) fn over(mut self) {
        if let Some(group) = self.leader.take() {
            reap(group);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        if let Some(group) = self.leader {
            reap(group);
        }
    }
}

/// Reaps the processes of a group that have become children of this process. That happens to orphans if this is the
/// first process of a container; they would stay as zombies.
fn reap(group: Pid) {
    let next = move || waitid(WaitId::Pgid(Some(group)), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    // Mostly there are none. Without a runtime this process is ending too, so nothing is left to do.
    let (Ok(_), Ok(runtime)) = (next(), Handle::try_current()) else { return };
    runtime.spawn(async move {
        let Ok(mut ended) = signal(SignalKind::child()) else { return };
        while let Ok(found) = next() {
            if found.is_none() {
                ended.recv().await;
            }
        }
    });
}
