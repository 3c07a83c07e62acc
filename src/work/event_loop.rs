//! The event loop: one task that owns all events of one type in this worker.
//!
//! ```text
//! deliver ─► open ─► waiting ─► claim ─► run ─► (follow up) ─► settle ─► acknowledge
//! ```
//!
//! The loop reads deliveries while handlers run. One call to the register settles what has run and claims what may start;
//! what comes meanwhile goes into the next call. What is rare goes on in a task of its own, a [`Detour`], and comes back to
//! the loop or ends there: copies, failures, suspects, waits.
//!
//! A crash at any point repeats work and loses nothing: a follow-up is confirmed by the broker before the event is settled,
//! and the event is settled before its delivery is acknowledged.

mod pace;
mod steps;

use std::{collections::VecDeque, sync::Arc};

use futures_util::future::{BoxFuture, OptionFuture};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use self::pace::Pace;
use super::{
    busy_wait::BusyPlaces,
    consumer::Consumer,
    gate::{Gate, Intake},
    isolation::{A_WHILE, Permit},
    lane::Lane,
    not_run::Wait,
    open::{CopyReason, NotDue},
    stage::{Detour, Disposition, Ended, Ran, Ready},
};
use crate::ports::{Delivery, RegisterError, SettledAndClaimed, Written};

/// The most events of one call to the register, of each kind. A script over them takes a few milliseconds, in which Redis
/// serves nobody else.
const LARGEST: usize = 256;

/// Consumes the type's queue until `until` is cancelled. Returns once no delivery is held.
pub(super) async fn work(lane: Arc<Lane>, until: CancellationToken) {
    let common = Arc::clone(&lane.common);
    let mut state = Loop::new(lane, until.clone());
    let mut batch = Vec::new();
    loop {
        let wake = state.advance();
        if state.is_over() {
            break;
        }
        let (wants_permit, is_ending) = (state.wants_permit, until.is_cancelled());
        tokio::select! {
            biased;
            () = until.cancelled(), if !is_ending => {}
            () = state.gate.changed() => {}
            () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            Some(answered) = OptionFuture::from(state.under_way.as_mut()) => {
                state.answered(answered);
                state.join_all_ready().await;
            }
            Some(ran) = state.running.join_next() => {
                state.ran(ran);
                state.join_all_ready().await;
            }
            Some(detour) = state.detours.join_next() => state.came_back(detour),
            permit = common.isolation.shared(), if wants_permit => state.permit = Some(Arc::new(permit)),
            is_taken_back = state.consumer.next(&mut batch) => state.consumed(is_taken_back, &mut batch),
        }
    }
    for written in state.written {
        written.await;
    }
}

/// The state of the loop. One task owns it.
struct Loop {
    lane: Arc<Lane>,
    until: CancellationToken,
    gate: Gate,
    consumer: Consumer,
    /// Events that wait for a free place, in the order of their deadlines: so the first one is the first to be given back.
    waiting: VecDeque<Ready>,
    /// The places of events that wait in memory for a reference that is busy.
    busy: BusyPlaces,
    /// The call to the register that is under way.
    under_way: Option<BoxFuture<'static, CallEnd>>,
    /// How many events the call under way claims.
    claiming: usize,
    pace: Pace,
    /// The runs. An event keeps its place while it waits for its next try in place.
    running: JoinSet<Ran>,
    /// Events that wait to be settled.
    finished: VecDeque<Ended>,
    detours: JoinSet<Detour>,
    /// Held while anything is claimed or runs.
    permit: Option<Arc<Permit>>,
    /// Whether something waits for the permit.
    wants_permit: bool,
    /// Since when nothing may start and nothing runs here.
    yielding: Option<Instant>,
    /// Answers that may not be written yet.
    written: VecDeque<Written>,
}

/// The end of a call to the register: what it was about, and its answers.
struct CallEnd {
    asked: Instant,
    settles: Vec<Ended>,
    claims: Vec<Ready>,
    answers: Result<SettledAndClaimed, RegisterError>,
}

