//! After a failure, a requeue or a dead letter: publish the follow-up and wait for the confirm. The caller settles the event, and
//! only then acknowledges.
//!
//! A crash before the confirm: the delivery comes again and the handler runs again. A crash after the confirm: both the
//! delivery and its follow-up are in the broker; after *settle* the register knows the delivery as stale, before it the
//! one that is claimed first makes the other stale or runs twice at worst. Nothing is lost at any point.
//!
//! A follow-up that is larger than the broker takes never is in the broker. Then the delivery itself is all that is left: the
//! claim is released, the delivery is rejected, and the broker moves it to dead-letter as it came. The register calls it
//! neither finished nor stale, so it runs if a person replays it. A crash on either side of the release runs it once more.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    error::WorkError,
    lane::Lane,
    stage::{Claimed, Disposition, Ended},
};
use crate::{
    domain::{
        compile::BUSY,
        event::Event,
        register::{CopyVersion, DedupSlot, End, Note, Reserve, Reserved, Stage},
        settlement::{Decision, Failed},
        time,
        transition::Transition,
        wire::{Message, kept},
    },
    ports::{BrokerError, RegisterError},
    publish::send::until_confirmed,
};

/// The longest wait of a copy whose reference is busy.
const LONGEST_BUSY: Duration = Duration::from_secs(4);

/// A requeue takes at least this long.
const SOONEST: Duration = Duration::from_secs(1);

/// How late a copy may come back before a worker that stops when its queues are empty counts it as gone.
pub(super) const ON_ITS_WAY: Duration = Duration::from_secs(1);

impl Lane {
    /// Carries a decision out up to the settlement. The error says what becomes of a delivery whose event is not settled.
    pub(super) async fn end(&self, mut claimed: Claimed, decision: Decision) -> Result<Ended, (Claimed, Disposition)> {
        let last = claimed.schedule.take().map(|state| *state);
        let scheduled = self.end_scheduled(claimed.event(), &decision, last).await;
        let end = match (scheduled, &decision) {
            (Err(disposition), _) => Err(disposition),
            (Ok(()), Decision::Finish(_)) => return Ok(claimed.finished(&decision, self)),
            (Ok(()), _) => self.follow_up(&claimed, decision).await,
        };
        match end {
            Ok(end) => Ok(claimed.ended(end)),
            Err(disposition) => Err((claimed, disposition)),
        }
    }

    /// Publishes what follows from a decision, waits for the broker's confirm, and tells it. Returns the end of the run for the
    /// register.
    async fn follow_up(&self, claimed: &Claimed, decision: Decision) -> Result<End, Disposition> {
        let event = claimed.event();
        let transition = Transition::of(&decision, claimed.took, self.spec.retry.max_attempts);
        // The date says when the broker sends the copy on, whatever this machine's clock shows.
        let (now, routes) = (self.common.clock.shared(), &self.common.routes);
        let end = match decision {
            Decision::Finish(_) | Decision::Drop { .. } => End::Finished,
            Decision::Retry { ttl, failed } => {
                let copy = after_failure(event, failed);
                self.publish(|| routes.to_retry(&copy, ttl)).await?;
                copied(&copy, time::later(now, ttl.as_duration()), Stage::Retry)
            }
            Decision::RetryAfter { after, failed } => {
                let due = time::ceil_millis(time::later(now, after));
                self.raise_due(event, due).await;
                let copy = Event { nbf: Some(due), ..after_failure(event, failed) };
                self.send_on(&copy, after).await?;
                copied(&copy, due, Stage::Retry)
            }
            Decision::DeadLetter(failed) | Decision::Expire(_, failed) => {
                let copy = after_failure(event, failed);
                self.publish(|| routes.to_dead_letter(&copy)).await?;
                copied(&copy, now, Stage::DeadLetter)
            }
            Decision::Requeue { at, reason } => self.requeue(event, time::ceil_millis(at), reason).await?,
        };
        if let Some(transition) = transition {
            self.common.journal.tell(&self.counters, event, &transition);
        }
        fail_point!("work.followed-up");
        Ok(end)
    }

