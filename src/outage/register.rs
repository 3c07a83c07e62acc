//! A register that does not answer: its state, its log lines (one for an outage, not one for an event) and its metrics.
//!
//! - `hatchery_register_state{state, side}`: 1 while the register is in this state, as the publishers (`side="publisher"`)
//!   or the workers of this process see it, else 0.
//! - `hatchery_register_errors_total{state, side}`: calls that had no answer.
//! - `hatchery_published_unversioned_total{side}`: events that compete with nothing, because the register gave no version.
//! - `hatchery_register_emptied_total{side}`: how often a call found that data which this process had seen was gone.

use std::{sync::Arc, time::Duration};

use metrics::{counter, gauge};
use tokio::{sync::watch, time::Instant};

use super::reminder::{REFUSED, Reminder};
use crate::{
    domain::trouble::Trouble,
    meter,
    ports::{Register, RegisterError},
};

/// A publisher ends an outage after this long without a failed call. While one master of a Cluster is down, calls to the
/// others succeed in between.
const CALM: Duration = Duration::from_secs(5);

/// Whose call had no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Publisher,
    Worker,
}

impl Side {
    const fn label(self) -> &'static str {
        match self {
            Self::Publisher => "publisher",
            Self::Worker => "worker",
        }
    }

    /// Returns what this side does during an outage, for the log.
    const fn meanwhile(self) -> &'static str {
        match self {
            Self::Publisher => {
                "events are published without a version and compete with nothing, and lists may lack them"
            }
            Self::Worker => {
                "no event of a type that needs it is started, and what has not started goes back to its queue"
            }
        }
    }

    fn gauge(self, trouble: Trouble, by: f64) {
        gauge!(meter::REGISTER_STATE, "state" => trouble.label(), "side" => self.label()).increment(by);
    }
}

/// Whether the register answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The register answers.
    Up,
    /// The register did not answer the last call.
    Down,
    /// The register answers pings again, and has answered no call about an event since.
    Probing,
}

/// The health of the register, as a publisher or a worker knows it.
pub(crate) struct RegisterHealth {
    side: Side,
    register: Arc<dyn Register>,
    known: watch::Sender<OutageHistory>,
}

/// The outage, if there is one. [`OutageHistory::health`] and the gauge follow from it.
#[derive(Default)]
pub(crate) struct OutageHistory {
    /// The present outage.
    outage: Option<Outage>,
    /// When the last outage ended.
    over: Option<Instant>,
}

struct Outage {
    since: Instant,
    /// When the latest call that failed was made.
    failed: Instant,
    /// Every cause so far, the present one last.
    causes: Vec<Trouble>,
    /// When it was last said what is wrong.
    refused: Reminder,
    /// The number of events that were published without a version.
    unversioned: u64,
    /// When every shard answered a ping. Cleared by a later failure.
    there: Option<Instant>,
    /// Whether a call about an event has succeeded since; for a publisher, for [`CALM`].
    is_proven: bool,
}

impl OutageHistory {
    pub(crate) fn health(&self) -> Health {
        match &self.outage {
            None => Health::Up,
            Some(Outage { there: None, .. }) => Health::Down,
            Some(_) => Health::Probing,
        }
    }

    /// Returns the cause that the gauge shows. A worker's gauge ends with the first ping: a worker without events makes no
    /// other call.
    fn shown(&self, side: Side) -> Option<Trouble> {
        let is_shown = |outage: &&Outage| side == Side::Publisher || outage.there.is_none();
        self.outage.as_ref().filter(is_shown)?.causes.last().copied()
    }

    /// Ends the outage if Redis answers pings and a call about an event.
    fn end(&mut self, side: Side) {
        let Some(outage) = self.outage.take_if(|outage| outage.is_proven && outage.there.is_some()) else { return };
        self.over = Some(Instant::now());
        let there = outage.there.unwrap_or_else(Instant::now);
        let causes = outage.causes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let (lasted, unversioned) = (there.duration_since(outage.since), outage.unversioned);
        if side == Side::Worker && unversioned == 0 {
            tracing::warn!("Redis answers again; it was {causes} for {lasted:.1?}");
        } else {
            tracing::warn!(
                unversioned,
                "Redis answers again; it was {causes} for {lasted:.1?}, in which {unversioned} events were published \
                 without a version"
            );
        }
    }
}

