//! Keeping the claim while an event runs, and letting go of it.

use std::{convert::Infallible, sync::Arc};

use backon::Retryable as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{lane::Lane, settle};
use crate::{
    domain::{
        event::Event,
        register::{CopyVersion, Release, Renew, Renewed},
        words::plain,
    },
    ports::RegisterError,
};

impl Lane {
    /// Renews it until that is dropped; `lost` is cancelled when another may have it.
    pub(super) async fn renew(&self, renew: Renew, lost: &CancellationToken) -> Infallible {
        let mut held = Instant::now();
        loop {
            tokio::time::sleep(self.terms.lease / 3).await;
            let asked = Instant::now();
            match self.common.register.renew(renew.clone()).await {
                Ok(Some(Renewed::Held)) => held = asked,
                Ok(_) => self.lose(&renew, lost),
                Err(error) => {
                    self.unanswered(asked, &error, &renew.subject.id, "the lease is not renewed");
                    if held.elapsed() >= self.terms.lease {
                        self.lose(&renew, lost);
                    }
                }
            }
        }
    }

    /// Tells the handler that another may run its reference by now.
    fn lose(&self, renew: &Renew, lost: &CancellationToken) {
        if !lost.is_cancelled() {
            tracing::warn!(id = %plain(&renew.subject.id), event_type = %self.event_type, "the lease is lost; another may run its reference by now");
            lost.cancel();
        }
    }

    /// Lets go of an event that is given back, so that its next start counts as no crash. Where Redis does not answer it is
    /// told later, beside all else, for as long as the lease may last: then the token holds nothing any more.
    pub(super) async fn release(&self, event: &Event, stamp: &CopyVersion, token: Uuid) {
        let (subject, due, terms) = (event.subject(), event.due(), self.terms);
        let release = Release { subject, stamp: stamp.clone(), token, due, terms };
        let asked = Instant::now();
        let Err(error) = self.common.register.release(release.clone()).await else { return };
        if matches!(error, RegisterError::Unreadable { .. }) {
            // Whoever mends it takes away what there was to release.
            return tracing::debug!(%error, id = %plain(&event.id), event_type = %self.event_type, "not released");
        }
        self.unanswered(asked, &error, &event.id, "not released; trying again");
        let common = Arc::clone(&self.common);
        tokio::spawn(async move {
            let telling = (|| common.register.release(release.clone())).retry(settle::backoff());
            if tokio::time::timeout(terms.lease, telling).await.is_err() {
                tracing::warn!(%error, id = %plain(&release.subject.id), "not released; its next start counts as a crash");
            }
        });
    }

    /// A question that was asked then had no answer, and that holds the event up no longer. While Redis is away that is said
    /// once, and not for each event; what it refuses otherwise may be this one thing alone.
    pub(super) fn unanswered(&self, asked: Instant, error: &RegisterError, id: &str, so: &str) {
        let event_type = &self.event_type;
        if matches!(error, RegisterError::Unreachable { .. } | RegisterError::InUse { .. }) {
            tracing::debug!(%error, id, %event_type, "{so}");
            self.common.register_is_away(asked, error);
        } else if *self.common.doubted.borrow() {
            tracing::debug!(%error, id, %event_type, "{so}");
        } else {
            tracing::warn!(%error, id, %event_type, "{so}");
        }
    }
}
