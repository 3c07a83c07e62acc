//! The leases of the events that a worker has claimed.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::domain::{
    event::Event,
    register::{Renew, Renewed, Terms},
};

/// The leases that the worker holds, by the tokens of their claims.
#[derive(Default)]
pub(super) struct Leases {
    held: Mutex<HashMap<Uuid, Held>>,
    /// Notified when the worker holds a lease, and held none before.
    first: Notify,
}

struct Held {
    event: Arc<Event>,
    terms: Terms,
    /// When the last call that extended the lease was made.
    since: Instant,
    /// The signal of the last run, or of the wait for the next one in place.
    signal: Option<CancellationToken>,
    is_lost: bool,
    is_cancelled: Arc<AtomicBool>,
}

/// A claim of this worker. Its lease is renewed until this is dropped.
pub(super) struct Lease {
    leases: Arc<Leases>,
    pub(super) token: Uuid,
    pub(super) fence: i64,
    /// Whether a cancel has reached the event since it was claimed.
    pub(super) is_cancelled: Arc<AtomicBool>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.held().remove(&self.token);
    }
}

impl Lease {
    /// Returns a token that is cancelled when the lease is lost, or the event is cancelled. The token of the run before is not cancelled any more.
    pub(super) fn signal(&self) -> CancellationToken {
        let signal = CancellationToken::new();
        if let Some(held) = self.leases.held().get_mut(&self.token) {
            if held.is_lost || self.is_cancelled() {
                signal.cancel();
            }
            held.signal = Some(signal.clone());
        }
        signal
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }
}

impl Leases {
    fn held(&self) -> MutexGuard<'_, HashMap<Uuid, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a claim that the register has granted to a call made at `since`.
    pub(super) fn hold(
        self: &Arc<Self>,
        event: &Arc<Event>,
        terms: Terms,
        (token, fence): (Uuid, i64),
        since: Instant,
    ) -> Lease {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let held = Held {
            event: Arc::clone(event),
            terms,
            since,
            signal: None,
            is_lost: false,
            is_cancelled: Arc::clone(&is_cancelled),
        };
        let mut all = self.held();
        if all.is_empty() {
            self.first.notify_one();
        }
        all.insert(token, held);
        drop(all);
        Lease { leases: Arc::clone(self), token, fence, is_cancelled }
    }

    /// Waits until the worker holds a lease.
    pub(super) async fn any(&self) {
        while self.held().is_empty() {
            self.first.notified().await;
        }
    }

    /// Returns the renewals of the leases that were not extended for a third of their time.
    pub(super) fn due(&self) -> Vec<Renew> {
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

    /// Notes the answer to a renewal that was made at `asked`. A cancel is told to the run. A lease that is lost, or was not
    /// extended for as long as it lasts, is told to it too. Returns the event whose lease is lost by that.
    pub(super) fn renewed(&self, renew: &Renew, asked: Instant, answer: Option<Renewed>) -> Option<Arc<Event>> {
        let mut all = self.held();
        let held = all.get_mut(&renew.token)?;
        match answer {
            Some(Renewed::Held) => held.since = asked,
            Some(Renewed::Cancelled) => {
                held.since = asked;
                held.is_cancelled.store(true, Ordering::Release);
                held.signal.iter().for_each(CancellationToken::cancel);
            }
            None if held.since.elapsed() < held.terms.lease => {}
            Some(Renewed::Lost) | None => {
                held.is_lost = true;
                held.signal.iter().for_each(CancellationToken::cancel);
                return Some(Arc::clone(&held.event));
            }
        }
        None
    }
}
