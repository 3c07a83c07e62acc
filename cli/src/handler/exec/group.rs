//! A program's process group, which ends with it.

use std::io;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::{
    process::Child,
    runtime::Handle,
    signal::unix::{self, SignalKind, signal},
};

/// A process group that is killed when this is dropped: the program at its time limit or when the event is given back,
/// and what a program that has ended left running.
pub(super) struct Group {
    /// The program, whose number is the group's too.
    leader: Option<Pid>,
    /// Children of this process have ended since this was looked at.
    ended: unix::Signal,
}

impl Group {
    /// The group of a program that is started as the leader of one.
    pub(super) fn start(spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<(Child, Self)> {
        // Before it starts, so that its end is not missed.
        let ended = signal(SignalKind::child())?;
        let child = spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok((child, Self { leader, ended }))
    }

    /// Waits until the program has ended, and leaves its status alone: until that is taken, nobody else gets its number,
    /// and it is safe to kill the group by it.
    pub(super) async fn ended(&mut self) -> io::Result<()> {
        let Some(leader) = self.leader else { return Ok(()) };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(leader), look)?.is_none() {
            self.ended.recv().await;
        }
        Ok(())
    }

    /// Kills what is left of it. Only while nobody has taken the program's status.
    pub(super) fn kill(&self) {
        if let Some(group) = self.leader
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%error, "killing a program's process group");
        }
    }

    /// It is killed, and the program's status is taken.
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

/// Takes the statuses of a group's processes that have become children of this one: the orphans, where this is the first
/// process of a container. They would stay as zombies.
fn reap(group: Pid) {
    let next = move || waitid(WaitId::Pgid(Some(group)), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    // Mostly there are none. Where there is no runtime any more, this process ends as well.
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
