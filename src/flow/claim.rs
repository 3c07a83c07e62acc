//! Before a handler starts: is there room, and does the register still want this copy?
//!
//! Claimed is only what starts at once, never what is merely prefetched, so that a crash is blamed on what really ran.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    lane::Lane,
    quiet::{Quiet, for_a_while},
    settle,
};
use crate::{
    domain::{
        event::Event,
        register::{Claim, Claimed},
        words::{Reference, plain},
    },
    ports::RegisterError,
};

/// Room to run in.
pub(super) struct RunPermit {
    pub(super) permit: OwnedSemaphorePermit,
    pub(super) quiet: Quiet,
}

/// How long a delivery may wait for its start.
pub(super) struct StartDeadline {
    /// Then it is better given back before the broker takes it.
    pub(super) deadline: Instant,
    /// The consumer that it came by has ended: the broker has taken it back by itself, and delivers it again.
    pub(super) ended: CancellationToken,
    /// Its type is not consumed any more for now, and others wait for what was delivered of it.
    pub(super) until: CancellationToken,
}

/// What a claim came to.
#[derive(PartialEq, Eq)]
pub(super) enum ClaimReply {
    Answered(Claimed),
    /// What Redis holds of this reference was not written by the register. Whether it may run cannot be told, so it waits as if
    /// its reference were busy: by way of the busy hatchery it is neither lost nor counted by RabbitMQ as given back, and
    /// comes again once it is mended.
    Unreadable,
}

impl ClaimReply {
    /// Whether the delivery is acknowledged without a copy.
    pub(super) fn is_dropped(&self) -> bool {
        matches!(self, Self::Answered(Claimed::Stale | Claimed::Replaced))
    }
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
    pub(super) async fn claim_soon(
        &self,
        event: &Event,
        backoff: &StartDeadline,
    ) -> Option<(ClaimReply, Uuid, RunPermit)> {
        let first = self.claim(event, backoff, event.busy).await?;
        if first.0 != ClaimReply::Answered(Claimed::Busy) {
            return Some(first);
        }
        // One that waits holds a place of the prefetch: events of other references must not wait behind it for long.
        let Ok(_place) = self.busy.try_acquire() else { return Some(first) };
        drop(first);
        let end = Instant::now() + IN_MEMORY;
        let mut pauses = looks().build();
        loop {
            let next = Instant::now() + pauses.next().unwrap_or_default();
            self.unless_over(backoff, tokio::time::sleep_until(next.min(end))).await?;
            let again = self.claim(event, backoff, event.busy).await?;
            if again.0 != ClaimReply::Answered(Claimed::Busy) || Instant::now() >= end {
                return Some(again);
            }
        }
    }

    /// The same for a lane that keeps order: it waits as long as its patience lasts, for whatever comes next waits behind it.
    pub(super) async fn claim_in_place(
        &self,
        event: &Event,
        backoff: &StartDeadline,
    ) -> Option<(Claimed, Uuid, RunPermit)> {
        let (mut looks, mut pauses, mut unread) = (looks().build(), settle::backoff().build(), 0);
        loop {
            let (asked, token, turn) = self.claim(event, backoff, unread).await?;
            let pause = match asked {
                ClaimReply::Answered(Claimed::Busy) => looks.next(),
                ClaimReply::Unreadable => {
                    unread += 1;
                    pauses.next()
                }
                ClaimReply::Answered(claimed) => return Some((claimed, token, turn)),
            };
            drop(turn);
            self.unless_over(backoff, tokio::time::sleep(pause.unwrap_or_default())).await?;
        }
    }

    /// Waits for room, then claims, with a token of its own; so often before it could not be read, or was busy. None when the
    /// worker stops, or the patience is over.
    async fn claim(
        &self,
        event: &Event,
        backoff: &StartDeadline,
        before: u32,
    ) -> Option<(ClaimReply, Uuid, RunPermit)> {
        let permit = self.permit(backoff).await?;
        let quietness = &self.common.quiet;
        // Who keeps order puts nothing aside, however often its worker has died.
        let in_order = self.spec.keeps_order();
        let (asked, token, quiet) = self.ask(event, in_order, backoff, before, || quietness.shared()).await?;
        if asked != ClaimReply::Answered(Claimed::Alone) {
            return Some((asked, token, RunPermit { permit, quiet }));
        }
        // It may have killed its worker twice.
        drop(quiet);
        tracing::warn!(id = %plain(&event.id), "waiting to run by itself, for its worker died twice while it ran");
        let (asked, token, quiet) = self.ask(event, true, backoff, before, || quietness.alone()).await?;
        Some((asked, token, RunPermit { permit, quiet }))
    }

