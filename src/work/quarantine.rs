//! Types with `register: off`: an event that may have killed its worker is put into quarantine, the queue `<topology>.aside.<type>`, and runs there
//! by itself. Types that keep their order put nothing there.
//!
//! No register knows what ran when a worker died, and RabbitMQ counts the death against every delivery that the worker held.
//! So an event that has come back twice is a suspect and not a culprit. It is published to the quarantine queue, where its returns
//! are counted anew, and there it is taken one at a time while the worker holds nothing else that could be counted: the
//! innocent ones run through, and the culprit alone comes back again.
//!
//! A worker does one or the other, for all such types together: it consumes their processing queues, or it empties their
//! quarantine queues. In between it finishes what it holds. (Measured: doing both by turns, with deliveries prefetched
//! meanwhile, convicts the neighbours all the same.)

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    error::WorkError,
    event_loop,
    gate::Gate,
    isolation::{Permit, for_a_while},
    lane::{Common, Lane},
    open::NotDue,
    stage::{Disposition, NotSettled, Ready},
};
use crate::{
    domain::{event::Event, settlement::crashed_alone, wire},
    ports::{BrokerError, Delivery},
};

/// How long a worker that puts nothing into quarantine itself waits at least until it looks for what another one has left
/// there, and how much longer at most.
const LOOK: Duration = Duration::from_secs(5);
const LOOK_LONGER: Duration = Duration::from_secs(10);

/// Returns how long until the next look. All workers see one and the same event, and each that sees it pauses: so they look
/// at times of their own, and the first one has taken it when the others look.
fn look() -> Duration {
    let (_, random) = Uuid::now_v7().as_u64_pair();
    LOOK + LOOK_LONGER * u32::try_from(random % 1_000).unwrap_or_default() / 1_000
}

/// Works on these types, all of which have a quarantine, until the worker stops.
pub(super) async fn work(common: Arc<Common>, lanes: Vec<Arc<Lane>>) {
    if let Some(lane) = lanes.first() {
        // What is in quarantine comes first.
        common.stop.run_until_cancelled(lane.switch.read()).await;
    }
    let mut waits = Vec::new();
    while !common.stop.is_cancelled() {
        for lane in &lanes {
            lane.empty_quarantine().await;
        }
        waits.clear();
        let over = common.stop.child_token();
        let mut consuming = JoinSet::new();
        for lane in &lanes {
            consuming.spawn(event_loop::work(Arc::clone(lane), over.clone()));
        }
        until_something_is_there(&common, &lanes, &over, &mut waits).await;
        over.cancel();
        while consuming.join_next().await.is_some() {}
    }
}

/// `waits`: what waits for a circuit breaker, so that a grant of a probe is kept for it.
async fn until_something_is_there(
    common: &Common,
    lanes: &[Arc<Lane>],
    over: &CancellationToken,
    waits: &mut Vec<Arc<()>>,
) {
    loop {
        tokio::select! {
            biased;
            () = over.cancelled() => return,
            () = common.quarantined.notified() => return,
            () = tokio::time::sleep(look()) => {}
        }
        let mut still = Vec::new();
        for lane in lanes {
            match &lane.breaker {
                _ if lane.switch.is_off() || !lane.has_quarantined().await => {}
                Some(breaker) if !breaker.may_start() => still.push(breaker.waits()),
                _ => return,
            }
        }
        *waits = still;
    }
}

impl Lane {
    /// Runs the events in quarantine, one at a time and nothing else beside it, until the queue is empty or the handler is
    /// unavailable: then the event waits for the next look. The queue is looked at first, because another worker may
    /// have emptied it meanwhile: then the other event loops do not have to pause.
    async fn empty_quarantine(self: &Arc<Self>) {
        let mut gate = Gate::new(self);
        while gate.ask(1).0.starts() > 0 && self.has_quarantined().await {
            let alone = self.common.isolation.alone();
            let Some(permit) = self.common.stop.run_until_cancelled(alone).await else { return };
            // Paused meanwhile.
            if self.switch.is_off() {
                return;
            }
            // Taken only now: if another event kills the process before this one runs, that must not count against this one.
            match self.common.broker.take(&self.quarantine()).await {
                Ok(Some(delivery)) => {
                    if self.run_quarantined(delivery, permit).await.is_break() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error @ (BrokerError::Rejected { .. } | BrokerError::Closed)) => {
                    return self.common.fail(WorkError::Broker(error));
                }
                Err(error) => return tracing::warn!(%error, "cannot read {}; trying again later", self.quarantine()),
            }
        }
    }