impl Loop {
    fn new(lane: Arc<Lane>, until: CancellationToken) -> Self {
        Self {
            until,
            gate: Gate::new(&lane),
            consumer: Consumer::new(&lane),
            waiting: VecDeque::new(),
            busy: BusyPlaces::default(),
            under_way: None,
            claiming: 0,
            pace: Pace::new(lane.common.register.pace()),
            running: JoinSet::new(),
            finished: VecDeque::new(),
            detours: JoinSet::new(),
            permit: None,
            wants_permit: false,
            yielding: None,
            written: VecDeque::new(),
            lane,
        }
    }

    /// Lets other tasks run once, and takes the ends of runs. tokio resumes the loop before the handlers that it has started,
    /// and as soon as the first of many handlers ends: without this, a call to the register would be about a few events.
    async fn join_all_ready(&mut self) {
        tokio::task::yield_now().await;
        while let Some(ran) = self.running.try_join_next() {
            self.ran(ran);
        }
    }

    fn ask_gate(&mut self) -> (Intake, Option<Instant>, usize) {
        self.gate.ask(self.lane.concurrency.saturating_sub(self.running.len() + self.claiming))
    }

    /// Does all that can be done now. Returns when more can be done although nothing else wakes the loop.
    fn advance(&mut self) -> Option<Instant> {
        // A consumer tells what the broker takes back; while the type is paused there is none.
        if self.consumer.is_probe().is_none() {
            self.drop_taken_back();
        }
        let (mut intake, mut ask_again, mut could_start) = self.ask_gate();
        let consume_at = self.consume(&intake);
        self.give_back_late(&intake);
        if intake.is_held() && intake.starts() == 0 {
            self.unclaim_waiting();
        }
        self.update_permit(&intake);
        let mut starts = if self.permit.is_some() { intake.starts() } else { 0 };
        let mut call_at = None;
        if self.lane.spec.register {
            self.note_in_hand(could_start);
            call_at = self.call_register(starts);
        } else {
            while starts > 0
                && let Some(ready) = self.waiting.pop_front()
            {
                match ready.without_claim(&self.lane) {
                    (claimed, Some(decision)) => self.carry_out(claimed, decision),
                    (claimed, None) => self.start(claimed),
                }
                // It may have run in place.
                (intake, ask_again, could_start) = self.ask_gate();
                starts = intake.starts();
            }
            while let Some(ended) = self.finished.pop_front() {
                self.acknowledge(ended);
            }
            self.note_in_hand(could_start);
        }
        let give_back_at = self.waiting.front().map(|ready| ready.work.deadline);
        let yield_at = self.yielding.map(|since| since + A_WHILE);
        [ask_again, consume_at, call_at, give_back_at, yield_at].into_iter().flatten().min()
    }

    /// Tells the breaker for how many events a grant of a probe would be of use.
    fn note_in_hand(&self, could_start: usize) {
        if let Some(breaker) = &self.lane.breaker {
            breaker.has_in_hand(could_start.min(self.waiting.len()) + self.claiming);
        }
    }

    /// Begins a call to the register that settles what has run and claims what may start, unless one is under way. Returns
    /// when it may begin if that is later.
    fn call_register(&mut self, starts: usize) -> Option<Instant> {
        let claims = starts.min(LARGEST).min(self.waiting.len());
        let settles = self.finished.len().min(LARGEST);
        // The end of the call that is under way wakes the loop.
        if self.under_way.is_some() || settles + claims == 0 {
            return None;
        }
        let most = self.lane.concurrency.min(self.lane.prefetch.into());
        let may_begin_at = self.pace.may_begin_at(settles + claims, most);
        if may_begin_at > Instant::now() {
            return Some(may_begin_at);
        }
        let mut claims: Vec<_> = self.waiting.drain(..claims).collect();
        let settles: Vec<_> = self.finished.drain(..settles).collect();
        self.pace.begins(Instant::now());
        self.claiming = claims.len();
        let lane = Arc::clone(&self.lane);
        self.under_way = Some(Box::pin(async move {
            let settle: Vec<_> = settles.iter().filter_map(|ended| ended.settle(lane.terms)).collect();
            let claim: Vec<_> = claims.iter_mut().map(|ready| ready.claim(false, lane.terms)).collect();
            let asked = Instant::now();
            let answers = lane.common.register.settle_and_claim(&settle, &claim).await;
            CallEnd { asked, settles, claims, answers }
        }));
        None
    }

