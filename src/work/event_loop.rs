//! The event loop: one task that owns all events of one type in this worker.
//!
//! ```text
//! deliver ─► open ─► waiting ─► claim ─► run ─► follow up ─► settle ─► acknowledge
//! ```
//!
//! The loop reads deliveries while handlers run. One call to the register settles what has run and claims what may start;
//! what comes meanwhile goes into the next call. What is rare goes on in a task of its own, a [`Detour`], and comes back to
//! the loop or ends there: copies, failures, suspects, waits.
//!
//! A crash at any point repeats work and loses nothing: a follow-up is confirmed by the broker before the event is settled,
//! and the event is settled before its delivery is acknowledged.

mod answers;
mod pace;
mod register_calls;
mod runs;

use std::{collections::VecDeque, sync::Arc};

use futures_util::future::OptionFuture;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use self::register_calls::RegisterCalls;
use super::{
    busy_wait::BusyPlaces,
    consumer::{Consumer, Probe},
    isolation::{A_WHILE, Permit},
    lane::Lane,
    not_run::Wait,
    open::{CopyReason, NotDue},
    stage::{Detour, Disposition, Ended, Ran, Ready},
};
use crate::{
    outage::{Health, Known},
    ports::{Delivery, Written},
};

/// The most events of one call to the register, of each kind. A script over them takes a few milliseconds, in which Redis
/// serves nobody else.
const LARGEST: usize = 256;

/// Consumes the type's queue until `until` is cancelled. Returns once no delivery is held.
pub(super) async fn work(lane: Arc<Lane>, until: CancellationToken) {
    Loop::new(lane, until).run().await;
}

/// The state of the loop. One task owns it.
struct Loop {
    lane: Arc<Lane>,
    until: CancellationToken,
    health: watch::Receiver<Known>,
    isolated: watch::Receiver<usize>,
    consumer: Consumer,
    /// Events that wait for a free place, in the order of their deadlines: so the first one is the first to be given back.
    waiting: VecDeque<Ready>,
    /// The places of events that wait in memory for a reference that is busy.
    busy: BusyPlaces,
    calls: RegisterCalls,
    /// The runs. An event keeps its place while it waits for its next try in place.
    running: JoinSet<Ran>,
    /// Events that wait to be settled.
    finished: VecDeque<Ended>,
    detours: JoinSet<Detour>,
    /// Held while anything is claimed or runs.
    permit: Option<Arc<Permit>>,
    /// Since when an event has been waiting to run alone, and nothing runs here.
    yielding: Option<Instant>,
    /// Answers that may not be written yet.
    written: VecDeque<Written>,
}

impl Loop {
    fn new(lane: Arc<Lane>, until: CancellationToken) -> Self {
        Self {
            until,
            health: lane.common.health.subscribe(),
            isolated: lane.common.isolation.subscribe(),
            consumer: Consumer::new(&lane),
            waiting: VecDeque::new(),
            busy: BusyPlaces::default(),
            calls: RegisterCalls::new(lane.common.register.pace()),
            running: JoinSet::new(),
            finished: VecDeque::new(),
            detours: JoinSet::new(),
            permit: None,
            yielding: None,
            written: VecDeque::new(),
            lane,
        }
    }

