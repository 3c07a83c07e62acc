//! The circuit breaker of a type in this worker: the right to start a run, and what the run comes to.
//!
//! `breakers` reports it to the other workers and learns what they have reported. The rules are those of [`crate::domain::breaker`].

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use metrics::{Gauge, gauge};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use uuid::Uuid;

use crate::{
    domain::{
        breaker::{Answer, BreakerSpec, BreakerState, ClosedBy, Era, Phase, Report},
        reason::cut_reason,
        spec::{OnFailure, TypeSpec},
        ttl::{roughly, say},
        words::EventType,
    },
    meter,
};

/// How long what is known of a shared breaker lasts. A worker with something to do looks much more often.
const FRESH: Duration = Duration::from_secs(2);

/// How soon an error or a probe is reported, and how soon a worker looks that does not know whether it may start. So a worker calls at most
/// five times a second.
const SOON: Duration = Duration::from_millis(200);

/// How often a worker looks that has something to start.
const EACH: Duration = Duration::from_millis(500);

/// The starts that a breaker forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// All events, because its state is not known, or was looked at too long ago.
    Unknown,
    /// All events: there were too many errors.
    All,
    /// All events but so many, which this worker tries.
    AllBut { grants: usize },
}

/// The breaker of one type.
pub(super) struct Breaker {
    pub(super) event_type: EventType,
    pub(super) spec: BreakerSpec,
    /// The name of the state that the workers share: the oldest name of the type.
    pub(super) name: String,
    /// The name of this worker in the state.
    pub(super) worker: String,
    /// Whether the workers share the state. Without the register each worker has its own.
    pub(super) is_shared: bool,
    /// How long a probe may take, from its grant to its end.
    pub(super) patience: Duration,
    /// How long a grant lasts that has no run.
    unused: Duration,
    local: Mutex<Local>,
    changes: watch::Sender<()>,
    /// Wakes the task that reports.
    news: Notify,
    /// How many events the loop of the type could start now but for the breaker.
    in_hand: AtomicUsize,
    /// Each other event that waits to start has a clone.
    waiting: Arc<()>,
    gauge: Gauge,
}

#[derive(Default)]
struct Local {
    known: BreakerState,
    /// The text of the shared state as it was seen last.
    text: Option<String>,
    looked: Option<Instant>,
    /// The next report. Its era is that of `known`.
    report: Report,
    /// Until when each grant lasts that has no run.
    grants: Vec<Instant>,
    /// How many probes of the era run.
    probing: usize,
    /// How long after the last look there is to be another one, because of what has happened since.
    due: Option<Duration>,
    /// The notice of the last opening that this worker has to publish.
    notice: Option<Notice>,
}

/// The event of `notify` about an opening.
#[derive(Clone, Copy)]
struct Notice {
    /// The number of the opening.
    number: i64,
    /// Whether the broker has confirmed it.
    is_published: bool,
}

/// A report on its way, and what it is about.
pub(super) struct Turn {
    pub(super) known: BreakerState,
    pub(super) before: Option<String>,
    pub(super) report: Report,
}

impl Turn {
    /// Whether the report opens the breaker, if this is the state after it.
    #[cfg(feature = "fail-points")]
    pub(super) fn opens(&self, after: &BreakerState) -> bool {
        after.era.number != self.stored().unwrap_or_default().era.number.max(self.known.era.number)
    }

    /// Returns the shared state. `None` if Redis has none, or something else.
    pub(super) fn stored(&self) -> Option<BreakerState> {
        self.before.as_deref().and_then(BreakerState::parse)
    }
}

