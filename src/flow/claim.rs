//! Before a handler starts: is there room, and does the register still want this copy?
//!
//! Claimed is only what starts at once, never what is merely prefetched, so that a crash is blamed on what really ran.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::{
    sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{settle, work::Lane};
use crate::{
    domain::{
        event::Event,
        register::{Claim, Claimed, Release},
        words::Reference,
    },
    ports::RegisterError,
};

/// Room to run in, until it is dropped.
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    quiet: Option<Quiet>,
}

/// What else may run in this process meanwhile.
pub(super) enum Quiet {
    /// Whatever else has a turn.
    Shared { _guard: OwnedRwLockReadGuard<()> },
    /// Nothing: it may kill its worker.
    Alone { guard: OwnedRwLockWriteGuard<()> },
}

impl Turn {
    const fn shared(permit: OwnedSemaphorePermit, guard: OwnedRwLockReadGuard<()>) -> Self {
        Self { _permit: permit, quiet: Some(Quiet::Shared { _guard: guard }) }
    }

    const fn alone(permit: OwnedSemaphorePermit, guard: OwnedRwLockWriteGuard<()>) -> Self {
        Self { _permit: permit, quiet: Some(Quiet::Alone { guard }) }
    }

    /// Its handler has ended, and can kill nothing any more. Until the event is settled others may run again: that may take
    /// as long as Redis is away, and not every type needs Redis.
    pub(super) fn decided(&mut self) {
        self.quiet = self.quiet.take().map(|quiet| match quiet {
            Quiet::Alone { guard } => Quiet::Shared { _guard: guard.downgrade() },
            shared @ Quiet::Shared { .. } => shared,
        });
    }

    /// It keeps its room and nothing else: it may last for ever. What it kept from running starts when this is dropped.
    pub(super) fn leave_quiet(&mut self) -> Option<Quiet> {
        self.quiet.take()
    }
}

/// How long a delivery may wait for its start.
pub(super) struct Patience {
    /// Then it is better given back before the broker takes it.
    pub(super) deadline: Instant,
    /// The consumer that it came by has ended: the broker has taken it back by itself, and delivers it again.
    pub(super) ended: CancellationToken,
}

/// What a claim came to.
#[derive(PartialEq, Eq)]
pub(super) enum Asked {
    Answered(Claimed),
    /// What Redis holds of this reference was not written by the register. Whether it may run cannot be told, so it waits as if
    /// its reference were busy: by way of the busy hatchery it is neither lost nor counted by RabbitMQ as given back, and
    /// comes again once it is mended.
    Unreadable,
}

/// An event whose reference is busy waits so long in memory at most, before it goes by way of the busy hatchery.
const IN_MEMORY: Duration = Duration::from_secs(1);

/// The pauses between two questions whether a reference is still busy.
fn looks() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(25))
        .with_max_delay(Duration::from_millis(200))
        .without_max_times()
        .with_jitter()
}

impl Lane {
    /// Waits for room, then claims; where its reference is busy, again for a moment. None when the worker stops, or the
    /// patience is over.
    pub(super) async fn claim_soon(&self, event: &Event, token: Uuid, patience: &Patience) -> Option<(Asked, Turn)> {
        let (first, turn) = self.claim(event, token, patience).await?;
        if first != Asked::Answered(Claimed::Busy) {
            return Some((first, turn));
        }
        // One that waits holds a place of the prefetch: events of other references must not wait behind it for long.
        let Ok(_place) = self.busy.try_acquire() else { return Some((first, turn)) };
        drop(turn);
        let end = Instant::now() + IN_MEMORY;
        let mut pauses = looks().build();
        loop {
            let next = Instant::now() + pauses.next().unwrap_or_default();
            self.unless_over(patience, tokio::time::sleep_until(next.min(end))).await?;
            let (asked, turn) = self.claim(event, token, patience).await?;
            if asked != Asked::Answered(Claimed::Busy) || Instant::now() >= end {
                return Some((asked, turn));
            }
        }
    }

