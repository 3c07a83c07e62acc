//! Before a handler starts: is there room, and does the register still want this copy?
//!
//! Claimed is only what starts at once, never what is merely prefetched, so that a crash is blamed on what really ran.

use std::sync::Arc;

use backon::BackoffBuilder;
use tokio::{
    sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit},
    time::Instant,
};
use uuid::Uuid;

use super::{settle::patience, work::Lane};
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

impl Lane {
    /// Waits for room, then claims. None when the worker stops, or the wait has become so long that the delivery is
    /// better given back before the broker takes it.
    pub(super) async fn claim(&self, event: &Event, token: Uuid, deadline: Instant) -> Option<(Claimed, Turn)> {
        let permit = self.unless_stopped(deadline, Arc::clone(&self.permits).acquire_owned()).await?.ok()?;
        let guard = self.unless_stopped(deadline, Arc::clone(&self.common.quiet).read_owned()).await?;
        let claimed = self.ask(event, token, deadline, false).await?;
        if claimed != Claimed::Alone {
            return Some((claimed, Turn { _permit: permit, _quiet: Quiet::Shared { _guard: guard } }));
        }
        // It may have killed its worker twice. Nothing else starts from here on, and what runs is waited for.
        drop(guard);
        tracing::warn!(id = %event.id, "waiting to run by itself, for its worker died twice while it ran");
        let guard = self.unless_stopped(deadline, Arc::clone(&self.common.quiet).write_owned()).await?;
        let claimed = self.ask(event, token, deadline, true).await?;
        Some((claimed, Turn { _permit: permit, _quiet: Quiet::Alone { _guard: guard } }))
    }

    async fn ask(&self, event: &Event, token: Uuid, deadline: Instant, alone: bool) -> Option<Claimed> {
        let claim = Claim {
            subject: event.subject(),
            stamp: event.stamp.clone(),
            token,
            due: event.due(),
            alone,
            terms: self.terms,
        };
        let mut waits = patience().build();
        loop {
            // Never given up half-way: an unheard claim would count as a crash.
            match self.common.register.claim(claim.clone()).await {
                Ok(claimed) => return Some(claimed),
                Err(error) => {
                    let wait = waits.next().unwrap_or_default();
                    tracing::warn!(%error, event_type = %self.event_type, "no event is started; asking again in {wait:?}");
                    self.unless_stopped(deadline, tokio::time::sleep(wait)).await?;
                }
            }
        }
    }

    async fn unless_stopped<T>(&self, deadline: Instant, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.common.stop.cancelled() => None,
            () = tokio::time::sleep_until(deadline) => None,
            done = wait => Some(done),
        }
    }
}
