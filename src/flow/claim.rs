//! Before a handler starts: is there room, and does the register still want this copy?
//!
//! Claimed is only what starts at once, never what is merely prefetched, so that a crash is blamed on what really ran.

use std::sync::Arc;

use backon::BackoffBuilder;
use tokio::{
    sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{settle, work::Lane};
use crate::domain::{
    event::Event,
    register::{Claim, Claimed},
};

/// Room to run in, until it is dropped.
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    _quiet: Quiet,
}

/// What else may run in this process meanwhile.
enum Quiet {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Alone { _guard: OwnedRwLockWriteGuard<()> },
}

impl Turn {
    const fn shared(permit: OwnedSemaphorePermit, guard: OwnedRwLockReadGuard<()>) -> Self {
        Self { _permit: permit, _quiet: Quiet::Shared { _guard: guard } }
    }
}

/// How long a delivery may wait for its start.
pub(super) struct Patience {
    /// Then it is better given back before the broker takes it.
    pub(super) deadline: Instant,
    /// The consumer that it came by has ended: the broker has taken it back by itself, and delivers it again.
    pub(super) ended: CancellationToken,
}

impl Lane {
    /// Waits for room, then claims. None when the worker stops, or the patience is over.
    pub(super) async fn claim(&self, event: &Event, token: Uuid, patience: &Patience) -> Option<(Claimed, Turn)> {
        let (permit, guard) = self.room(patience).await?;
        let claimed = self.ask(event, token, patience, false).await?;
        if claimed != Claimed::Alone {
            return Some((claimed, Turn::shared(permit, guard)));
        }
        // It may have killed its worker twice. Nothing else starts from here on, and what runs is waited for.
        drop(guard);
        tracing::warn!(id = %event.id, "waiting to run by itself, for its worker died twice while it ran");
        let guard = self.unless_over(patience, Arc::clone(&self.common.quiet).write_owned()).await?;
        let claimed = self.ask(event, token, patience, true).await?;
        Some((claimed, Turn { _permit: permit, _quiet: Quiet::Alone { _guard: guard } }))
    }

    /// Waits for room alone: there is no register to ask. None when the worker stops, or the patience is over.
    pub(super) async fn turn(&self, patience: &Patience) -> Option<Turn> {
        let (permit, guard) = self.room(patience).await?;
        Some(Turn::shared(permit, guard))
    }

    async fn room(&self, patience: &Patience) -> Option<(OwnedSemaphorePermit, OwnedRwLockReadGuard<()>)> {
        let permit = self.unless_over(patience, Arc::clone(&self.permits).acquire_owned()).await?.ok()?;
        let guard = self.unless_over(patience, Arc::clone(&self.common.quiet).read_owned()).await?;
        Some((permit, guard))
    }

    async fn ask(&self, event: &Event, token: Uuid, patience: &Patience, alone: bool) -> Option<Claimed> {
        let claim = Claim {
            subject: event.subject(),
            stamp: event.stamp.clone(),
            token,
            due: event.due(),
            alone,
            terms: self.terms,
        };
        let mut waits = settle::patience().build();
        loop {
            // Never given up half-way: an unheard claim would count as a crash.
            match self.common.register.claim(claim.clone()).await {
                Ok(claimed) => return Some(claimed),
                Err(error) => {
                    self.common.register_is_away(&error);
                    let wait = tokio::time::sleep(waits.next().unwrap_or_default());
                    if self.unless_over(patience, wait).await.is_none() {
                        // It may have been heard all the same, and only the answer was lost.
                        self.release(event, &event.stamp, token).await;
                        return None;
                    }
                }
            }
        }
    }

    async fn unless_over<T>(&self, patience: &Patience, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.common.stop.cancelled() => None,
            () = patience.ended.cancelled() => None,
            () = tokio::time::sleep_until(patience.deadline) => None,
            done = wait => Some(done),
        }
    }
}
