//! One task of a worker reports what its breakers have counted, in one call for all its types, and learns what the other workers have.
//!
//! An opening is stored first, then its notice is published, an event of `notify`, and then that is noted. If the worker dies in
//! between, another one publishes the notice again, under the same id, and the register lets it run once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use backon::Retryable as _;
use futures_util::future::select_all;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::{
    breaker::{Breaker, Turn},
    lane::{Common, Lane},
};
use crate::{
    NewEvent,
    domain::{
        breaker::{Answer, BreakerState, Reporter},
        life_cycle::TransitionName,
        switches::{Name, Paused},
    },
    outage::{Health, backoff},
    ports::{RegisterError, StateChange, StateKind},
    publish::publisher::Publisher,
};

/// How often a report is made if another worker was faster: at first with the state of the last look, and then with the one that
/// is there. What has not counted then is in the next report.
const TRIES: usize = 2;

/// How long a worker waits after a report that had no answer.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// The breakers of a worker.
pub(super) struct Breakers {
    common: Arc<Common>,
    all: Vec<Arc<Breaker>>,
    publisher: Publisher,
    /// The notices that the broker has not confirmed yet.
    notices: TaskTracker,
    /// Whether Redis refuses the states.
    is_refused: AtomicBool,
}

/// The task that reports.
pub(super) struct Reporting {
    breakers: Arc<Breakers>,
    task: Option<AbortOnDropHandle<()>>,
}

