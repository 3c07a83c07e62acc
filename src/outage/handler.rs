//! A handler that says that something it needs is away ([`Outcome::Unavailable`](crate::Outcome::Unavailable)): its state, its
//! log lines and its metric.
//!
//! - `hatchery_handler_unavailable{type}`: 1 while the handler is unavailable, else 0; with several workers in one process
//!   that handle the type, their number.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBackoff};
use metrics::gauge;
use tokio::{sync::watch, time::Instant};

use super::pauses::backoff;
use crate::{domain::words::EventType, meter};

/// After this long an outage counts as a long one: events that wait in this worker for its end move on, because other workers
/// may be able to handle them.
const LONG: Duration = Duration::from_secs(10);

/// The time between two log lines about outages that begin. A service of which one instance is away may be unavailable many
/// times a second.
const SELDOM: Duration = Duration::from_mins(1);

/// An outage of a handler.
#[derive(Clone, Debug)]
pub(crate) struct HandlerOutage {
    /// When the next run may start.
    pub(crate) next: Instant,
    /// When the outage is a long one.
    pub(crate) long_from: Instant,
    /// The reason that the last run gave.
    pub(crate) reason: String,
}

/// Whether a type's handler is available in this worker.
pub(crate) struct HandlerHealth {
    event_type: EventType,
    /// Whether there is an outage. Each run asks.
    is_down: watch::Sender<bool>,
    state: Mutex<HandlerState>,
}

#[derive(Default)]
struct HandlerState {
    outage: Option<Outage>,
    /// When the log last said that an outage begins.
    said: Option<Instant>,
}

struct Outage {
    since: Instant,
    /// When the next run may start.
    next: Instant,
    pauses: ExponentialBackoff,
    /// The reason that the last run gave.
    reason: String,
    is_said: bool,
}

impl HandlerHealth {
    pub(crate) fn new(event_type: EventType) -> Self {
        let health = Self { event_type, is_down: watch::Sender::new(false), state: Mutex::default() };
        health.gauge(0.0);
        health
    }

    /// Notes that a run starts. During an outage it is a probe, and the next one comes after a pause. Returns the time, by
    /// which [`available`](Self::available) knows whether the run has seen the outage.
    pub(crate) fn starts(&self) -> Instant {
        let now = Instant::now();
        if self.is_down()
            && let Some(outage) = &mut self.state().outage
        {
            outage.next = now + outage.pauses.next().unwrap_or_default();
        }
        now
    }

    /// Notes that a run found the handler unavailable.
    pub(crate) fn unavailable(&self, reason: &str) {
        let mut state = self.state();
        let event_type = &self.event_type;
        if let Some(outage) = &mut state.outage {
            reason.clone_into(&mut outage.reason);
            return tracing::debug!(%event_type, reason, "the handler is still unavailable");
        }
        let now = Instant::now();
        let is_said = state.said.is_none_or(|said| now - said >= SELDOM);
        if is_said {
            state.said = Some(now);
            tracing::warn!(%event_type, reason, "the handler is unavailable; its events wait, one at a time is tried, and no attempt is spent");
        } else {
            tracing::debug!(%event_type, reason, "the handler is unavailable");
        }
        let mut pauses = backoff().build();
        let next = now + pauses.next().unwrap_or_default();
        state.outage = Some(Outage { since: now, next, pauses, reason: reason.to_owned(), is_said });
        self.is_down.send_replace(true);
        self.gauge(1.0);
    }

    /// Notes that a run which started at `started` ended in another way. The end of a run from before the outage tells nothing.
    pub(crate) fn available(&self, started: Instant) {
        if !self.is_down() {
            return;
        }
        let mut state = self.state();
        let Some(outage) = state.outage.take_if(|outage| outage.since <= started) else { return };
        self.is_down.send_replace(false);
        self.gauge(-1.0);
        if outage.is_said {
            let lasted = outage.since.elapsed();
            tracing::warn!(event_type = %self.event_type, "the handler is available again; it was unavailable for {lasted:.1?}");
        }
    }

    /// Forgets the outage: nothing is known of the handler, because no run has tried it for long.
    pub(crate) fn forget(&self) {
        let mut state = self.state();
        let Some(outage) = state.outage.take() else { return };
        self.is_down.send_replace(false);
        self.gauge(-1.0);
        let event_type = &self.event_type;
        if outage.is_said {
            tracing::info!(%event_type, "no event came for a minute; whether the handler is available again is not known");
        }
    }

    /// Returns the present outage, if there is one.
    pub(crate) fn outage(&self) -> Option<HandlerOutage> {
        if !self.is_down() {
            return None;
        }
        let state = self.state();
        let Outage { since, next, reason, .. } = state.outage.as_ref()?;
        Some(HandlerOutage { next: *next, long_from: *since + LONG, reason: reason.clone() })
    }

    /// Returns a receiver of the beginnings and ends of outages.
    pub(crate) fn subscribe(&self) -> watch::Receiver<bool> {
        self.is_down.subscribe()
    }

    fn is_down(&self) -> bool {
        *self.is_down.borrow()
    }

    fn state(&self) -> MutexGuard<'_, HandlerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gauge(&self, by: f64) {
        gauge!(meter::HANDLER_UNAVAILABLE, "type" => self.event_type.to_string()).increment(by);
    }
}

impl Drop for HandlerHealth {
    fn drop(&mut self) {
        if self.is_down() {
            self.gauge(-1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> HandlerHealth {
        HandlerHealth::new("mail".parse().expect("a type"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_from_before_an_outage_does_not_end_it() {
        let health = health();
        let early = health.starts();
        tokio::time::sleep(Duration::from_millis(1)).await;
        health.unavailable("refused");
        health.available(early);
        assert!(health.outage().is_some());
        health.available(health.starts());
        assert!(health.outage().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_pauses_between_probes_grow_to_five_seconds_at_most() {
        let health = health();
        health.unavailable("refused");
        let mut pauses = Vec::new();
        for _ in 0..20 {
            let HandlerOutage { next, .. } = health.outage().expect("an outage");
            pauses.push(next - Instant::now());
            tokio::time::sleep_until(next).await;
            health.starts();
            health.unavailable("refused");
        }
        assert!(pauses[0] <= Duration::from_millis(200) && pauses[19] >= Duration::from_millis(2_500), "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(5)), "{pauses:?}");
    }
}
