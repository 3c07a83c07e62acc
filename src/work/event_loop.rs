//! The event loop of a lane: one task that owns all events of one type in this worker.
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

mod runs;
mod turn;
mod turns;

use std::{collections::VecDeque, sync::Arc};

use backon::{BackoffBuilder as _, ExponentialBackoff};
use futures_util::future::BoxFuture;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use self::turn::{Turned, turned};
use super::{
    common::Holding,
    consumer::{Consumed, Consumer},
    execute::RunResult,
    isolation::{A_WHILE, Permit},
    lane::Lane,
    open::{Instead, Opened},
    stage::{Claimed, Confirmed, Detour, Disposition, Ready},
};
use crate::{
    outage::{Health, Known, backoff},
    ports::{Delivery, Receipt, Written},
};

/// Consumes a type and works on its events until `until` is cancelled, and until then nothing is held any more.
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
    /// How many of them wait for a reference that is busy.
    busy: usize,
    /// The call to the register that is under way.
    turn: Option<BoxFuture<'static, Turned>>,
    /// How many events it claims.
    claiming: usize,
    /// When the next call may be made after one that had no answer.
    turn_at: Option<Instant>,
    pauses: ExponentialBackoff,
    running: JoinSet<(Claimed, RunResult)>,
    /// Events that wait for their next try in place. They keep their places.
    resting: usize,
    /// Those of them whose pause is over.
    again: VecDeque<Claimed>,
    /// Places that stay empty because a handler found no room.
    cooling: usize,
    finished: VecDeque<Confirmed>,
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
            busy: 0,
            turn: None,
            claiming: 0,
            turn_at: None,
            pauses: backoff().build(),
            running: JoinSet::new(),
            resting: 0,
            again: VecDeque::new(),
            cooling: 0,
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
            self.advance();
            if self.is_over() {
                break;
            }
            let (wants_permit, is_stopping) = (self.wants_permit(), until.is_cancelled());
            let wake = self.wake_at();
            tokio::select! {
                biased;
                () = until.cancelled(), if !is_stopping => {}
                _ = self.health.changed() => {}
                _ = self.isolated.changed() => {}
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                turned = turned(&mut self.turn) => self.turned(turned),
                Some(ran) = self.running.join_next() => {
                    self.ran(ran);
                    while let Some(ran) = self.running.try_join_next() {
                        self.ran(ran);
                    }
                }
                Some(detour) = self.detours.join_next() => self.came_back(detour),
                permit = common.isolation.shared(), if wants_permit => self.permit = Some(Arc::new(permit)),
                consumed = self.consumer.next(&mut batch) => self.consumed(&consumed, &mut batch),
            }
        }
        for written in self.written {
            written.await;
        }
    }

    fn stops(&self) -> bool {
        self.lane.common.stop.is_cancelled()
    }

    fn health(&mut self) -> Health {
        if self.lane.spec.register { self.health.borrow_and_update().health() } else { Health::Up }
    }

    /// Does all that can be done now.
    fn advance(&mut self) {
        let health = self.health();
        self.consume(health);
        self.give_back_late();
        self.share_permit();
        while let Some(claimed) = self.again.pop_front() {
            self.resting -= 1;
            self.start(claimed);
        }
        if self.lane.spec.register {
            self.begin_turn(health);
        } else {
            while self.free() > 0 && self.may_start() {
                let Some(ready) = self.waiting.pop_front() else { break };
                self.start(ready.claimed(None));
            }
            while let Some(confirmed) = self.finished.pop_front() {
                self.acknowledge(confirmed.settled());
            }
        }
    }

    /// Opens or leaves the consumer, as the worker's stop and Redis demand.
    fn consume(&mut self, health: Health) {
        match self.consumer.is_probe() {
            _ if self.until.is_cancelled() => self.consumer.leave(),
            // What waits goes back. What runs goes on. A probe keeps its event, and asks again.
            Some(false) if health == Health::Down => self.consumer.leave(),
            Some(true) if health == Health::Up => self.consumer.leave(),
            None if health != Health::Down && self.consumer.idle_until().is_some_and(|at| at <= Instant::now()) => {
                self.consumer.open(health == Health::Probing);
            }
            _ => {}
        }
        let is_probing = self.consumer.is_probe() == Some(true);
        if self.stops() || (health == Health::Down && !is_probing) {
            self.give_all_back();
        }
    }

    /// Takes what the consumer has brought.
    fn consumed(&mut self, consumed: &Consumed, batch: &mut Vec<Delivery>) {
        for delivery in batch.drain(..) {
            match self.lane.open(delivery) {
                Opened::Ready(ready) => self.waiting.push_back(ready),
                Opened::Copy(ready, why) => {
                    self.detours.spawn(Arc::clone(&self.lane).copy(ready, why));
                }
                Opened::Over(receipt, instead, held) => {
                    self.detours.spawn(answer_instead(Arc::clone(&self.lane), receipt, instead, held));
                }
            }
        }
        // The broker has taken the deliveries back by itself, and delivers them again.
        if let Consumed::Ended { outlived: false } = consumed {
            self.give_all_back();
        }
    }

    /// Gives back what has not started.
    fn give_all_back(&mut self) {
        while let Some(ready) = self.waiting.pop_front() {
            self.give_back(ready);
        }
    }

    /// Gives back what the broker would soon take.
    fn give_back_late(&mut self) {
        while self.waiting.front().is_some_and(|ready| ready.deadline <= Instant::now()) {
            self.waiting.pop_front().into_iter().for_each(|ready| self.give_back(ready));
        }
    }

    /// Lets an event wait that was on its way already, at its place among those that wait: it may be older than they are.
    fn wait_again(&mut self, ready: Ready) {
        let place = self.waiting.partition_point(|other| other.deadline < ready.deadline);
        self.waiting.insert(place, ready);
    }

    fn give_back(&mut self, mut ready: Ready) {
        self.end_busy(&mut ready);
        if !ready.is_claim_open {
            self.lane.common.counters.given_back();
            self.written(Disposition::GiveBack.answer(ready.0.into_receipt()));
            return;
        }
        // The claim may have been granted, and only the answer was lost.
        let lane = Arc::clone(&self.lane);
        self.detours.spawn(async move {
            lane.unclaim(&mut ready).await;
            lane.answer(ready.0, Disposition::GiveBack).await;
            Detour::Over
        });
    }

    /// Gives the shared permit up for an event that waits to run alone, as soon as nothing runs here. What is not settled by
    /// then keeps it for a while: if the suspect kills the process, that counts as a crash of what is not settled.
    fn share_permit(&mut self) {
        let is_wanted = self.lane.common.isolation.is_wanted();
        let runs = !self.running.is_empty() || self.resting > 0;
        if !is_wanted || runs || self.permit.is_none() {
            self.yielding = None;
            if self.permit.is_none() && !is_wanted {
                self.permit = self.lane.common.isolation.try_shared().map(Arc::new);
            }
            return;
        }
        let is_idle = self.turn.is_none() && self.finished.is_empty();
        let since = *self.yielding.get_or_insert_with(Instant::now);
        if is_idle || since.elapsed() >= A_WHILE {
            self.permit = None;
        }
    }

    fn wants_permit(&self) -> bool {
        self.permit.is_none() && !self.waiting.is_empty()
    }

    fn may_start(&self) -> bool {
        self.permit.is_some() && !self.lane.common.isolation.is_wanted()
    }

    /// The number of events that may start beside those that run.
    fn free(&self) -> usize {
        self.lane.concurrency.saturating_sub(self.running.len() + self.claiming + self.resting + self.cooling)
    }

    /// Returns when something is to be done that nothing else wakes the lane for.
    fn wake_at(&self) -> Option<Instant> {
        let may_consume =
            !self.until.is_cancelled() && (!self.lane.spec.register || self.health.borrow().health() != Health::Down);
        let times = [
            self.consumer.idle_until().filter(|_| may_consume),
            self.turn_at.filter(|_| self.turn.is_none()),
            self.waiting.front().map(|ready| ready.deadline),
            self.yielding.map(|since| since + A_WHILE),
        ];
        times.into_iter().flatten().min()
    }

    fn is_over(&self) -> bool {
        self.until.is_cancelled()
            && self.consumer.idle_until().is_some()
            && self.turn.is_none()
            && (self.waiting.is_empty() && self.again.is_empty() && self.finished.is_empty())
            && (self.running.is_empty() && self.detours.is_empty())
    }
}

/// Publishes what takes the place of a message that holds no due event, and answers the delivery.
async fn answer_instead(lane: Arc<Lane>, receipt: Box<dyn Receipt>, instead: Instead, _held: Holding) -> Detour {
    let disposition = lane.instead(instead).await;
    lane.answer_receipt(receipt, disposition).await;
    Detour::Over
}