    /// Runs one event. Breaks off if its handler is unavailable. Nothing else runs until its delivery is acknowledged,
    /// unless the event has run and its follow-up or settlement takes long.
    async fn run_quarantined(self: &Arc<Self>, mut delivery: Delivery, permit: Permit) -> ControlFlow<()> {
        let returns = wire::returns(&delivery.message.properties);
        // It was, before it was put into quarantine, perhaps by another worker while it ran here.
        delivery.redelivered = true;
        match self.open(delivery) {
            None => ControlFlow::Continue(()),
            Some(Ok((ready, _))) => self.handle_quarantined(ready, returns, permit).await,
            Some(Err(NotDue { receipt, instead, held: _held })) => {
                let (disposition, _permit) = for_a_while(Some(permit), self.instead(instead)).await;
                self.answer_receipt(receipt, disposition).await;
                ControlFlow::Continue(())
            }
        }
    }

    async fn handle_quarantined(self: &Arc<Self>, ready: Ready, returns: u32, permit: Permit) -> ControlFlow<()> {
        let event = &ready.work.event;
        let returns = event.crashes.saturating_add(returns);
        let too_often = crashed_alone(returns, event.attempts, self.spec.crash_limit, self.common.clock.now());
        // The reason for the quarantine, which failed tries in place replace.
        let reason = event.reason.clone();
        let (end, permit) = if self.switch.is_off() {
            // Paused while the broker was asked for it.
            (Err((ready, NotSettled::Held)), Some(permit))
        } else {
            self.run_to_settlement((ready.unclaimed(), too_often), Some(permit)).await
        };
        let (mut ready, next) = match end {
            Ok(settled) => {
                settled.acknowledge().await;
                return ControlFlow::Continue(());
            }
            Err((ready, NotSettled::Answer(disposition))) if disposition != Disposition::GiveBack => {
                self.answer(ready, disposition).await;
                return ControlFlow::Continue(());
            }
            Err((ready, NotSettled::Unavailable | NotSettled::Waits | NotSettled::Held)) => {
                (ready, ControlFlow::Break(()))
            }
            Err((ready, _)) => (ready, ControlFlow::Continue(())),
        };
        if !ready.stays_here() {
            self.answer(ready, Disposition::GiveBack).await;
            return next;
        }
        // As a copy: before RabbitMQ 4.3 a delivery that is given back counts like a crash.
        self.counters.given_back();
        let copy = Event { crashes: returns, reason, ..Event::clone(&ready.work.event) };
        let (published, _permit) = for_a_while(permit, self.publish(|| self.common.routes.to_quarantine(&copy))).await;
        self.answer(ready, Disposition::after(published)).await;
        next
    }

    async fn has_quarantined(&self) -> bool {
        match self.common.broker.ready(&self.quarantine()).await {
            // What an answer of zeros hides is found at a later look.
            Ok(ready) => ready.messages > 0,
            Err(error) => {
                tracing::debug!(%error, "cannot tell whether {} is empty", self.quarantine());
                false
            }
        }
    }

    fn quarantine(&self) -> String {
        self.common.routes.names.quarantine_queue(&self.event_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_look_at_times_of_their_own() {
        let looks: Vec<_> = (0..100).map(|_| look()).collect();
        let (first, last) = (looks.iter().min().expect("some"), looks.iter().max().expect("some"));
        assert!(*first >= LOOK && *last < LOOK + LOOK_LONGER, "{looks:?}");
        assert!(*last > *first + LOOK_LONGER / 2, "{looks:?}");
    }
}
