//! A lane that keeps order (`on-failure: block`): the same stages, one event after the other, and the same event until it
//! works.
//!
//! The queue has a single active consumer, so no other worker has a delivery meanwhile. What goes back goes back with its
//! channel: RabbitMQ returns all deliveries of the channel to the head of the queue in their order, and nothing overtakes
//! (measured). A delivery that is given back by itself would come again behind those that were delivered after it.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use backon::BackoffBuilder as _;
use fail::fail_point;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    alone::Turn,
    busy_wait::looks,
    consumer::{Consumed, Consumer},
    isolation::{Permit, for_a_while},
    lane::Lane,
    not_run::Wait,
    open::{Instead, Opened},
    stage::{Disposition, Ready, Work},
};
use crate::{
    domain::{event::Event, register, ttl::roughly, words::plain},
    outage::{Health, backoff},
    ports::Receipt,
};

/// The pause before another try of an event whose handler found no room.
const NO_ROOM: Duration = Duration::from_secs(1);

/// The event at the head of the queue when it was handed back. It is likely to come again to this worker: then its failures
/// are not forgotten, and it is not tried sooner.
struct Tried {
    event: Arc<Event>,
    next: Instant,
}

/// What became of the event at the head.
enum Head {
    /// It is settled. Its delivery is answered like this.
    Over(Box<dyn Receipt>, Disposition),
    /// It goes back, with all that came after it.
    Back(Option<Tried>),
}

/// Consumes a type that keeps its order, until the worker stops.
pub(super) async fn work(lane: Arc<Lane>) {
    let (mut consumer, mut health) = (Consumer::new(&lane), lane.common.health.subscribe());
    let (stop, mut batch) = (lane.common.stop.clone(), Vec::new());
    let (mut behind, mut tried): (VecDeque<Opened>, Option<Tried>) = (VecDeque::new(), None);
    let mut head: Option<BoxFuture<'static, Head>> = None;
    // Cancelled when the event at the head is to wait no longer: everything goes back.
    let mut over = CancellationToken::new();
    loop {
        let now = if lane.spec.register { health.borrow_and_update().health() } else { Health::Up };
        if now == Health::Up {
            // It has what came with the first event, too, and goes on: handed back, that would come again for nothing.
            consumer.end_probe();
        }
        let is_down = now == Health::Down && consumer.is_probe() == Some(false);
        if stop.is_cancelled() || is_down {
            over.cancel();
        }
        if over.is_cancelled() && head.is_none() {
            for _ in behind.drain(..) {
                lane.common.counters.given_back();
            }
            consumer.close().await;
            if stop.is_cancelled() {
                return;
            }
            over = CancellationToken::new();
        }
        if head.is_none()
            && let Some(opened) = behind.pop_front()
        {
            head = Some(Box::pin(Arc::clone(&lane).until_it_works(opened, tried.take(), over.clone())));
        }
        let is_empty = head.is_none() && behind.is_empty();
        if is_empty && consumer.has_ended() {
            consumer.close().await;
            continue;
        }
        let idle = consumer.idle_until().filter(|_| is_empty && now != Health::Down);
        if idle.is_some_and(|at| at <= Instant::now()) {
            consumer.open(now == Health::Probing);
            continue;
        }
        let (is_stopping, is_leaving) = (stop.is_cancelled(), over.is_cancelled());
        tokio::select! {
            biased;
            () = stop.cancelled(), if !is_stopping => {}
            ended = ended(&mut head) => {
                head = None;
                match ended {
                    Head::Over(receipt, disposition) => lane.answer_receipt(receipt, disposition).await,
                    Head::Back(before) => {
                        lane.common.counters.given_back();
                        tried = before;
                        over.cancel();
                    }
                }
            }
            _ = health.changed() => {}
            // What comes meanwhile is read, to know since when it is here.
            consumed = consumer.next(&mut batch), if !is_leaving => {
                behind.extend(batch.drain(..).map(|delivery| lane.open(delivery)));
                if let Consumed::Ended { outlived: false } = consumed {
                    over.cancel();
                }
            }
            () = tokio::time::sleep_until(idle.unwrap_or_else(Instant::now)), if idle.is_some() => {}
        }
    }
}

/// Waits for the end of the event at the head; for ever if there is none.
async fn ended(head: &mut Option<BoxFuture<'static, Head>>) -> Head {
    match head {
        Some(head) => head.await,
        None => std::future::pending().await,
    }
}

