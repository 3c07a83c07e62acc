//! A type that keeps its order (`on-failure: block`): the same stages, one event after the other, and the same event until it
//! works.
//!
//! The queue has a single active consumer, so no other worker has a delivery meanwhile. What goes back goes back with its
//! channel: RabbitMQ returns all deliveries of the channel to the head of the queue in their order, and nothing overtakes
//! (measured). A delivery that is given back by itself would come again behind those that were delivered after it. The queue
//! has no delivery limit, so an event is returned as often as it takes.
//!
//! A worker whose handler is unavailable for long returns its deliveries too. Another worker may reach the service, and the
//! arguments of the next consumer tell people why the events wait.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use backon::BackoffBuilder as _;
use futures_util::future::{BoxFuture, OptionFuture};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    busy_wait::looks_at_busy,
    cause::Cause,
    consumer::Consumer,
    gate::{Gate, Intake},
    lane::Lane,
    not_run::Wait,
    open::{NotDue, Opened},
    scheduled,
    stage::{Disposition, NotSettled, Ready},
};
use crate::{
    domain::{
        event::Event,
        settlement::{Decision, Finish},
    },
    outage::backoff,
    ports::Receipt,
};

/// How long a worker believes that its handler is unavailable while other workers have the events and it tries none.
const BELIEVED: Duration = Duration::from_mins(1);

/// The event at the head of the queue when it was handed back. It is likely to come again to this worker: then its failures
/// are not forgotten, and it is not tried sooner.
struct Tried {
    event: Arc<Event>,
    next: Instant,
}

/// The event at the head is answered, or all deliveries are returned.
type Head = Result<(), GivenBack>;

/// All deliveries are returned. What is known of the event at the head is kept for its next delivery.
struct GivenBack(Option<Tried>);

/// Consumes a type that keeps its order, until the worker stops.
pub(super) async fn work(lane: Arc<Lane>) {
    let (mut consumer, mut gate) = (Consumer::new(&lane), Gate::new(&lane));
    let (stop, mut batch) = (lane.common.stop.clone(), Vec::new());
    let (mut behind, mut tried): (VecDeque<Opened>, Option<Tried>) = (VecDeque::new(), None);
    let mut head: Option<BoxFuture<'static, Head>> = None;
    // Cancelled when the event at the head must not wait any longer, and all deliveries are returned.
    let mut over = CancellationToken::new();
    // When the consumer said last that the handler is unavailable, or was last asked to try. `None` if it does not say so.
    let mut told: Option<Instant> = None;
    loop {
        // One event runs at a time.
        let (intake, again, _) = gate.ask(usize::from(head.is_none()));
        let is_leaving = match &intake {
            Intake::Stop => true,
            // What has begun is finished.
            Intake::Paused { .. } => head.is_some() || consumer.is_probe().is_some(),
            Intake::Leave { .. } => consumer.is_probe() == Some(false),
            Intake::Probe { cause: Cause::RegisterIsBack, .. } => false,
            // The consumer tells whether the handler is unavailable, and is opened anew if it no longer says what is true.
            Intake::Open { .. } | Intake::Hold { .. } | Intake::Probe { .. } => {
                // The probe ends, but its deliveries stay: returned, they would only come again.
                consumer.end_probe();
                consumer.is_probe().is_some() && told.is_some() != intake.is_for_others()
            }
        };
        if is_leaving {
            over.cancel();
        }
        if over.is_cancelled() && head.is_none() {
            for _ in behind.drain(..) {
                lane.counters.given_back();
            }
            consumer.close().await;
            if stop.is_cancelled() {
                return;
            }
            (over, told) = (CancellationToken::new(), None);
        }
        if head.is_none()
            && let Some(opened) = behind.pop_front()
        {
            told = told.map(|_| Instant::now());
            head = Some(Box::pin(Arc::clone(&lane).until_it_works(opened, tried.take(), over.clone())));
        }
        let is_empty = head.is_none() && behind.is_empty();
        if is_empty && consumer.has_ended() {
            consumer.close().await;
            continue;
        }
        let may_consume = is_empty && !matches!(intake, Intake::Paused { .. } | Intake::Leave { .. });
        let idle = consumer.idle_until().filter(|_| may_consume);
        if idle.is_some_and(|at| at <= Instant::now()) {
            told = intake.is_for_others().then(Instant::now);
            consumer.open(intake.probe());
            continue;
        }
        let is_leaving = over.is_cancelled();
        let wake = idle.into_iter().chain(again).min();
        let believed = told.filter(|_| is_empty && !is_leaving).map(|told| told + BELIEVED);
        tokio::select! {
            biased;
            () = gate.changed() => {}
            Some(ended) = OptionFuture::from(head.as_mut()) => {
                head = None;
                if let Err(GivenBack(before)) = ended {
                    lane.counters.given_back();
                    tried = before;
                    over.cancel();
                }
            }
            // Reads deliveries now, to know when each arrived.
            is_taken_back = consumer.next(&mut batch), if !is_leaving => {
                behind.extend(batch.drain(..).filter_map(|delivery| lane.open(delivery)));
                if is_taken_back {
                    over.cancel();
                }
            }
            () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            () = tokio::time::sleep_until(believed.unwrap_or_else(Instant::now)), if believed.is_some() => lane.health.forget(),
        }
    }
}