    async fn run(mut self) {
        let common = Arc::clone(&self.lane.common);
        let until = self.until.clone();
        let mut batch = Vec::new();
        loop {
            let next_call = self.advance();
            if self.is_over() {
                break;
            }
            let (wants_permit, is_stopping) = (self.wants_permit(), until.is_cancelled());
            let wake = self.wake_at(next_call);
            tokio::select! {
                biased;
                () = until.cancelled(), if !is_stopping => {}
                _ = self.health.changed() => {}
                _ = self.isolated.changed() => {}
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                Some(answered) = OptionFuture::from(self.calls.under_way.as_mut()) => {
                    self.answered(answered);
                    self.join_all_ready().await;
                }
                Some(ran) = self.running.join_next() => {
                    self.ran(ran);
                    self.join_all_ready().await;
                }
                Some(detour) = self.detours.join_next() => self.came_back(detour),
                permit = common.isolation.shared(), if wants_permit => self.permit = Some(Arc::new(permit)),
                is_taken_back = self.consumer.next(&mut batch) => self.consumed(is_taken_back, &mut batch),
            }
        }
        for written in self.written {
            written.await;
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

    fn stops(&self) -> bool {
        self.lane.common.stop.is_cancelled()
    }

    fn health(&mut self) -> Health {
        if self.lane.spec.register { self.health.borrow_and_update().health() } else { Health::Up }
    }

    /// Does all that can be done now. Returns when the next call to the register may begin, if something waits for it.
    fn advance(&mut self) -> Option<Instant> {
        let health = self.health();
        self.consume(health);
        self.give_back_late();
        self.update_permit();
        if self.lane.spec.register {
            return self.call_register(health);
        }
        while self.free() > 0 && self.may_start() {
            let Some(ready) = self.waiting.pop_front() else { break };
            self.start(ready.unclaimed());
        }
        while let Some(ended) = self.finished.pop_front() {
            self.acknowledge(ended.settled());
        }
        None
    }

    /// Begins a call to the register that settles what has run and claims what may start, unless one is under way. Returns
    /// when it may begin if that is later.
    fn call_register(&mut self, health: Health) -> Option<Instant> {
        let may_claim = self.may_start() && (health != Health::Down || self.consumer.is_probe() == Some(true));
        let claims = if may_claim { self.free().min(LARGEST).min(self.waiting.len()) } else { 0 };
        let settles = self.finished.len().min(LARGEST);
        let most = self.lane.concurrency.min(self.lane.prefetch.into());
        let may_begin_at = self.calls.may_begin_at(settles, claims, most)?;
        if may_begin_at > Instant::now() {
            return Some(may_begin_at);
        }
        let claims = self.waiting.drain(..claims).collect();
        let settles = self.finished.drain(..settles).collect();
        self.calls.begin(&self.lane, settles, claims);
        None
    }

    /// Opens or leaves the consumer, and gives back what has not started, as the worker's stop, Redis and the handler demand.
    fn consume(&mut self, health: Health) {
        let unavailable = self.lane.health.long_outage();
        let is_unavailable = unavailable.is_some();
        match self.consumer.is_probe() {
            _ if self.until.is_cancelled() => self.consumer.leave(),
            // Redis is down: returns the events that have not started. Running handlers go on. A probe keeps its event and
            // claims it again.
            Some(false) if health == Health::Down => self.consumer.leave(),
            // Other workers may be able to handle the events that this one holds.
            Some(false) if is_unavailable => self.consumer.leave(),
            Some(true) if health == Health::Up && !is_unavailable => self.consumer.leave(),
            None if health != Health::Down && self.consumer.idle_until().is_some_and(|at| at <= Instant::now()) => {
                let redis = (health == Health::Probing).then_some(Probe::RedisIsBack);
                self.consumer.open(unavailable.map(Probe::Unavailable).or(redis));
            }
            _ => {}
        }
        let is_probing = self.consumer.is_probe() == Some(true);
        if self.stops() || (health == Health::Down && !is_probing) {
            self.give_all_back();
        }
        if is_unavailable && !is_probing {
            while let Some(ready) = self.waiting.pop_front() {
                self.move_on(ready);
            }
        }
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

    /// Gives back the deliveries that the broker would soon take.
    fn give_back_late(&mut self) {
        while self.waiting.front().is_some_and(|ready| ready.work.deadline <= Instant::now()) {
            self.waiting.pop_front().into_iter().for_each(|ready| self.give_back(ready));
        }
    }

    /// Lets an event wait that comes back to the loop. It may be older than those that wait.
    fn wait_again(&mut self, ready: Ready) {
        let place = self.waiting.partition_point(|other| other.work.deadline < ready.work.deadline);
        self.waiting.insert(place, ready);
    }

    /// Gives an event back that has not started.
    fn give_back(&mut self, mut ready: Ready) {
        if !ready.work.is_claim_open {
            self.lane.counters.given_back();
            self.written(Disposition::GiveBack.answer(ready.into_receipt()));
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
            if ready.work.is_claim_open {
                lane.unclaim(&mut ready).await;
            }
            lane.wait_as_copy(ready, Wait::Busy).await
        });
    }

    /// Takes the shared permit when it is free. Releases it for an event that waits to run alone, once no handler runs here.
    /// While events are unsettled it waits up to `A_WHILE`: if the suspect kills the process, each of them counts a crash.
    fn update_permit(&mut self) {
        let is_wanted = self.lane.common.isolation.is_wanted();
        if !is_wanted || !self.running.is_empty() || self.permit.is_none() {
            self.yielding = None;
            if self.permit.is_none() && !is_wanted {
                self.permit = self.lane.common.isolation.try_shared().map(Arc::new);
            }
            return;
        }
        let is_idle = self.calls.under_way.is_none() && self.finished.is_empty();
        let since = *self.yielding.get_or_insert_with(Instant::now);
        if is_idle || since.elapsed() >= A_WHILE {
            self.permit = None;
        }
    }

    fn wants_permit(&self) -> bool {
        self.permit.is_none() && !self.waiting.is_empty() && !self.lane.common.isolation.is_wanted()
    }

    fn may_start(&self) -> bool {
        self.permit.is_some() && !self.lane.common.isolation.is_wanted()
    }

    /// The number of events that may start beside those that run. While the handler is unavailable, one may start after each
    /// pause.
    fn free(&self) -> usize {
        let free = self.lane.concurrency.saturating_sub(self.running.len() + self.calls.claiming);
        match self.lane.health.next_start() {
            None => free,
            Some(at) if at <= Instant::now() => free.min(1),
            Some(_) => 0,
        }
    }

    /// Returns when something is to be done that nothing else wakes the loop for.
    fn wake_at(&self, next_call: Option<Instant>) -> Option<Instant> {
        let may_consume =
            !self.until.is_cancelled() && (!self.lane.spec.register || self.health.borrow().health() != Health::Down);
        let times = [
            self.consumer.idle_until().filter(|_| may_consume),
            next_call,
            self.waiting.front().map(|ready| ready.work.deadline),
            self.yielding.map(|since| since + A_WHILE),
            self.lane.health.next_start().filter(|at| !self.waiting.is_empty() && *at > Instant::now()),
            self.lane.health.long_from().filter(|at| *at > Instant::now()),
        ];
        times.into_iter().flatten().min()
    }

    fn is_over(&self) -> bool {
        self.until.is_cancelled()
            && self.consumer.idle_until().is_some()
            && self.calls.under_way.is_none()
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
