//! The leases of the events that a worker has claimed: one task renews all of them, in one call.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use backon::Retryable as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{common::Common, lane::Lane};
use crate::{
    domain::{
        event::Event,
        register::{CopyVersion, Release, Renew, Renewed, Terms},
        words::plain,
    },
    outage::{Health, backoff},
    ports::RegisterError,
};

/// The most leases that one call renews.
const LARGEST: usize = 256;

/// The leases that the worker holds, by the tokens of their claims.
#[derive(Default)]
pub(super) struct Leases(Mutex<HashMap<Uuid, Held>>);

struct Held {
    event: Arc<Event>,
    terms: Terms,
    /// When the last call that extended the lease was made.
    since: Instant,
    /// The token of the run, if one is under way.
    run: CancellationToken,
    is_lost: bool,
}

/// A claim of this worker. Its lease is renewed until this is dropped.
pub(super) struct Lease {
    leases: Arc<Leases>,
    pub(super) token: Uuid,
    pub(super) fence: i64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.held().remove(&self.token);
    }
}

impl Lease {
    /// Returns the token of another run under this lease.
    pub(super) fn begin_run(&self) -> CancellationToken {
        let run = CancellationToken::new();
        if let Some(held) = self.leases.held().get_mut(&self.token) {
            if held.is_lost {
                run.cancel();
            }
            held.run = run.clone();
        }
        run
    }
}

impl Leases {
    fn held(&self) -> MutexGuard<'_, HashMap<Uuid, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a claim that the register has granted to a call made at `since`.
    pub(super) fn hold(
        self: &Arc<Self>,
        event: &Arc<Event>,
        terms: Terms,
        (token, fence): (Uuid, i64),
        since: Instant,
    ) -> Lease {
        let held = Held { event: Arc::clone(event), terms, since, run: CancellationToken::new(), is_lost: false };
        self.held().insert(token, held);
        Lease { leases: Arc::clone(self), token, fence }
    }

    /// Returns the renewals of the leases that were not extended for a third of their time.
    fn due(&self) -> Vec<Renew> {
        let held = self.held();
        let due = held.iter().filter(|(_, held)| !held.is_lost && held.since.elapsed() >= held.terms.lease / 3);
        due.map(|(token, held)| Renew {
            subject: held.event.subject(),
            stamp: held.event.stamp.clone(),
            token: *token,
            due: held.event.due(),
            terms: held.terms,
        })
        .collect()
    }

    /// Notes the answer to a renewal that was made at `asked`. A lease that is lost, or was not extended for as long as it
    /// lasts, ends its run.
    fn renewed(&self, renew: &Renew, asked: Instant, answer: Option<Renewed>) {
        let mut all = self.held();
        let Some(held) = all.get_mut(&renew.token) else { return };
        match answer {
            Some(Renewed::Held) => held.since = asked,
            None if held.since.elapsed() < held.terms.lease => {}
            Some(Renewed::Lost) | None => {
                tracing::warn!(
                    id = %plain(&renew.subject.id), event_type = %renew.subject.event_type,
                    "the lease is lost; another worker may run an event of its reference by now"
                );
                held.is_lost = true;
                held.run.cancel();
            }
        }
    }
}

/// Renews the leases of a worker, until it is dropped.
pub(super) async fn renew(common: &Common) {
    let leases = common.topology.types.values().map(|spec| spec.terms(&common.topology.redis).lease);
    // A lease is renewed when between a third and half of its time is over.
    let mut ticks = tokio::time::interval(leases.min().unwrap_or(Duration::from_secs(6)) / 6);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for batch in common.leases.due().chunks(LARGEST) {
            let asked = Instant::now();
            match common.register.renew(batch).await {
                Ok(answers) => {
                    for (renew, answer) in batch.iter().zip(answers) {
                        common.leases.renewed(renew, asked, Some(answer));
                    }
                }
                Err(error) => {
                    common.log_unanswered(asked, &error, &batch[0], "the lease is not renewed");
                    for renew in batch {
                        common.leases.renewed(renew, asked, None);
                    }
                }
            }
        }
    }
}

impl Common {
    fn log_unanswered(&self, asked: Instant, error: &RegisterError, renew: &Renew, consequence: &str) {
        self.unanswered(asked, error, (&renew.subject.id, renew.subject.event_type.as_str()), consequence);
    }

    /// Notes a call that had no answer, and that holds its event up no longer. An outage is logged once, and not for each
    /// event. Another refusal may concern this event alone.
    pub(super) fn unanswered(
        &self,
        asked: Instant,
        error: &RegisterError,
        (id, event_type): (&str, &str),
        consequence: &str,
    ) {
        if matches!(error, RegisterError::Unreachable { .. } | RegisterError::InUse { .. }) {
            tracing::debug!(%error, id, %event_type, "{consequence}");
            self.register_failed(asked, error);
        } else if self.health.now() == Health::Up {
            tracing::warn!(%error, id, %event_type, "{consequence}");
        } else {
            tracing::debug!(%error, id, %event_type, "{consequence}");
        }
    }
}

impl Lane {
    /// Releases a claim whose event is given back, so that its next start does not count as a crash. If Redis does not
    /// answer, a task of its own tries again for as long as the lease may last: then the token holds nothing any more.
    pub(super) async fn release(&self, event: &Event, stamp: &CopyVersion, token: Uuid) {
        let (subject, due, terms) = (event.subject(), event.due(), self.terms);
        let release = Release { subject, stamp: stamp.clone(), token, due, terms };
        let asked = Instant::now();
        let Err(error) = self.common.register.release(std::slice::from_ref(&release)).await else { return };
        if matches!(error, RegisterError::Unreadable { .. }) {
            // Whoever mends the key removes the claim with it.
            return tracing::debug!(%error, id = %plain(&event.id), event_type = %self.event_type, "not released");
        }
        self.unanswered(asked, &error, &event.id, "not released; trying again");
        let common = Arc::clone(&self.common);
        tokio::spawn(async move {
            let releasing = (|| common.register.release(std::slice::from_ref(&release))).retry(backoff());
            if tokio::time::timeout(terms.lease, releasing).await.is_err() {
                tracing::warn!(%error, id = %plain(&release.subject.id), "not released; its next start counts as a crash");
            }
        });
    }

    /// Notes a call about an event that had no answer, and that holds the event up no longer.
    pub(super) fn unanswered(&self, asked: Instant, error: &RegisterError, id: &str, consequence: &str) {
        self.common.unanswered(asked, error, (id, self.event_type.as_str()), consequence);
    }
}