impl Breaker {
    /// Returns the breaker of a type, if it has one.
    pub(super) fn of(event_type: &EventType, spec: &TypeSpec) -> Option<Arc<Self>> {
        let breaker = spec.breaker.clone()?;
        // A round of tries in place is one run.
        let run = match spec.on_failure {
            OnFailure::InPlace { tries, delay } => (spec.handler_timeout + delay).saturating_mul(tries),
            OnFailure::Retry | OnFailure::Block | OnFailure::Drop => spec.handler_timeout,
        };
        let gauge = gauge!(meter::BREAKER_OPEN, "type" => event_type.to_string());
        gauge.set(0.0);
        Some(Arc::new(Self {
            event_type: event_type.clone(),
            spec: breaker,
            name: spec.first_name(event_type).to_string(),
            worker: Uuid::now_v7().to_string(),
            is_shared: spec.register,
            patience: run.saturating_add(spec.lease),
            unused: spec.lease,
            local: Mutex::default(),
            changes: watch::Sender::new(()),
            news: Notify::new(),
            in_hand: AtomicUsize::new(0),
            waiting: Arc::default(),
            gauge,
        }))
    }

    /// Returns what may not start. `None` if nothing is kept.
    pub(super) fn halt(&self, now: Instant) -> Option<Halt> {
        let mut local = self.local();
        match local.known.phase {
            _ if self.is_shared && local.looked.is_none_or(|looked| now >= looked + FRESH) => Some(Halt::Unknown),
            Phase::Closed { .. } => None,
            Phase::Open { .. } => Some(Halt::All),
            Phase::HalfOpen { .. } => Some(Halt::AllBut { grants: local.grants(now) }),
        }
    }

    /// Whether events start as usual, as far as is known.
    pub(super) fn is_closed(&self) -> bool {
        self.local().known.is_closed()
    }

    /// Returns a receiver of each look.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Whether an event may start.
    pub(super) fn may_start(&self) -> bool {
        matches!(self.halt(Instant::now()), None | Some(Halt::AllBut { grants: 1.. }))
    }

    /// Waits until an event may start, as one that a worker has in hand.
    pub(super) async fn admits(&self) {
        let mut changes = self.subscribe();
        while !self.may_start() {
            // The sender lives as long as this breaker. What is known may also grow old meanwhile, and then the task looks.
            _ = changes.changed().await;
        }
    }

    /// Notes how many events the loop of the type could start now but for the breaker.
    pub(super) fn has_in_hand(&self, events: usize) {
        if self.in_hand.swap(events, Ordering::SeqCst) == 0 && events > 0 {
            self.look_within(EACH, &mut self.local());
        }
    }

    /// Counts one event more that waits to start, until what this returns is dropped.
    pub(super) fn waits(&self) -> Arc<()> {
        let waiting = Arc::clone(&self.waiting);
        self.look_within(EACH, &mut self.local());
        waiting
    }

    /// Starts a run. `None` if it may not start.
    pub(super) fn start(self: &Arc<Self>) -> Option<Ticket> {
        let mut local = self.local();
        let is_probe = match local.known.phase {
            _ if self.is_shared && local.looked.is_none() => return None,
            Phase::Open { .. } => return None,
            Phase::Closed { .. } => false,
            Phase::HalfOpen { .. } => {
                local.grants(Instant::now());
                local.grants.pop()?;
                local.probing += 1;
                true
            }
        };
        self.look_within(EACH, &mut local);
        Some(Ticket { breaker: Arc::clone(self), era: local.known.era, is_probe, is_over: false })
    }

    /// Returns how long after the last look the next one comes. `None` if there is nothing to report or to start.
    pub(super) fn wants_a_look(&self) -> Option<Duration> {
        let (local, wants) = (self.local(), self.wants() > 0);
        let is_old = self.is_shared && local.looked.is_none_or(|looked| looked.elapsed() >= FRESH);
        // The worker that has opened it may die before it publishes the notice.
        let is_unsettled = !local.known.is_closed() || local.known.lacks_notice();
        let is_changing = is_unsettled || !local.grants.is_empty();
        let soon = (is_old && wants || local.published().is_some()).then_some(SOON);
        let each = (is_changing || wants).then_some(EACH);
        let wait = [soon, each, local.due].into_iter().flatten().min()?;
        // A report to itself costs next to nothing.
        Some(if wait == SOON && !self.is_shared { SOON / 10 } else { wait })
    }

    /// Waits until there is something to report or to start.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// Makes the task look this long after its last look. It is woken once for many events that come one by one.
    fn look_within(&self, wait: Duration, local: &mut Local) {
        if local.due.is_none_or(|due| wait < due) {
            local.due = Some(wait);
            self.news.notify_one();
        }
    }

