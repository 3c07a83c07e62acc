//! A register that does not answer: what is told of it, in the log once and not for each event, and as metrics.
//!
//! - `hatchery_register_state{state, side}`: 1 while the register is in this state, as the publishers (`side="publisher"`)
//!   or the workers of this process see it, else 0.
//! - `hatchery_register_errors_total{state, side}`: questions that had no answer.
//! - `hatchery_published_unversioned_total{side}`: events that compete with nothing, because the register gave no version.
//! - `hatchery_register_emptied_total{side}`: how often a question found that what this process knew to be there was gone.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use metrics::{counter, gauge};
use tokio::{sync::watch, time::Instant};

use crate::{domain::trouble::Trouble, ports::RegisterError};

/// So long nothing may have failed until a publisher says that it is over. Of a Cluster with one master away every other
/// question may be answered.
const CALM: Duration = Duration::from_secs(5);

/// Whose question had no answer.
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

    /// The register was found emptied so often by its last question.
    pub(crate) fn count_emptied(self, times: u64) {
        if times > 0 {
            counter!("hatchery_register_emptied_total", "side" => self.label()).increment(times);
        }
    }

    /// What is done until it answers.
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

/// What a publisher or a worker knows of the register.
pub(crate) struct RegisterHealth {
    side: Side,
    known: Mutex<Known>,
    state: watch::Sender<Health>,
}

#[derive(Default)]
struct Known {
    now: Option<Lasting>,
    /// When the last one was over.
    over: Option<Instant>,
    /// What the metrics show.
    shown: Option<Trouble>,
}

/// One that is not over.
struct Lasting {
    since: Instant,
    /// When the last question was asked that had no answer.
    failed: Instant,
    /// All that it has been, and last what it is now.
    been: Vec<Trouble>,
    /// How many events had no version.
    unversioned: u64,
    /// Since when it has been there again: all of it has answered a ping, and no question has failed that was asked later.
    there: Option<Instant>,
    /// It has done something for an event since the last failure; for a publisher, for a while.
    proven: bool,
}

impl RegisterHealth {
    pub(crate) fn new(side: Side) -> Self {
        let outage = Self { side, known: Mutex::default(), state: watch::Sender::new(Health::Up) };
        // Shown as 0 from the start.
        for trouble in Trouble::ALL {
            outage.gauge(trouble, 0.0);
            counter!("hatchery_register_errors_total", "state" => trouble.label(), "side" => side.label()).increment(0);
        }
        counter!("hatchery_published_unversioned_total", "side" => side.label()).increment(0);
        counter!("hatchery_register_emptied_total", "side" => side.label()).increment(0);
        outage
    }

    /// A question that was asked then had no answer. Says whether the register is out of reach by it: it is not where it has
    /// answered meanwhile.
    pub(crate) fn failed(&self, asked: Instant, error: &RegisterError) -> bool {
        let trouble = error.trouble();
        counter!("hatchery_register_errors_total", "state" => trouble.label(), "side" => self.side.label())
            .increment(1);
        let mut known = self.known();
        let answered = known.now.as_ref().map_or(known.over, |lasting| lasting.there);
        if answered.is_some_and(|answered| asked < answered) {
            return false;
        }
        match &mut known.now {
            None => {
                tracing::warn!(state = trouble.label(), "{error}; until it answers, {}", self.side.meanwhile());
                let (since, been) = (Instant::now(), vec![trouble]);
                known.now = Some(Lasting { since, failed: asked, been, unversioned: 0, there: None, proven: false });
            }
            Some(lasting) => {
                // Once for each: a fail-over may be away and failing over by turns.
                if !lasting.been.contains(&trouble) {
                    let after = lasting.since.elapsed();
                    tracing::warn!(state = trouble.label(), "{error}; it has not answered for {after:.1?}");
                }
                lasting.been.retain(|been| *been != trouble);
                lasting.been.push(trouble);
                lasting.failed = lasting.failed.max(asked);
                (lasting.there, lasting.proven) = (None, false);
            }
        }
        self.show(&mut known, Some(trouble));
        self.announce(&known);
        true
    }

    /// An event has no version.
    pub(crate) fn unversioned(&self) {
        counter!("hatchery_published_unversioned_total", "side" => self.side.label()).increment(1);
        if let Some(lasting) = &mut self.known().now {
            lasting.unversioned += 1;
        }
    }

    /// All of it has answered a ping that was asked then. Says whether it is in reach by that: it is not where another
    /// question has begun an outage meanwhile.
    pub(crate) fn is_there(&self, asked: Instant) -> bool {
        let mut known = self.known();
        let Some(lasting) = &mut known.now else { return true };
        if asked < lasting.failed {
            return false;
        }
        lasting.there.get_or_insert_with(Instant::now);
        // A worker that has no events would say for ever that it has no register.
        self.show(&mut known, None);
        self.end(&mut known);
        self.announce(&known);
        true
    }

    /// It did something for an event, as was asked then.
    pub(crate) fn answered(&self, asked: Instant) {
        if self.now() == Health::Up {
            return;
        }
        let mut known = self.known();
        let Some(lasting) = known.now.as_mut().filter(|lasting| lasting.failed < asked) else { return };
        match self.side {
            Side::Worker => lasting.proven = true,
            // It waits for nothing, and asks none but those that it needs.
            Side::Publisher => {
                let there = *lasting.there.get_or_insert_with(Instant::now);
                lasting.proven = there.elapsed() >= CALM;
            }
        }
        self.end(&mut known);
        self.announce(&known);
    }