impl RegisterHealth {
    pub(crate) fn new(side: Side, register: Arc<dyn Register>) -> Self {
        // The metrics show 0 from the start.
        for trouble in Trouble::ALL {
            side.gauge(trouble, 0.0);
            counter!(meter::REGISTER_ERRORS, "state" => trouble.label(), "side" => side.label()).increment(0);
        }
        counter!(meter::UNVERSIONED, "side" => side.label()).increment(0);
        counter!(meter::REGISTER_EMPTIED, "side" => side.label()).increment(0);
        Self { side, register, known: watch::Sender::new(OutageHistory::default()) }
    }

    /// Counts how often the register was found emptied. Any call may be the first to find it.
    pub(crate) fn count_emptied(&self) {
        let times = self.register.times_emptied();
        if times > 0 {
            counter!(meter::REGISTER_EMPTIED, "side" => self.side.label()).increment(times);
        }
    }

    /// Notes that a call made at `asked` failed. Returns false if a later call has succeeded.
    pub(crate) fn failed(&self, asked: Instant, error: &RegisterError) -> bool {
        self.count_emptied();
        let (trouble, meanwhile) = (error.trouble(), self.side.meanwhile());
        counter!(meter::REGISTER_ERRORS, "state" => trouble.label(), "side" => self.side.label()).increment(1);
        self.change(|known| {
            let answered = known.outage.as_ref().map_or(known.over, |outage| outage.there);
            if answered.is_some_and(|answered| asked < answered) {
                return false;
            }
            let outage = known.outage.get_or_insert_with(|| {
                tracing::warn!(state = trouble.label(), "{error}; until it answers, {meanwhile}");
                let (since, causes, refused) = (Instant::now(), vec![trouble], Reminder::begun());
                Outage { since, failed: asked, causes, refused, unversioned: 0, there: None, is_proven: false }
            });
            // Each cause is logged once: during a fail-over two causes may alternate.
            if !outage.causes.contains(&trouble) {
                let after = outage.since.elapsed();
                tracing::warn!(state = trouble.label(), "{error}; it has not answered for {after:.1?}");
            }
            if trouble == Trouble::Refusing && outage.refused.is_due() {
                tracing::warn!(state = trouble.label(), "{error}; it still refuses, and {meanwhile}: {REFUSED}");
            }
            outage.causes.retain(|cause| *cause != trouble);
            outage.causes.push(trouble);
            outage.failed = outage.failed.max(asked);
            (outage.there, outage.is_proven) = (None, false);
            true
        })
    }

    /// Counts an event that is published without a version.
    pub(crate) fn unversioned(&self) {
        counter!(meter::UNVERSIONED, "side" => self.side.label()).increment(1);
        self.change(|known| known.outage.iter_mut().for_each(|outage| outage.unversioned += 1));
    }

    /// Notes that all shards answered a ping sent at `asked`. Returns false if a later call has failed.
    pub(crate) fn is_there(&self, asked: Instant) -> bool {
        self.change(|known| {
            let Some(outage) = &mut known.outage else { return true };
            if asked < outage.failed {
                return false;
            }
            outage.there.get_or_insert_with(Instant::now);
            known.end(self.side);
            true
        })
    }

    /// Notes that a call about an event, made at `asked`, succeeded.
    pub(crate) fn answered(&self, asked: Instant) {
        self.count_emptied();
        if self.now() == Health::Up {
            return;
        }
        self.change(|known| {
            let Some(outage) = known.outage.as_mut().filter(|outage| outage.failed < asked) else { return };
            outage.is_proven = match self.side {
                Side::Worker => true,
                // A publisher sends no pings, so a success counts as one.
                Side::Publisher => outage.there.get_or_insert_with(Instant::now).elapsed() >= CALM,
            };
            known.end(self.side);
        });
    }

    /// Returns the state.
    pub(crate) fn now(&self) -> Health {
        self.known.borrow().health()
    }