    /// Runs the event again later, as the handler asked. An immediate event is published like any other, into the slot of its date, where
    /// the newest of its reference counts. Any other stays in the slot that it has: dated events of a reference that are put
    /// off to one time would replace each other there, and an immediate one would replace them.
    async fn requeue(&self, event: &Event, at: Timestamp, reason: String) -> Result<End, Disposition> {
        let now = self.common.clock.shared();
        // A handler that asks for a time that is past would otherwise be run without a pause, for ever.
        let delay = time::until(now, at).max(SOONEST);
        let alone = CopyVersion::uncontested(&event.id, event.stamp.generation + 1);
        let fresh = Event {
            stamp: if self.spec.register { event.stamp.next() } else { alone.clone() },
            nbf: Some(at),
            attempts: 0,
            reason: Some(reason),
            first_failure: None,
            last_failure: None,
            ..next(event)
        };
        let competes = self.spec.register && matches!(event.stamp.slot, DedupSlot::Immediate | DedupSlot::First);
        if !competes {
            self.raise_due(event, at).await;
            self.send_on(&fresh, delay).await?;
            return Ok(copied(&fresh, at, Stage::Waiting));
        }
        let slot = DedupSlot::RequeuedAt(at.as_millisecond());
        let (fresh, is_versioned) = loop {
            let (now, left, asked) =
                (self.common.clock.now(), time::until(self.common.clock.shared(), at), Instant::now());
            let version = match self.reserve(event, slot.clone(), at, Some(event.stamp.clone())).await {
                Ok(Reserved::Version(version)) => Some(version),
                // The event was cancelled, or another run has settled it, so there is nothing to settle: the end of this run
                // would make stale what the other one has published.
                Ok(Reserved::Stale) => return Err(Disposition::Acknowledge),
                Err(error) => {
                    self.unanswered(asked, &error, &event.id, "requeued without a version: it competes with nothing");
                    self.common.health.unversioned();
                    None
                }
            };
            let stamp = match version {
                Some(version) => CopyVersion { slot: slot.clone(), version, generation: 0 },
                None => alone.clone(),
            };
            let fresh = Event { stamp, ..fresh.clone() };
            // At least a second, so that a slow register does not keep the copy from being sent.
            let limit = version.and_then(|_| time::due(now, self.terms.sendable().max(SOONEST)));
            if self.send_before(limit, &fresh, left.max(SOONEST)).await? {
                break (fresh, version.is_some());
            }
        };
        if is_versioned {
            let record = kept::record(&fresh, at, self.spec.keep_payload, self.terms);
            let asked = Instant::now();
            if let Err(error) = self.common.register.record(&[record]).await {
                self.unanswered(
                    asked,
                    &error,
                    &event.id,
                    "requeued event not recorded: an older one of its date may also run",
                );
            }
        }
        Ok(End::Finished)
    }

    /// Tells the register that a copy waits longer than the type's own delays: what makes older copies stale must outlive it.
    async fn raise_due(&self, event: &Event, due: Timestamp) {
        if !self.spec.register {
            return;
        }
        let asked = Instant::now();
        if let Err(error) = self.reserve(event, event.stamp.slot.clone(), due, None).await {
            self.unanswered(asked, &error, &event.id, "the register may forget the event before it is due");
        }
    }

    async fn reserve(
        &self,
        event: &Event,
        slot: DedupSlot,
        due: Timestamp,
        asked_by: Option<CopyVersion>,
    ) -> Result<Reserved, RegisterError> {
        let subject = event.subject();
        let reserve = Reserve { subject, slot, due, asked_by, terms: self.terms };
        let answer = self.common.register.reserve(&[reserve]).await?.pop();
        answer.ok_or_else(|| RegisterError::Refused { url: self.common.register.url(), reason: "no answer".to_owned() })
    }

    /// Publishes a copy that is due after `wait`, however late the broker takes it.
    pub(super) async fn send_on(&self, copy: &Event, wait: Duration) -> Result<(), Disposition> {
        self.send_before(None, copy, wait).await.map(drop)
    }