    /// The same for a lane that keeps order: it waits as long as its patience lasts, for whatever comes next waits behind it.
    pub(super) async fn claim_in_place(
        &self,
        event: &Event,
        token: Uuid,
        patience: &Patience,
    ) -> Option<(Claimed, Turn)> {
        let (mut looks, mut pauses) = (looks().build(), settle::patience().build());
        loop {
            let (asked, turn) = self.claim(event, token, patience).await?;
            let pause = match asked {
                Asked::Answered(Claimed::Busy) => looks.next(),
                Asked::Unreadable => pauses.next(),
                Asked::Answered(claimed) => return Some((claimed, turn)),
            };
            drop(turn);
            self.unless_over(patience, tokio::time::sleep(pause.unwrap_or_default())).await?;
        }
    }

    /// Waits for room, then claims. None when the worker stops, or the patience is over.
    async fn claim(&self, event: &Event, token: Uuid, patience: &Patience) -> Option<(Asked, Turn)> {
        let (permit, guard) = self.room(patience).await?;
        // Who keeps order puts nothing aside, however often its worker has died.
        let asked = self.ask(event, token, patience, self.spec.keeps_order()).await?;
        if asked != Asked::Answered(Claimed::Alone) {
            return Some((asked, Turn::shared(permit, guard)));
        }
        // It may have killed its worker twice. Nothing else starts from here on, and what runs is waited for.
        drop(guard);
        tracing::warn!(id = %event.id, "waiting to run by itself, for its worker died twice while it ran");
        let guard = self.unless_over(patience, Arc::clone(&self.common.quiet).write_owned()).await?;
        let asked = self.ask(event, token, patience, true).await?;
        Some((asked, Turn::alone(permit, guard)))
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

    async fn ask(&self, event: &Event, token: Uuid, patience: &Patience, alone: bool) -> Option<Asked> {
        let claim = Claim {
            subject: event.subject(),
            stamp: event.stamp.clone(),
            token,
            due: event.due(),
            alone,
            terms: self.terms,
        };
        let (register, mut waits) = (&self.common.register, settle::patience().build());
        loop {
            let asked = Instant::now();
            // Never given up half-way: an unheard claim would count as a crash.
            let error = match register.claim(claim.clone()).await {
                Ok(claimed) => {
                    self.common.register_answers(asked);
                    return Some(Asked::Answered(claimed));
                }
                // It is about this one, unless a ping cannot be answered either.
                Err(error @ RegisterError::Unreadable { .. }) => match register.ping().await {
                    Ok(()) => {
                        self.common.register_answers(asked);
                        self.leave_unread(event, token, &error).await;
                        return Some(Asked::Unreadable);
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            self.common.register_is_away(asked, &error);
            let wait = tokio::time::sleep(waits.next().unwrap_or_default());
            if self.unless_over(patience, wait).await.is_none() {
                // It may have been heard all the same, and only the answer was lost.
                self.release(event, &event.stamp, token).await;
                return None;
            }
        }
    }

    /// Says which event it is, less and less often while it goes round, and takes back what its claim has come to.
    async fn leave_unread(&self, event: &Event, token: Uuid, error: &RegisterError) {
        if event.busy == 0 || event.busy.is_power_of_two() {
            let (id, event_type, reference) =
                (&event.id, &self.event_type, event.reference.as_ref().map(Reference::as_str));
            tracing::error!(%error, id, %event_type, reference, "it is not started until that key is deleted or mended");
        }
        let release = Release {
            subject: event.subject(),
            stamp: event.stamp.clone(),
            token,
            due: event.due(),
            terms: self.terms,
        };
        // Where it says no once more there is most likely nothing to take back.
        drop(self.common.register.release(release).await);
    }

    /// What this waits for. None when the worker stops, or the patience is over.
    pub(super) async fn unless_over<T>(&self, patience: &Patience, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.common.stop.cancelled() => None,
            () = patience.ended.cancelled() => None,
            () = tokio::time::sleep_until(patience.deadline) => None,
            done = wait => Some(done),
        }
    }
}