    fn wants(&self) -> usize {
        self.in_hand.load(Ordering::SeqCst) + Arc::strong_count(&self.waiting) - 1
    }

    /// Takes what is to be reported. Grants that the worker has no events for are given back.
    pub(super) fn take(&self) -> Turn {
        let (mut local, wants) = (self.local(), self.wants());
        local.due = None;
        let granted = local.grants(Instant::now());
        local.grants.truncate(wants);
        let mut report = local.report.clone();
        (local.report.runs, local.report.errors) = (0, 0);
        local.report.reasons.clear();
        report.holds = count(local.grants.len() + local.probing);
        report.wants = count(wants.saturating_sub(granted));
        report.notified = local.published();
        Turn { known: local.known.clone(), before: local.text.clone(), report }
    }

    /// Takes back a report that did not count, because another worker was faster.
    pub(super) fn take_back(&self, report: Report) {
        let mut local = self.local();
        local.report.add(report);
        self.look_within(SOON, &mut local);
    }

    /// Notes that a report has no answer. Its runs may be counted, and are not reported again.
    pub(super) fn is_not_answered(&self) {
        self.look_within(SOON, &mut self.local());
    }

    /// Takes the answer to a report. `text`: the shared state. Returns whether this worker has opened the breaker.
    pub(super) fn answered(&self, answer: &Answer, text: Option<String>, asked: Instant, now: i64) -> bool {
        let mut local = self.local();
        let before = std::mem::replace(&mut local.known, answer.state.clone());
        let is_first = local.looked.replace(Instant::now()).is_none();
        local.text = text;
        if before.era != answer.state.era {
            local.report = Report { era: answer.state.era, ..Report::default() };
            local.probing = 0;
        }
        if !matches!(answer.state.phase, Phase::HalfOpen { .. }) || before.era != answer.state.era {
            local.grants.clear();
        }
        local.grants.extend((0..answer.granted).map(|_| asked + self.unused));
        drop(local);
        let is_open = !answer.state.is_closed() && !answer.state.is_half_open(&self.spec, now);
        self.gauge.set(if is_open { 1.0 } else { 0.0 });
        let is_mine = before.era.number != answer.state.era.number && answer.state.is_opened_by(&self.worker);
        // A worker that starts does not log what was before.
        if !(is_first && answer.state.is_closed()) {
            self.log(&before, &answer.state, is_mine, now);
        }
        self.changes.send_replace(());
        is_mine
    }

    /// Notes that this worker publishes the notice of an opening. Returns `false` if it does so already.
    pub(super) fn begins_to_publish(&self, number: i64) -> bool {
        let mut local = self.local();
        let is_new = local.notice.is_none_or(|notice| notice.number != number);
        if is_new {
            local.notice = Some(Notice { number, is_published: false });
        }
        is_new
    }

    /// Notes that the notice of an opening is published.
    pub(super) fn has_published(&self, number: i64) {
        let mut local = self.local();
        local.notice = Some(Notice { number, is_published: true });
        self.look_within(SOON, &mut local);
    }

    fn log(&self, before: &BreakerState, state: &BreakerState, is_mine: bool, now: i64) {
        let event_type = &self.event_type;
        match (&state.phase, &state.opening) {
            (Phase::Open { .. }, Some(opening)) if is_mine => {
                let (errors, runs, window) = (opening.errors, opening.runs, say(self.spec.window));
                let reasons = opening.reasons.join("; ");
                tracing::warn!(%event_type, number = state.era.number, reasons, "the circuit breaker has opened: {errors} errors of {runs} runs within {window}; nothing of the type starts, its events wait, and no attempt is spent");
            }
            _ if (before.era, before.is_closed()) == (state.era, state.is_closed()) => {}
            (Phase::Closed { by: Some(by), .. }, _) => {
                let by = match by {
                    ClosedBy::Probes => "the events that were tried went well",
                    ClosedBy::Person => "a person has closed it",
                };
                tracing::info!(%event_type, number = state.era.number, "the circuit breaker is closed: {by}");
            }
            (Phase::Closed { by: None, .. }, _) => {}
            _ if state.is_half_open(&self.spec, now) => {
                tracing::info!(%event_type, number = state.era.number, "the circuit breaker is half-open: a few events are tried");
            }
            _ => match state.until(&self.spec) {
                Some(until) => {
                    let wait = roughly(Duration::from_millis((until - now).unsigned_abs()));
                    tracing::info!(%event_type, number = state.era.number, "the circuit breaker is open for {wait}, then a few events are tried");
                }
                None => {
                    tracing::info!(%event_type, number = state.era.number, "the circuit breaker is open until a person closes it");
                }
            },
        }
    }

