//! The leases of the events that a worker has claimed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
    /// The token of the last run.
    run: Option<CancellationToken>,
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
            held.run = Some(run.clone());
        }
        run
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
        let held = Held { event: Arc::clone(event), terms, since, run: None, is_lost: false };
        let mut all = self.held();
        if all.is_empty() {
            self.first.notify_one();
        }
        all.insert(token, held);
        drop(all);
        Lease { leases: Arc::clone(self), token, fence }
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

    /// Notes the answer to a renewal that was made at `asked`. A lease that is lost, or was not extended for as long as it
    /// lasts, ends its run. Returns the event whose lease is lost by that.
    pub(super) fn renewed(&self, renew: &Renew, asked: Instant, answer: Option<Renewed>) -> Option<Arc<Event>> {
        let mut all = self.held();
        let held = all.get_mut(&renew.token)?;
        match answer {
            Some(Renewed::Held) => held.since = asked,
            None if held.since.elapsed() < held.terms.lease => {}
            Some(Renewed::Lost) | None => {
                held.is_lost = true;
                held.run.iter().for_each(CancellationToken::cancel);
                return Some(Arc::clone(&held.event));
            }
        }
        None
    }
}