    /// Returns a receiver of the state's changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<OutageHistory> {
        self.known.subscribe()
    }

    /// Changes what is known, and the gauge with it. Wakes the receivers if the state has changed.
    fn change<T>(&self, change: impl FnOnce(&mut OutageHistory) -> T) -> T {
        let mut answer = None;
        self.known.send_if_modified(|known| {
            let (health, shown) = (known.health(), known.shown(self.side));
            answer = Some(change(known));
            self.show(shown, known.shown(self.side));
            known.health() != health
        });
        answer.expect("the change was made")
    }

    fn show(&self, before: Option<Trouble>, now: Option<Trouble>) {
        if before != now {
            before.inspect(|before| self.side.gauge(*before, -1.0));
            now.inspect(|now| self.side.gauge(*now, 1.0));
        }
    }
}

impl Drop for RegisterHealth {
    fn drop(&mut self) {
        self.show(self.known.borrow().shown(self.side), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{clock::SystemClock, memory::MemoryRegister};

    fn health(side: Side) -> RegisterHealth {
        RegisterHealth::new(side, Arc::new(MemoryRegister::new(Arc::new(SystemClock), Duration::ZERO)))
    }

    fn gone() -> RegisterError {
        RegisterError::Unreachable { url: "redis".into(), trouble: Trouble::Away, reason: "gone".into() }
    }

    async fn in_a_moment() -> Instant {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_a_worker_ends_when_redis_answers_a_ping_and_a_call_about_an_event() {
        let outage = health(Side::Worker);
        let first = Instant::now();
        assert!(outage.failed(in_a_moment().await, &gone()));
        assert!(!outage.is_there(first), "a ping from before the failure");
        outage.answered(first);
        assert!(outage.is_there(in_a_moment().await));
        assert_eq!(outage.now(), Health::Probing);
        outage.answered(in_a_moment().await);
        assert_eq!(outage.now(), Health::Up);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_one_master_ends_no_outage_before_all_masters_answer_a_ping() {
        let outage = health(Side::Worker);
        assert!(outage.failed(in_a_moment().await, &gone()));
        outage.answered(in_a_moment().await);
        assert_eq!(outage.now(), Health::Down);
        assert!(outage.is_there(in_a_moment().await));
        assert_eq!(outage.now(), Health::Up, "a call about an event has succeeded already");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_while_probing_continues_the_outage() {
        let outage = health(Side::Worker);
        assert!(outage.failed(in_a_moment().await, &gone()));
        let late = Instant::now();
        assert!(outage.is_there(in_a_moment().await));
        assert!(!outage.failed(late, &gone()), "an older call than the ping");
        assert_eq!(outage.known.borrow().shown(Side::Worker), None);
        assert!(outage.failed(in_a_moment().await, &gone()));
        assert_eq!(outage.known.borrow().shown(Side::Worker), Some(Trouble::Away));
        outage.answered(in_a_moment().await);
        assert_eq!(outage.now(), Health::Down, "the failure came after the ping");
        assert!(outage.is_there(in_a_moment().await));
        assert_eq!(outage.now(), Health::Up);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_does_not_outweigh_a_later_call_that_failed() {
        let outage = health(Side::Worker);
        assert!(outage.failed(in_a_moment().await, &gone()));
        let ping = in_a_moment().await;
        assert!(outage.failed(in_a_moment().await, &gone()));
        assert!(!outage.is_there(ping));
        assert!(outage.is_there(in_a_moment().await));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_a_publisher_ends_when_no_call_has_failed_for_a_while() {
        let outage = health(Side::Publisher);
        let before = Instant::now();
        assert!(outage.failed(in_a_moment().await, &gone()));
        outage.unversioned();
        outage.answered(before);
        let asked = in_a_moment().await;
        // One master of a Cluster is down, and the others answer.
        for _ in 0..10 {
            outage.answered(in_a_moment().await);
            tokio::time::sleep(CALM / 2).await;
            assert!(outage.failed(in_a_moment().await, &gone()));
        }
        outage.answered(in_a_moment().await);
        assert!(!outage.failed(asked, &gone()), "a later call has succeeded");
        assert_ne!(outage.now(), Health::Up);
        tokio::time::sleep(CALM).await;
        outage.answered(in_a_moment().await);
        assert_eq!(outage.now(), Health::Up);
    }
}