    fn local(&self) -> MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Local {
    /// Returns the number of the last opening if this worker has published its notice, until the state says so.
    fn published(&self) -> Option<i64> {
        let is_about = |notice: &Notice| notice.is_published && notice.number == self.known.era.number;
        self.notice.filter(is_about).filter(|_| self.known.lacks_notice()).map(|notice| notice.number)
    }

    /// Drops the grants whose time is over: no event was started with them. Returns how many are left.
    fn grants(&mut self, now: Instant) -> usize {
        self.grants.retain(|until| *until > now);
        self.grants.len()
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A run that has started. Dropped without an end, it counts nothing: it was cancelled or given back, or its handler is unavailable.
pub(super) struct Ticket {
    breaker: Arc<Breaker>,
    era: Era,
    is_probe: bool,
    is_over: bool,
}

impl Ticket {
    /// Notes the end of the run, and the reason if it was an error.
    pub(super) fn end(mut self, error: Option<&str>) {
        self.is_over = true;
        let breaker = &self.breaker;
        let Some(mut local) = self.local() else { return };
        let report = &mut local.report;
        match (self.is_probe, error) {
            (true, None) => report.good += 1,
            (true, Some(_)) => report.has_failed = true,
            (false, _) => {
                report.runs += 1;
                report.errors += u64::from(error.is_some());
            }
        }
        if let Some(error) = error {
            report.add_reason(cut_reason(error));
        }
        // By a share, runs without an error open a breaker too.
        let is_news = self.is_probe || error.is_some() || breaker.spec.counts_runs();
        local.probing = local.probing.saturating_sub(self.is_probe.into());
        breaker.look_within(if is_news { SOON } else { EACH }, &mut local);
    }

    /// Returns what the worker knows, unless the breaker was opened or closed since the run began.
    fn local(&self) -> Option<MutexGuard<'_, Local>> {
        Some(self.breaker.local()).filter(|local| local.known.era == self.era)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.is_probe
            && !self.is_over
            && let Some(mut local) = self.local()
        {
            local.probing = local.probing.saturating_sub(1);
            self.breaker.look_within(EACH, &mut local);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_worker_gives_back_grants_for_which_it_has_no_events() {
        let file = "version: 1\nname: t\ntypes: { mail: { breaker: {} } }\n";
        let topology = crate::file::read(file, "topology.yaml").expect("a valid file");
        let (event_type, spec) = topology.types.first_key_value().expect("a type");
        let breaker = Breaker::of(event_type, spec).expect("a breaker");
        breaker.has_in_hand(3);
        let turn = breaker.take();
        assert_eq!((turn.report.wants, turn.report.holds), (3, 0));
        let state = BreakerState { phase: Phase::HalfOpen { grants: Vec::new() }, ..BreakerState::default() };
        let answer = Answer { state, granted: 3 };
        breaker.answered(&answer, None, Instant::now(), 0);
        assert_eq!(breaker.halt(Instant::now()), Some(Halt::AllBut { grants: 3 }));
        let ticket = breaker.start().expect("a grant");
        breaker.has_in_hand(1);
        let turn = breaker.take();
        assert_eq!((turn.report.wants, turn.report.holds), (0, 2), "one runs, and one is kept");
        breaker.answered(&Answer { granted: 0, ..answer }, None, Instant::now(), 0);
        drop(ticket);
        assert_eq!(breaker.take().report.holds, 1);
        breaker.has_in_hand(0);
        assert_eq!(breaker.take().report.holds, 0);
    }
}