impl Reporting {
    /// Returns the types whose breaker is not closed; empty if there are none.
    pub(super) fn not_closed(&self) -> String {
        let not_closed = self.breakers.all.iter().filter(|breaker| !breaker.is_closed());
        not_closed.map(|breaker| breaker.event_type.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Reports for the last time. Waits for the notices for at most so long.
    pub(super) async fn end(self, limit: Duration) {
        drop(self.task);
        let Breakers { common, notices, .. } = &*self.breakers;
        self.breakers.report().await;
        notices.close();
        if timeout(limit, notices.wait()).await.is_err() {
            common.abandon.cancel();
            notices.wait().await;
        }
        self.breakers.report().await;
    }
}

impl Breakers {
    /// Starts to report.
    pub(super) fn start(common: &Arc<Common>, lanes: &[Arc<Lane>], publisher: Publisher) -> Reporting {
        let all: Vec<_> = lanes.iter().filter_map(|lane| lane.breaker.clone()).collect();
        let (common, has_any) = (Arc::clone(common), !all.is_empty());
        let (notices, is_refused) = (TaskTracker::new(), AtomicBool::new(false));
        let breakers = Arc::new(Self { common, all, publisher, notices, is_refused });
        let working = Arc::clone(&breakers);
        let task = has_any.then(|| AbortOnDropHandle::new(tokio::spawn(async move { working.work().await })));
        Reporting { breakers, task }
    }

    /// Reports until it is dropped.
    async fn work(&self) {
        let (mut next, mut last) = (Instant::now(), None::<Instant>);
        loop {
            // An idle worker has no timer.
            let wait = self.all.iter().filter_map(|breaker| breaker.wants_a_look()).min();
            let at = wait.map(|wait| last.map_or(next, |last| next.max(last + wait)));
            tokio::select! {
                _ = select_all(self.all.iter().map(|breaker| Box::pin(breaker.news()))) => continue,
                () = sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => {}
            }
            last = Some(Instant::now());
            if !self.report().await {
                next = Instant::now() + AFTER_FAILURE;
            }
        }
    }

    /// Reports once. Returns whether there was an answer.
    async fn report(&self) -> bool {
        let due = || self.all.iter().filter(|breaker| breaker.wants_a_look().is_some());
        for breaker in due().filter(|breaker| !breaker.is_shared) {
            let (turn, asked) = (breaker.take(), Instant::now());
            let answer = self.answer(breaker, Some(turn.known.clone()), &turn);
            self.answered(breaker, &answer, None, asked);
            self.tell_closed(breaker, &turn, &answer);
        }
        let is_there = self.common.health.now() != Health::Down;
        let due: Vec<_> = due().filter(|breaker| breaker.is_shared && is_there).collect();
        self.share(due.into_iter().map(|breaker| (breaker, breaker.take())).collect()).await
    }

    /// Replaces the shared states, each by compare-and-set.
    async fn share(&self, mut turns: Vec<(&Arc<Breaker>, Turn)>) -> bool {
        let mut asked = Instant::now();
        for _ in 0..TRIES {
            if turns.is_empty() {
                return true;
            }
            asked = Instant::now();
            let answers: Vec<(Answer, String)> = turns
                .iter()
                .map(|(breaker, turn)| {
                    let answer = self.answer(breaker, turn.stored(), turn);
                    let text = answer.state.text();
                    (answer, text)
                })
                .collect();
            #[cfg(feature = "fail-points")]
            if turns.iter().zip(&answers).any(|((_, turn), (answer, _))| turn.opens(&answer.state)) {
                fail_point!("breaker.opens");
            }
            let changes: Vec<StateChange<'_>> = turns
                .iter()
                .zip(&answers)
                .map(|((breaker, turn), (_, after))| StateChange {
                    name: &breaker.name,
                    before: turn.before.as_deref(),
                    after: Some(after),
                })
                .collect();
            let replaced = match self.common.register.replace_states(StateKind::Breaker, &changes).await {
                Ok(replaced) => replaced,
                Err(error) => {
                    self.unanswered(turns, asked, &error);
                    return false;
                }
            };
            if self.is_refused.swap(false, Ordering::Relaxed) {
                tracing::info!("Redis takes the states of the circuit breakers again");
            }
            let mut again = Vec::new();
            for (((breaker, turn), (answer, text)), replaced) in turns.into_iter().zip(answers).zip(replaced) {
                match replaced {
                    Ok(()) => {
                        if turn.before.is_some() && turn.stored().is_none() {
                            tracing::warn!(event_type = %breaker.event_type, "the text in Redis is no state of a circuit breaker; it is replaced by what this worker knows");
                        }
                        self.answered(breaker, &answer, Some(text), asked);
                        self.tell_closed(breaker, &turn, &answer);
                        if turn.report.notified.is_some() {
                            fail_point!("breaker.noted");
                        }
                    }
                    Err(before) => again.push((breaker, Turn { before, ..turn })),
                }
            }
            turns = again;
        }
        for (breaker, turn) in turns {
            // It counts next time. What other workers have stored is known now.
            let state = BreakerState::or_known(turn.stored(), &turn.known, &breaker.spec, self.now());
            let answer = Answer { state, granted: 0 };
            self.answered(breaker, &answer, turn.before, asked);
            breaker.take_back(turn.report);
        }
        true
    }

    fn answer(&self, breaker: &Breaker, stored: Option<BreakerState>, turn: &Turn) -> Answer {
        let notifies = self.common.topology.notify.is_some();
        let reporter = Reporter { name: &breaker.worker, patience: breaker.patience, notifies };
        let now = self.now();
        let state = BreakerState::or_known(stored, &turn.known, &breaker.spec, now);
        state.report(&breaker.spec, now, &turn.report, reporter)
    }

    /// Returns the time by Redis's clock, in ms since 1970.
    fn now(&self) -> i64 {
        self.common.clock.of_redis().as_millisecond()
    }

    fn answered(&self, breaker: &Arc<Breaker>, answer: &Answer, text: Option<String>, asked: Instant) {
        let now = self.now();
        let has_opened = breaker.answered(answer, text, asked, now);
        if has_opened {
            fail_point!("breaker.opened");
            self.tell_opened(breaker, &answer.state);
        }
        if answer.granted > 0 {
            fail_point!("breaker.granted");
        }
        if has_opened || answer.state.is_notice_late(now) {
            self.notify(breaker, &answer.state);
        }
    }

    /// Tells that this worker has opened the breaker.
    fn tell_opened(&self, breaker: &Breaker, state: &BreakerState) {
        let reason = state.opening.as_ref().map(|opening| {
            format!("{} errors of {} runs: {}", opening.errors, opening.runs, opening.reasons.join("; "))
        });
        self.tell(breaker, TransitionName::BreakerOpened, &reason.unwrap_or_default());
    }

    /// Tells that this report has closed the breaker, if it has.
    fn tell_closed(&self, breaker: &Breaker, turn: &Turn, answer: &Answer) {
        let before = BreakerState::or_known(turn.stored(), &turn.known, &breaker.spec, self.now());
        if answer.state.is_closed() && !before.is_closed() {
            self.tell(breaker, TransitionName::BreakerClosed, "the events that were tried went well");
        }
    }

    fn tell(&self, breaker: &Breaker, transition: TransitionName, reason: &str) {
        let of = Paused::Type(Name(breaker.event_type.clone()));
        self.common.journal.records().tell_switch(transition, &of, reason, None);
    }

    /// Publishes the notice of an opening, until the broker has confirmed it.
    fn notify(&self, breaker: &Arc<Breaker>, state: &BreakerState) {
        let Some(event_type) = &self.common.topology.notify else { return };
        let number = state.era.number;
        if !breaker.begins_to_publish(number) {
            return;
        }
        let Some(notice) = state.notice(&breaker.event_type, &breaker.spec) else { return };
        let id = format!("breaker:{}:{number}", breaker.name);
        let event = NewEvent::new(event_type.as_str(), notice).id(id);
        let (common, publisher, breaker) = (Arc::clone(&self.common), self.publisher.clone(), Arc::clone(breaker));
        self.notices.spawn(async move {
            let event_type = &breaker.event_type;
            let publish = || publisher.publish(event.clone());
            let publishing = publish.retry(backoff()).notify(|error, _| {
                tracing::warn!(%error, %event_type, "the event that tells of an open circuit breaker is not published; trying again");
            });
            match common.abandon.run_until_cancelled(publishing).await {
                Some(_) => {
                    fail_point!("breaker.notified");
                    breaker.has_published(number);
                }
                None => {
                    tracing::warn!(%event_type, "the worker stops before the event that tells of an open circuit breaker is published");
                }
            }
        });
    }

    fn unanswered(&self, turns: Vec<(&Arc<Breaker>, Turn)>, asked: Instant, error: &RegisterError) {
        if matches!(error, RegisterError::Unreachable { .. } | RegisterError::InUse { .. }) {
            self.common.register_failed(asked, error);
        } else if !self.is_refused.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "Redis refuses the states of the circuit breakers, so nothing of their types starts; trying again");
        }
        for (breaker, _) in turns {
            breaker.is_not_answered();
        }
    }
}
