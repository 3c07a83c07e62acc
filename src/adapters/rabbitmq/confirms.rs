//! The confirms of a connection: counts them, and detects that the broker has stopped confirming.
//!
//! A connection on which nothing is confirmed may look healthy: a node that is cut off from the majority of its cluster
//! keeps its clients. What they publish to a quorum queue is not confirmed by RabbitMQ 4.3 until the node is back, and 3.10
//! refuses all of it (measured). A single unconfirmed message proves nothing: its queue alone may be in trouble, and then
//! no node confirms it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use lapin::{Confirmation, ConnectionStatus};
use metrics::{Counter, Histogram, counter, histogram};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::meter;

/// How long the broker may confirm nothing before the connection is given up.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// The time between two looks. Silence is counted in looks, so that a program that was itself suspended gives up no
/// connection.
const LOOK: Duration = Duration::from_millis(500);

/// Tracks the publishes of one connection, and whether the broker confirms them.
pub(super) struct Confirms {
    meters: ConfirmMeters,
    /// The number of publishes that wait for a confirm.
    waiting: AtomicUsize,
    /// Whether a publish was confirmed since the last look.
    taken: AtomicBool,
    /// Whether a publish was refused, and none was confirmed since.
    refused: AtomicBool,
    silent: CancellationToken,
}

/// A publish that waits for its confirm.
pub(super) struct Waiting {
    confirms: Arc<Confirms>,
    since: Instant,
}

/// Counts the broker's answers to messages, and measures the time to a confirm.
#[derive(Clone)]
pub(super) struct ConfirmMeters {
    ack: Counter,
    nack: Counter,
    none: Counter,
    duration: Histogram,
}

impl ConfirmMeters {
    pub(super) fn new() -> Self {
        let answer = |answer: &'static str| counter!(meter::CONFIRMS, "answer" => answer);
        let duration = histogram!(meter::CONFIRM_DURATION);
        Self { ack: answer("ack"), nack: answer("nack"), none: answer("none"), duration }
    }

    pub(super) fn none() -> Self {
        let (noop, duration) = (Counter::noop, Histogram::noop());
        Self { ack: noop(), nack: noop(), none: noop(), duration }
    }
}

impl Confirms {
    pub(super) fn new(meters: ConfirmMeters) -> Arc<Self> {
        let (taken, refused) = (AtomicBool::default(), AtomicBool::default());
        Arc::new(Self { meters, waiting: AtomicUsize::default(), taken, refused, silent: CancellationToken::new() })
    }

    /// Registers a publish that begins.
    pub(super) fn begin(self: &Arc<Self>) -> Waiting {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting { confirms: Arc::clone(self), since: Instant::now() }
    }

    /// Whether the broker has confirmed nothing for [`LIMIT`].
    pub(super) fn is_silent(&self) -> bool {
        self.silent.is_cancelled()
    }

    /// Ends the wait of every publish, because the program closes the connection.
    pub(super) fn give_up(&self) {
        self.silent.cancel();
    }

    /// Starts a task that detects silence on this connection. Dropping the returned handle ends the task.
    pub(super) fn watch(self: &Arc<Self>, status: ConnectionStatus) -> AbortOnDropHandle<()> {
        let confirms = Arc::clone(self);
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut looks = interval(LOOK);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut silence = Duration::ZERO;
            while silence < LIMIT {
                looks.tick().await;
                silence = confirms.look(silence, status.blocked());
            }
            confirms.silent.cancel();
        }))
    }

    /// Returns how long the connection has been silent, given the silence at the last look. A blocked connection does
    /// not count as silent: a broker that blocks publishers confirms nothing on any node.
    fn look(&self, before: Duration, blocked: bool) -> Duration {
        if self.taken.swap(false, Ordering::Relaxed) || blocked {
            self.refused.store(false, Ordering::Relaxed);
            return Duration::ZERO;
        }
        let waits = self.waiting.load(Ordering::Relaxed) > 0;
        // A refused publish counts too, because it does not wait between two tries. A publish whose caller has stopped
        // waiting proves nothing, because nobody reads its confirm.
        if waits || self.refused.load(Ordering::Relaxed) { before + LOOK } else { Duration::ZERO }
    }
}

impl Waiting {
    /// Waits until the connection of this publish has been silent for [`LIMIT`].
    pub(super) async fn silent(&self) {
        self.confirms.silent.cancelled().await;
    }

    /// Notes the broker's answer.
    pub(super) fn answered(&self, confirmation: &Confirmation) {
        let Confirms { meters, taken, refused, .. } = &*self.confirms;
        match confirmation {
            Confirmation::Ack(_) => {
                taken.store(true, Ordering::Relaxed);
                meters.ack.increment(1);
                meters.duration.record(self.since.elapsed());
            }
            Confirmation::Nack(_) => {
                refused.store(true, Ordering::Relaxed);
                meters.nack.increment(1);
            }
            Confirmation::NotRequested => {
                refused.store(true, Ordering::Relaxed);
                meters.none.increment(1);
            }
        }
    }

    /// Notes that no answer comes, because the channel or the connection was lost. A publish that its caller drops is not counted.
    pub(super) fn unanswered(&self) {
        self.confirms.meters.none.increment(1);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.confirms.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the silence after this many looks. `happens` is called before each look, and returns whether the
    /// connection is blocked.
    fn after(looks: u32, confirms: &Arc<Confirms>, mut happens: impl FnMut(u32) -> bool) -> Duration {
        (0..looks).fold(Duration::ZERO, |silence, look| confirms.look(silence, happens(look)))
    }

    fn unblocked(_: u32) -> bool {
        false
    }

    #[test]
    fn an_idle_connection_is_not_silent() {
        let confirms = Confirms::new(ConfirmMeters::none());
        assert_eq!(after(100, &confirms, unblocked), Duration::ZERO);
        drop(confirms.begin());
        assert_eq!(after(100, &confirms, unblocked), Duration::ZERO);
    }

    #[test]
    fn a_connection_on_which_a_publish_waits_in_vain_is_silent() {
        let confirms = Confirms::new(ConfirmMeters::none());
        let _waiting = confirms.begin();
        assert_eq!(after(20, &confirms, unblocked), LIMIT);
    }

    #[test]
    fn a_connection_is_not_silent_once_a_caller_has_dropped_its_publish() {
        let confirms = Confirms::new(ConfirmMeters::none());
        let mut waiting = Some(confirms.begin());
        let dropped_after_the_first_look = |look| {
            if look == 1 {
                waiting.take();
            }
            false
        };
        assert_eq!(after(20, &confirms, dropped_after_the_first_look), Duration::ZERO);
    }

    #[test]
    fn a_connection_that_refuses_everything_is_silent() {
        let confirms = Confirms::new(ConfirmMeters::none());
        let refuse = |look| {
            if look % 8 == 0 {
                confirms.begin().answered(&Confirmation::Nack(None));
            }
            false
        };
        assert_eq!(after(20, &confirms, refuse), LIMIT);
    }

    #[test]
    fn one_confirm_ends_the_silence_of_all() {
        let confirms = Confirms::new(ConfirmMeters::none());
        let _waiting = confirms.begin();
        let confirm = |look| {
            if look == 18 {
                confirms.begin().answered(&Confirmation::Ack(None));
            }
            false
        };
        assert_eq!(after(20, &confirms, confirm), LOOK);
    }

    #[test]
    fn a_blocked_connection_is_not_silent() {
        let confirms = Confirms::new(ConfirmMeters::none());
        let _waiting = confirms.begin();
        assert_eq!(after(20, &confirms, |look| look < 18), 2 * LOOK);
    }
}