impl Lane {
    /// Works on one delivery until it is answered, or until all deliveries are returned.
    async fn until_it_works(self: Arc<Self>, opened: Opened, tried: Option<Tried>, over: CancellationToken) -> Head {
        let mut ready = match opened {
            Ok((ready, _)) => ready,
            Err(NotDue { receipt, instead, held: _held }) => {
                let disposition = self.instead(instead).await;
                return self.answer_head(receipt, disposition).await;
            }
        };
        let (mut next, mut looks) = (Instant::now(), looks_at_busy().build());
        let (mut pauses, mut unread) = (backoff().build(), 0);
        if let Some(before) = tried.filter(|tried| tried.is_about(&ready.work.event)) {
            next = before.apply(Arc::make_mut(&mut ready.work.event));
        }
        loop {
            // Nothing is claimed during a pause: a pause that is cut short by a crash does not count as a crash of the event.
            if self.spec.register && self.wait_unless_cancelled(next, &ready, &over).await {
                next = Instant::now();
                // Its next claim is refused, and a refused claim does not end a run that its schedule waits for.
                let decision = Decision::Finish(Finish::Cancelled);
                if let Err(disposition) = self.end_scheduled(&ready.work.event, &decision, None).await {
                    return self.answer_head(ready.into_receipt(), disposition).await;
                }
            }
            let (end, _) = self.claim_and_run(ready, next, false, &over).await;
            let (mut kept, why) = match end {
                Ok(settled) => {
                    settled.acknowledge().await;
                    return Ok(());
                }
                Err(not_settled) => not_settled,
            };
            if matches!(why, NotSettled::Unavailable | NotSettled::Again(_) | NotSettled::Waits) {
                (looks, pauses, unread) = (looks_at_busy().build(), backoff().build(), 0);
            }
            let pause = match why {
                NotSettled::Answer(Disposition::GiveBack) => {
                    return Err(GivenBack(Some(Tried { event: Arc::clone(&kept.work.event), next })));
                }
                NotSettled::Answer(disposition) => return self.answer_head(kept.into_receipt(), disposition).await,
                NotSettled::Later(time) => {
                    let disposition = self.copy_until(&kept.work.event, Wait::Until(time)).await;
                    return self.answer_head(kept.into_receipt(), disposition).await;
                }
                NotSettled::Unwanted(answer) => {
                    self.drop_delivery(kept, answer).await;
                    return Ok(());
                }
                NotSettled::Busy | NotSettled::Alone => looks.next().unwrap_or_default(),
                NotSettled::Damaged(error) => {
                    self.log_unreadable(&kept.work.event, &error, unread);
                    self.unclaim(&mut kept).await;
                    unread += 1;
                    pauses.next().unwrap_or_default()
                }
                NotSettled::Unavailable => {
                    self.health.outage().map_or(Duration::ZERO, |outage| outage.next - Instant::now())
                }
                NotSettled::Held => Duration::ZERO,
                NotSettled::Again(after) => after,
                NotSettled::Waits => scheduled::LOOK_AGAIN,
            };
            (ready, next) = (kept, Instant::now() + pause);
        }
    }

    /// Waits with an event until its next try comes close, and looks meanwhile whether it was cancelled: then it must not keep
    /// the events behind it from running. Returns whether it was.
    async fn wait_unless_cancelled(&self, next: Instant, ready: &Ready, over: &CancellationToken) -> bool {
        let (event, until) = (&ready.work.event, next.min(ready.work.deadline));
        loop {
            let look = Instant::now() + self.terms.lease / 3;
            if look >= until || over.run_until_cancelled(sleep_until(look)).await.is_none() {
                return false;
            }
            let subject = event.subject();
            let slot = over.run_until_cancelled(self.common.register.slot(&subject, &event.stamp.slot)).await;
            let Some(slot) = slot else { return false };
            if slot.is_ok_and(|slot| slot.is_some_and(|slot| slot.cancels(event.stamp.counted_version(&subject)))) {
                return true;
            }
        }
    }

    /// Answers the delivery at the head. If it is to be given back, all deliveries are returned.
    async fn answer_head(&self, receipt: Box<dyn Receipt>, disposition: Disposition) -> Head {
        if disposition == Disposition::GiveBack {
            return Err(GivenBack(None));
        }
        self.answer_receipt(receipt, disposition).await;
        Ok(())
    }
}

impl Tried {
    fn is_about(&self, event: &Event) -> bool {
        self.event.id == event.id && self.event.stamp.generation == event.stamp.generation
    }

    /// Gives the event that was delivered again what was known of it. Returns when it is to be tried.
    fn apply(self, event: &mut Event) -> Instant {
        event.attempts = self.event.attempts;
        event.reason.clone_from(&self.event.reason);
        event.first_failure.clone_from(&self.event.first_failure);
        event.last_failure.clone_from(&self.event.last_failure);
        self.next
    }
}