    /// Opens or leaves the consumer, and parts with what has not started, as the gate demands. Returns when the next consumer may
    /// be opened.
    fn consume(&mut self, intake: &Intake) -> Option<Instant> {
        let (is_probe, probe) = (self.consumer.is_probe(), intake.probe());
        let is_left = matches!(intake, Intake::Paused { .. } | Intake::Leave { .. } | Intake::Stop);
        let may_open = !self.until.is_cancelled() && !is_left;
        let is_idle = self.consumer.idle_until().is_some_and(|at| at <= Instant::now());
        match intake {
            Intake::Stop => {
                self.consumer.stop();
                self.give_all_back();
            }
            _ if self.until.is_cancelled() => self.consumer.leave(false),
            Intake::Paused { .. } => self.consumer.leave(true),
            // A probe keeps its event, which is claimed again once Redis answers.
            Intake::Leave { .. } if is_probe == Some(true) => {}
            Intake::Leave { .. } => {
                self.consumer.leave(false);
                self.give_all_back();
            }
            _ if is_probe.is_some_and(|is_probe| is_probe != probe.is_some()) => self.consumer.leave(false),
            _ if is_idle => self.consumer.open(probe),
            _ => {}
        }
        // What a probe has brought is tried here. The loops of other types wait until this one holds nothing.
        let is_awaited = intake.is_held() && self.until.is_cancelled();
        if is_awaited || intake.is_for_others() && self.consumer.is_probe() != Some(true) {
            while let Some(ready) = self.waiting.pop_front() {
                self.move_on(ready);
            }
        }
        self.consumer.idle_until().filter(|_| may_open)
    }

    /// Takes what the consumer has brought.
    fn consumed(&mut self, is_taken_back: bool, batch: &mut Vec<Delivery>) {
        // Shared by the suspects of a batch.
        let mut alone = None;
        for delivery in batch.drain(..) {
            match self.lane.open(delivery) {
                None => {}
                Some(Ok((ready, None))) => self.waiting.push_back(ready),
                Some(Ok((ready, Some(why)))) => {
                    let lane = Arc::clone(&self.lane);
                    // A run that kills the process between the confirm of a copy and the acknowledgement would make two events
                    // of one, each of which may kill the process again.
                    let alone = matches!(why, CopyReason::Quarantine(_))
                        .then(|| alone.get_or_insert_with(|| lane.common.isolation.together_alone()).clone());
                    self.detours.spawn(async move {
                        let _permit = match alone {
                            Some(alone) => lane.common.stop.run_until_cancelled(timeout(A_WHILE, alone)).await,
                            None => None,
                        };
                        lane.copy(ready, why).await
                    });
                }
                Some(Err(not_due)) => drop(self.detours.spawn(answer_not_due(Arc::clone(&self.lane), not_due))),
            }
        }
        // The broker delivers again what it has taken back.
        if is_taken_back {
            self.give_all_back();
        }
    }

    /// Gives back what has not started.
    fn give_all_back(&mut self) {
        while let Some(ready) = self.waiting.pop_front() {
            self.give_back(ready);
        }
    }

    /// Parts with what the broker has taken back: it delivers it again, perhaps to another worker.
    fn drop_taken_back(&mut self) {
        for mut ready in std::mem::take(&mut self.waiting) {
            if ready.stays_here() { self.waiting.push_back(ready) } else { self.give_back(ready) }
        }
    }