    /// Returns the state.
    pub(crate) fn now(&self) -> Health {
        *self.state.borrow()
    }

    /// Returns a receiver of the state's changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Health> {
        self.state.subscribe()
    }

    /// Announces the state, under the lock, so that the last change is announced last.
    fn announce(&self, known: &Known) {
        let health = match &known.now {
            None => Health::Up,
            Some(lasting) if lasting.there.is_none() => Health::Down,
            Some(_) => Health::Probing,
        };
        self.state.send_if_modified(|state| std::mem::replace(state, health) != health);
    }

    /// Where it is there again and has proven it.
    fn end(&self, known: &mut Known) {
        let Some(lasting) = known.now.take_if(|lasting| lasting.proven && lasting.there.is_some()) else { return };
        let there = lasting.there.unwrap_or_else(Instant::now);
        let (was, unversioned) = (words(&lasting.been), lasting.unversioned);
        let lasted = there.duration_since(lasting.since);
        known.over = Some(Instant::now());
        self.show(known, None);
        if self.side == Side::Worker && unversioned == 0 {
            tracing::warn!("Redis answers again; it was {was} for {lasted:.1?}");
        } else {
            tracing::warn!(
                unversioned,
                "Redis answers again; it was {was} for {lasted:.1?}, in which {unversioned} events were published \
                 without a version"
            );
        }
    }

    fn show(&self, known: &mut Known, trouble: Option<Trouble>) {
        let before = std::mem::replace(&mut known.shown, trouble);
        if before != trouble {
            before.inspect(|before| self.gauge(*before, -1.0));
            trouble.inspect(|trouble| self.gauge(*trouble, 1.0));
        }
    }

    fn gauge(&self, trouble: Trouble, by: f64) {
        gauge!("hatchery_register_state", "state" => trouble.label(), "side" => self.side.label()).increment(by);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RegisterHealth {
    fn drop(&mut self) {
        let shown = self.known.get_mut().unwrap_or_else(PoisonError::into_inner).shown.take();
        shown.inspect(|shown| self.gauge(*shown, -1.0));
    }
}

fn words(been: &[Trouble]) -> String {
    been.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn gone() -> RegisterError {
        RegisterError::Unreachable { url: "redis".into(), trouble: Trouble::Away, reason: "gone".into() }
    }

    async fn in_a_moment() -> Instant {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_is_without_it_until_it_is_there_and_has_done_something() {
        let outage = RegisterHealth::new(Side::Worker);
        let first = Instant::now();
        assert!(outage.failed(in_a_moment().await, &gone()));
        assert!(!outage.is_there(first), "that was asked before");
        outage.answered(first);
        assert!(outage.is_there(in_a_moment().await));
        assert_eq!(outage.now(), Health::Probing);
        outage.answered(in_a_moment().await);
        assert_eq!(outage.now(), Health::Up);
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_several_masters_is_not_all_of_it() {
        let outage = RegisterHealth::new(Side::Worker);
        assert!(outage.failed(in_a_moment().await, &gone()));
        outage.answered(in_a_moment().await);
        assert_eq!(outage.now(), Health::Down);
        assert!(outage.is_there(in_a_moment().await));
        assert_eq!(outage.now(), Health::Up, "it has proven it already");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_while_probing_is_the_same_outage() {
        let outage = RegisterHealth::new(Side::Worker);
        assert!(outage.failed(in_a_moment().await, &gone()));
        let late = Instant::now();
        assert!(outage.is_there(in_a_moment().await));
        assert!(!outage.failed(late, &gone()), "that was asked before it was there");
        assert_eq!(outage.known().shown, None);
        assert!(outage.failed(in_a_moment().await, &gone()));
        assert_eq!(outage.known().shown, Some(Trouble::Away));
        outage.answered(in_a_moment().await);
        assert_eq!(outage.now(), Health::Down, "that ping counts no more");
        assert!(outage.is_there(in_a_moment().await));
        assert_eq!(outage.now(), Health::Up);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_says_nothing_of_what_failed_that_was_asked_later() {
        let outage = RegisterHealth::new(Side::Worker);
        assert!(outage.failed(in_a_moment().await, &gone()));
        let ping = in_a_moment().await;
        assert!(outage.failed(in_a_moment().await, &gone()));
        assert!(!outage.is_there(ping));
        assert!(outage.is_there(in_a_moment().await));
    }

    #[tokio::test(start_paused = true)]
    async fn for_a_publisher_it_is_over_when_nothing_has_failed_for_a_while() {
        let outage = RegisterHealth::new(Side::Publisher);
        let before = Instant::now();
        assert!(outage.failed(in_a_moment().await, &gone()));
        outage.unversioned();
        outage.answered(before);
        let asked = in_a_moment().await;
        // Of a Cluster one master may be away, and the others answer.
        for _ in 0..10 {
            outage.answered(in_a_moment().await);
            tokio::time::sleep(CALM / 2).await;
            assert!(outage.failed(in_a_moment().await, &gone()));
        }
        outage.answered(in_a_moment().await);
        assert!(!outage.failed(asked, &gone()), "it has answered since");
        assert_ne!(outage.now(), Health::Up);
        tokio::time::sleep(CALM).await;
        outage.answered(in_a_moment().await);
        assert_eq!(outage.now(), Health::Up);
    }
}