    /// Publishes a copy that is due after `wait`, and sends nothing after the limit: the adapter drops what its caller no longer waits for. Returns whether
    /// the broker has confirmed the copy.
    async fn send_before(&self, limit: Option<Timestamp>, copy: &Event, wait: Duration) -> Result<bool, Disposition> {
        let now = self.common.clock.now();
        let due = time::later(now, wait);
        let mut first = Some(wait);
        let sent = self.publish_if(|| {
            let now = self.common.clock.now();
            let wait = first.take().unwrap_or_else(|| time::until(now, due));
            limit.is_none_or(|limit| now <= limit).then(|| self.common.routes.to_scheduler(copy, wait))
        });
        let Some(limit) = limit else { return sent.await };
        tokio::time::timeout(time::until(now, limit), sent).await.unwrap_or(Ok(false))
    }

    /// Publishes the same copy, which is due in a moment: its reference is busy. The wait doubles from 250 ms to 4 s. If the copy
    /// is expected, a worker that stops when its queues are empty waits for it.
    pub(super) async fn send_busy(&self, event: &Event, is_expected: bool) -> Result<(), Disposition> {
        let wait = BUSY.as_duration().saturating_mul(1 << event.busy.min(8)).min(LONGEST_BUSY);
        let copy = Event { busy: event.busy.saturating_add(1), ..event.clone() };
        self.send_on(&copy, wait).await?;
        self.common.journal.tell(&self.counters, event, &Transition::PutOff);
        if is_expected {
            self.common.expect_back(wait + ON_ITS_WAY);
        }
        Ok(())
    }

    /// Publishes until the broker confirms; the message is made anew for each try. The error says what becomes of the delivery.
    pub(super) async fn publish(&self, mut message: impl FnMut() -> Message + Send) -> Result<(), Disposition> {
        self.publish_if(|| Some(message())).await.map(drop)
    }

    /// Publishes until the broker confirms, or until there is no message any more. Returns whether the broker has confirmed one.
    async fn publish_if(&self, mut message: impl FnMut() -> Option<Message> + Send) -> Result<bool, Disposition> {
        let published = until_confirmed(
            &*self.common.broker,
            &self.common.broker_outage,
            None,
            |error| !matches!(error, BrokerError::Closed | BrokerError::TooLarge { .. }),
            &mut message,
        );
        let published = tokio::select! {
            biased;
            published = published => published,
            // Given up while there is still time to release the claim: a broker that takes nothing is no crash of the event.
            // The copy may be in the broker all the same, as after a crash at this point.
            () = self.common.cannot_wait() => return Err(Disposition::GiveBack),
        };
        match published {
            Ok(is_confirmed) => Ok(is_confirmed),
            // The broker's limit was higher when the event came. The delivery is all that there is of the event.
            Err(error @ BrokerError::TooLarge { .. }) => {
                self.common.broker_outage.ends();
                let id = message().and_then(|message| message.properties.message_id);
                tracing::error!(%error, id, event_type = %self.event_type, "the event's copy is too large to publish; its delivery is rejected, and the broker dead-letters it unchanged");
                self.counters.rejected();
                Err(Disposition::Reject)
            }
            // This program has closed its connections.
            Err(error) => {
                self.common.fail(WorkError::Broker(error));
                Err(Disposition::GiveBack)
            }
        }
    }
}

/// Returns the end of a run that published this copy.
fn copied(copy: &Event, due: Timestamp, stage: Stage) -> End {
    End::Copied { due, note: Note { stage, attempts: copy.attempts, reason: copy.reason.clone() } }
}

/// Returns the event's next copy. It has waited for no reference yet, and does not expire: its event was started.
fn next(event: &Event) -> Event {
    Event { stamp: event.stamp.next(), expires: None, busy: 0, crashes: 0, ..event.clone() }
}

/// Returns the copy of an event that has failed.
fn after_failure(event: &Event, failed: Failed) -> Event {
    let mut copy = next(event);
    copy.fail(failed);
    copy
}