impl Lane {
    /// Works on one delivery until it can be answered, or until everything goes back.
    async fn until_it_works(self: Arc<Self>, opened: Opened, tried: Option<Tried>, over: CancellationToken) -> Head {
        let mut ready = match opened {
            Opened::Ready(ready) | Opened::Copy(ready, _) => ready,
            Opened::Over(receipt, instead, _held) => return self.head_instead(receipt, instead).await,
        };
        let mut next = Instant::now();
        if let Some(before) = tried.filter(|tried| tried.is_about(&ready.event)) {
            let event = Arc::make_mut(&mut ready.event);
            next = before.apply(event);
        }
        loop {
            // Nothing is claimed during a pause: a pause that is cut short by a crash is no crash of the event's.
            let waited = self.unless_over(&over, ready.deadline, tokio::time::sleep_until(next)).await;
            let (answer, permit) = match waited {
                Some(()) => match self.claim_in_place(&mut ready, &over).await {
                    Some(answered) => answered,
                    None => return Head::Back(Some(Tried { event: Arc::clone(&ready.event), next })),
                },
                None => return Head::Back(Some(Tried { event: Arc::clone(&ready.event), next })),
            };
            let claimed = match answer {
                None => (ready.claimed(None), None),
                Some((register::Claimed::Run { fence, crashes, stamp }, asked)) => {
                    fail_point!("work.claimed");
                    self.grant(ready, stamp, (fence, crashes), asked)
                }
                Some((answer, _)) => {
                    drop(permit);
                    return self.head_not_granted(ready.0, &answer).await;
                }
            };
            let (turn, _permit) = self.turn(claimed, permit).await;
            let (work, pause) = match turn {
                Turn::Settled(settled) => {
                    fail_point!("work.settled");
                    return Head::Over(settled.into_work().into_receipt(), Disposition::Acknowledge);
                }
                Turn::Refused(work) => return Head::Over(work.into_receipt(), Disposition::Reject),
                Turn::GivenBack(_) => return Head::Back(None),
                Turn::NoRoom(work, reason) => {
                    self.log_no_room(&reason);
                    (work, NO_ROOM)
                }
                Turn::Again(work, after) => {
                    let (id, reason) = (&work.event.id, &work.event.reason);
                    tracing::warn!(id = %plain(id), event_type = %self.event_type, reason, "it blocks its type, and is tried again in {}", roughly(after));
                    (work, after)
                }
            };
            (ready, next) = (Ready(work), Instant::now() + pause);
        }
    }

    /// Claims the event at the head as often as it takes: what comes next waits behind it. Without the register there is
    /// nothing to claim. `None` if the event is to wait no longer: then nothing is claimed.
    async fn claim_in_place(
        &self,
        ready: &mut Ready,
        over: &CancellationToken,
    ) -> Option<(Option<(register::Claimed, Instant)>, Option<Permit>)> {
        let (mut looks, mut pauses, mut unread) = (looks().build(), backoff().build(), 0);
        loop {
            let permit = self.unless_over(over, ready.deadline, self.common.isolation.shared()).await?;
            if !self.spec.register {
                return Some((None, Some(permit)));
            }
            // The type never puts an event aside, however often its worker dies: the claim says that it is alone.
            let (answer, permit) = for_a_while(Some(permit), self.claim_one(ready, true, over)).await;
            let pause = match answer? {
                Ok((register::Claimed::Busy, _)) => looks.next(),
                Err(error) => {
                    self.log_unreadable(&ready.event, &error, unread);
                    self.unclaim(ready).await;
                    unread += 1;
                    pauses.next()
                }
                Ok(answer) if permit.is_some() => return Some((Some(answer), permit)),
                // Redis was away for longer than this event may keep others from starting.
                Ok(_) => {
                    self.unclaim(ready).await;
                    None
                }
            };
            drop(permit);
            let pause = tokio::time::sleep(pause.unwrap_or_default());
            self.unless_over(over, ready.deadline, pause).await?;
        }
    }

    /// Publishes what takes the place of a delivery at the head that holds no due event.
    async fn head_instead(&self, receipt: Box<dyn Receipt>, instead: Instead) -> Head {
        match self.instead(instead).await {
            Disposition::GiveBack => Head::Back(None),
            disposition => Head::Over(receipt, disposition),
        }
    }

    /// Decides about an event at the head whose claim the register has not granted.
    async fn head_not_granted(&self, work: Box<Work>, answer: &register::Claimed) -> Head {
        let disposition = match answer {
            register::Claimed::Stale | register::Claimed::Replaced => {
                self.drop_copy(&work.event, answer).await;
                Disposition::Acknowledge
            }
            register::Claimed::Later(time) => self.copy_until(&work.event, Wait::Until(*time)).await,
            // Not an answer to a claim that says that it is alone.
            register::Claimed::Busy | register::Claimed::Alone | register::Claimed::Run { .. } => Disposition::GiveBack,
        };
        match disposition {
            Disposition::GiveBack => Head::Back(None),
            disposition => Head::Over(work.into_receipt(), disposition),
        }
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