    /// Gives back the deliveries that the broker would soon take. What is paused, or held by a breaker, is no suspect: a copy takes its
    /// place where the return would count as a crash. That is so without the register, by RabbitMQ's count, and for a message without an
    /// id.
    fn give_back_late(&mut self, intake: &Intake) {
        let (is_held, has_quarantine) = (intake.is_held(), self.lane.spec.has_quarantine());
        while self.waiting.front().is_some_and(|ready| ready.work.deadline <= Instant::now())
            && let Some(ready) = self.waiting.pop_front()
        {
            let counts = has_quarantine || !ready.work.has_id;
            if is_held && counts { self.move_on(ready) } else { self.give_back(ready) }
        }
    }

    /// Releases the claims whose answers were lost. Each may have been granted, and a lease that ends while a pause or a breaker holds the
    /// event would count as a crash of an event that has never run.
    fn unclaim_waiting(&mut self) {
        while let Some(at) = self.waiting.iter().position(|ready| ready.work.token.is_some())
            && let Some(ready) = self.waiting.remove(at)
        {
            self.unclaim(ready);
        }
    }

    /// Lets an event wait that comes back to the loop. It may be older than those that wait.
    fn wait_again(&mut self, ready: Ready) {
        let place = self.waiting.partition_point(|other| other.work.deadline < ready.work.deadline);
        self.waiting.insert(place, ready);
    }

    /// Gives an event back that has not started.
    fn give_back(&mut self, mut ready: Ready) {
        if ready.work.token.is_none() {
            self.lane.counters.given_back();
            self.written(ready.into_receipt().answer(Disposition::GiveBack));
            return;
        }
        // The claim may have been granted, and only the answer was lost.
        let lane = Arc::clone(&self.lane);
        ready.work.busy = None;
        self.detours.spawn(async move {
            lane.unclaim(&mut ready).await;
            lane.answer(ready, Disposition::GiveBack).await
        });
    }

    /// Lets an event that has not started wait as a copy. RabbitMQ before 4.3 would count its return as a crash.
    fn move_on(&mut self, mut ready: Ready) {
        let lane = Arc::clone(&self.lane);
        ready.work.busy = None;
        self.detours.spawn(async move {
            lane.unclaim(&mut ready).await;
            lane.wait_as_copy(ready, Wait::Busy).await
        });
    }

    /// Takes the shared permit when it is free. Releases it while nothing may start, for an event that waits to run alone, once no
    /// handler runs here. While events are unsettled it waits up to `A_WHILE`: if the suspect kills the process, each of them
    /// counts a crash.
    fn update_permit(&mut self, intake: &Intake) {
        let may_start = matches!(intake, Intake::Open { .. }) || intake.starts() > 0;
        if self.permit.is_none() && may_start {
            self.permit = self.lane.common.isolation.try_shared().map(Arc::new);
        }
        self.wants_permit = self.permit.is_none() && may_start && !self.waiting.is_empty();
        if may_start || !self.running.is_empty() || self.permit.is_none() {
            self.yielding = None;
            return;
        }
        let is_idle = self.under_way.is_none() && self.finished.is_empty();
        let since = *self.yielding.get_or_insert_with(Instant::now);
        if is_idle || since.elapsed() >= A_WHILE {
            (self.permit, self.yielding) = (None, None);
        }
    }

    fn is_over(&self) -> bool {
        self.until.is_cancelled()
            && self.consumer.idle_until().is_some()
            && self.under_way.is_none()
            && (self.waiting.is_empty() && self.finished.is_empty())
            && (self.running.is_empty() && self.detours.is_empty())
    }
}

/// Publishes what takes the place of a delivery that holds no due event, and answers the delivery.
async fn answer_not_due(lane: Arc<Lane>, not_due: NotDue) -> Detour {
    let NotDue { receipt, instead, held: _held } = not_due;
    let disposition = lane.instead(instead).await;
    lane.answer_receipt(receipt, disposition).await;
    Detour::Over
}