    /// Waits for room alone: there is no register to ask. None when the worker stops, or the patience is over.
    pub(super) async fn turn(&self, backoff: &StartDeadline) -> Option<RunPermit> {
        let permit = self.permit(backoff).await?;
        let quiet = self.unless_over(backoff, self.common.quiet.shared()).await?;
        Some(RunPermit { permit, quiet })
    }

    async fn permit(&self, backoff: &StartDeadline) -> Option<OwnedSemaphorePermit> {
        self.unless_over(backoff, Arc::clone(&self.permits).acquire_owned()).await?.ok()
    }

    /// Claims while it is as quiet as that. Where Redis is away for longer than others are kept from starting for it, it begins
    /// anew as soon as Redis answers: what is claimed must not wait for others to end, or its lease ends first.
    async fn ask<Q: Future<Output = Quiet>>(
        &self,
        event: &Event,
        alone: bool,
        backoff: &StartDeadline,
        before: u32,
        quiet: impl Fn() -> Q,
    ) -> Option<(ClaimReply, Uuid, Quiet)> {
        loop {
            let quiet = self.unless_over(backoff, quiet()).await?;
            let token = Uuid::now_v7();
            let claim = Claim {
                subject: event.subject(),
                stamp: event.stamp.clone(),
                token,
                due: event.due(),
                alone,
                terms: self.terms,
            };
            let (asked, quiet) = for_a_while(Some(quiet), self.until_answered(event, claim, backoff, before)).await;
            let asked = asked?;
            if let Some(quiet) = quiet {
                return Some((asked, token, quiet));
            }
            self.release(event, &event.stamp, token).await;
        }
    }

    /// None when the worker stops, or the patience is over: then nothing is claimed.
    async fn until_answered(
        &self,
        event: &Event,
        claim: Claim,
        backoff: &StartDeadline,
        before: u32,
    ) -> Option<ClaimReply> {
        let token = claim.token;
        let (register, mut waits) = (&self.common.register, settle::backoff().build());
        loop {
            let asked = Instant::now();
            // Never given up half-way: an unheard claim would count as a crash.
            let error = match register.claim(claim.clone()).await {
                Ok(claimed) => {
                    self.common.register_answers(asked);
                    return Some(ClaimReply::Answered(claimed));
                }
                // It is about this one, unless a ping cannot be answered either.
                Err(error @ RegisterError::Unreadable { .. }) => match register.ping().await {
                    Ok(()) => {
                        self.common.register_answers(asked);
                        self.leave_unread(event, token, &error, before).await;
                        return Some(ClaimReply::Unreadable);
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            self.common.register_is_away(asked, &error);
            let wait = tokio::time::sleep(waits.next().unwrap_or_default());
            if self.unless_over(backoff, wait).await.is_none() {
                // It may have been heard all the same, and only the answer was lost.
                self.release(event, &event.stamp, token).await;
                return None;
            }
        }
    }

    /// Says which event it is, less and less often while it comes again, and takes back what its claim has come to.
    async fn leave_unread(&self, event: &Event, token: Uuid, error: &RegisterError, before: u32) {
        if before == 0 || before.is_power_of_two() {
            let (id, event_type, reference) =
                (&event.id, &self.event_type, event.reference.as_ref().map(Reference::as_str));
            tracing::error!(%error, id, %event_type, reference, "it is not started until that key is deleted or mended");
        }
        self.release(event, &event.stamp, token).await;
    }

    /// What this waits for. None when the worker stops, or the patience is over.
    pub(super) async fn unless_over<T>(&self, backoff: &StartDeadline, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.common.stop.cancelled() => None,
            () = backoff.ended.cancelled() => None,
            () = tokio::time::sleep_until(backoff.deadline) => None,
            done = wait => Some(done),
        }
    }
}
