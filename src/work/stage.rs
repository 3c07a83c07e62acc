//! The stages of a delivery: [`Ready`], [`Claimed`], [`Ended`], [`Settled`]. Each is made from the one before it.
//!
//! An event whose run is over is acknowledged only as `Settled`. A delivery that did not run, or whose run was given up, is
//! answered by its [`Disposition`]. `Acknowledge` is safe: the event is settled, or stale.

use std::{future::pending, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use uuid::Uuid;

use super::{breaker::Ticket, busy_wait::BusyWait, lane::Lane, late::HeldRun, leases::Lease};
pub(super) use crate::ports::Disposition;
use crate::{
    domain::{
        event::Event,
        register::{Claim, ClaimAnswer, End, Settle, Terms},
        schedule::{rule::Arm, state::ScheduleState},
        settlement::{self, Decision, Failed},
        transition::Transition,
        ttl::{roughly, say},
        words::plain,
    },
    handler::Run,
    ports::{Clock, Receipt, RegisterError, TakenBack, Written},
};

/// The publish of a schedule's next event, which is returned, if there is one.
pub(super) type Arming = AbortOnDropHandle<Result<Option<(Arm, Event)>, Disposition>>;

/// A delivery that holds an event, and what the worker knows of it.
pub(super) struct Work {
    pub(super) event: Arc<Event>,
    receipt: Box<dyn Receipt>,
    /// The run, if its type has no register.
    run: Option<HeldRun>,
    delivered: Instant,
    /// When the delivery is given back if it has not started, because the broker would soon take it.
    pub(super) deadline: Instant,
    /// The token of the event's claim, from the call to its release. `None` if the register holds no claim of this delivery.
    pub(super) token: Option<Uuid>,
    /// Whether the message has an id of its own. The redelivery of one without counts as a crash.
    pub(super) has_id: bool,
    /// Whether a run of this delivery has begun here.
    pub(super) has_begun: bool,
    /// How often the register knows a start of the event that was never settled.
    pub(super) crashes: u32,
    /// Failed runs in place so far.
    tries: u32,
    /// The wait for a reference that is busy.
    pub(super) busy: Option<Box<BusyWait>>,
    /// A copy of the event that is being published. The broker has not confirmed it for so long that the event is tried again
    /// as it came. There is one copy of each delivery: a broker that is slow to confirm keeps all that it is sent.
    pub(super) copying: Option<AbortOnDropHandle<Disposition>>,
    /// The publish of the next event of a schedule, likewise.
    pub(super) arming: Option<Arming>,
    _held: Arc<()>,
}

impl Disposition {
    /// Returns what becomes of a delivery after its copy was published. If no copy could be published, the error says it.
    pub(super) fn after(published: Result<(), Self>) -> Self {
        published.err().unwrap_or(Self::AcknowledgeAtOnce)
    }
}

/// A delivery whose event is due, and waits until its handler may start.
pub(super) struct Ready {
    pub(super) work: Box<Work>,
}

impl Ready {
    /// Whether the event stays with this worker. A redelivery that has come takes the place of its delivery. If the broker has taken the
    /// delivery back, and none has come, the event may be another worker's.
    pub(super) fn stays_here(&mut self) -> bool {
        if let Some(redelivery) = self.work.run.as_ref().and_then(HeldRun::redelivery) {
            drop(std::mem::replace(&mut self.work.receipt, redelivery).acknowledge());
        }
        self.work.receipt.taken_back().is_none()
    }

    pub(super) fn new(
        event: Event,
        receipt: Box<dyn Receipt>,
        run: Option<HeldRun>,
        has_id: bool,
        ack_timeout: Duration,
        held: Arc<()>,
    ) -> Self {
        let delivered = Instant::now();
        let work = Work {
            event: Arc::new(event),
            receipt,
            run,
            delivered,
            deadline: delivered + ack_timeout / 2,
            token: None,
            has_id,
            has_begun: false,
            crashes: 0,
            tries: 0,
            busy: None,
            copying: None,
            arming: None,
            _held: held,
        };
        Self { work: Box::new(work) }
    }

    /// Returns the claim of the event. A claim without an answer keeps its token when it is repeated: it may have been granted.
    pub(super) fn claim(&mut self, alone: bool, terms: Terms) -> Claim {
        let (token, event) = (self.token(), &self.work.event);
        Claim { subject: event.subject(), stamp: event.stamp.clone(), token, due: event.due(), alone, terms }
    }

    fn token(&mut self) -> Uuid {
        *self.work.token.get_or_insert_with(Uuid::now_v7)
    }

    /// Returns the event after an answer by which the register holds no claim of it.
    fn refused(mut self) -> Self {
        self.work.token = None;
        self
    }

    /// Returns the event as one that may run, because its type has no register.
    pub(super) fn unclaimed(self) -> Claimed {
        Claimed { work: self.work, lease: None, took: None, ticket: None, schedule: None }
    }

    /// Returns an event of a type without the register as one that may run, and a decision if it has expired.
    pub(super) fn without_claim(self, lane: &Lane) -> Granted {
        let expired = expired(lane, &self.work.event, 0);
        (self.unclaimed(), expired)
    }

    /// Takes the register's answer to the event's claim, which was made at `asked`.
    pub(super) fn answered(
        mut self,
        lane: &Lane,
        answer: Result<ClaimAnswer, RegisterError>,
        asked: Instant,
    ) -> Result<Granted, (Self, NotSettled)> {
        let (fence, crashes, stamp) = match answer {
            Ok(ClaimAnswer::Run { fence, crashes, stamp }) => (fence, crashes, stamp),
            Ok(ClaimAnswer::Alone) => return Err((self.refused(), NotSettled::Alone)),
            Ok(ClaimAnswer::Busy) => return Err((self.refused(), NotSettled::Busy)),
            Ok(ClaimAnswer::Later(time)) => return Err((self.refused(), NotSettled::Later(time))),
            Ok(answer @ (ClaimAnswer::Stale | ClaimAnswer::Replaced)) => {
                return Err((self.refused(), NotSettled::Unwanted(answer)));
            }
            Err(error) => return Err((self, NotSettled::Damaged(error))),
        };
        fail_point!("work.claimed");
        (self.work.copying, self.work.crashes) = (None, crashes);
        if self.work.event.stamp != stamp {
            Arc::make_mut(&mut self.work.event).stamp = stamp;
        }
        let token = self.token();
        let lease = lane.common.leases.hold(&self.work.event, lane.terms, (token, fence), asked);
        let claimed = Claimed { lease: Some(lease), work: self.work, took: None, ticket: None, schedule: None };

        let event = claimed.event();
        if let Some(expired) = expired(lane, event, crashes) {
            return Ok((claimed, Some(expired)));
        }
        let too_often = if lane.spec.keeps_order() || crashes == 0 {
            None
        } else {
            let now = lane.common.clock.now();
            settlement::crashed(crashes, event.crashes, event.attempts, lane.spec.crash_limit, now)
        };
        // A type that keeps its order claims anew for each try.
        if too_often.is_none() && crashes > 0 && claimed.tries() == 0 {
            tracing::warn!(id = %plain(&event.id), event_type = %lane.event_type, crashes, "event runs again; it was started before and never settled");
        }
        Ok((claimed, too_often))
    }

    /// Returns the receipt of a delivery that did not run, or whose run was given up.
    pub(super) fn into_receipt(self) -> Box<dyn Receipt> {
        self.work.receipt
    }
}

/// Returns what follows if the event has expired. It was started `crashes` times and never settled.
fn expired(lane: &Lane, event: &Event, crashes: u32) -> Option<Decision> {
    event.expires?;
    let now = lane.common.clock.of_redis();
    event.expired(crashes, now).map(|at| settlement::expired(at, lane.spec.on_expiry, now))
}

/// A delivery whose event may run: the register has granted its claim, or its type has no register.
pub(super) struct Claimed {
    pub(super) work: Box<Work>,
    lease: Option<Lease>,
    /// How long the last run took. `None` if the event has not run here.
    pub(super) took: Option<Duration>,
    /// The right to run, if the type has a circuit breaker. A round of tries in place has one.
    pub(super) ticket: Option<Ticket>,
    /// The state of the event's schedule as this worker has left it.
    pub(super) schedule: Option<Box<ScheduleState>>,
}

impl Claimed {
    pub(super) fn event(&self) -> &Arc<Event> {
        &self.work.event
    }

    /// Returns the number of failed runs in place so far.
    pub(super) fn tries(&self) -> u32 {
        self.work.tries
    }

    /// Begins a run.
    pub(super) fn begin_run(&mut self, clock: &Arc<dyn Clock>) -> Run {
        self.work.has_begun = true;
        let lease = self.lease.as_ref();
        Run {
            event: Arc::clone(self.event()),
            fence: lease.map(|lease| lease.fence),
            lost: lease.map_or_else(CancellationToken::new, Lease::signal),
            cancelled: lease.map(|lease| Arc::clone(&lease.is_cancelled)),
            clock: Some(Arc::clone(clock)),
        }
    }

    /// Waits until the event is cancelled. `signal` is that of the run. Never returns if the lease is lost instead.
    pub(super) async fn cancelled(&self, signal: &CancellationToken) {
        signal.cancelled().await;
        if !self.is_cancelled() {
            pending::<()>().await;
        }
    }

    /// Waits until the event is cancelled, while it does not run.
    pub(super) async fn cancelled_between_runs(&self) {
        match &self.lease {
            Some(lease) => self.cancelled(&lease.signal()).await,
            None => pending().await,
        }
    }

    /// Tells whether the event was cancelled since it was claimed, as far as the worker has been told.
    pub(super) fn is_cancelled(&self) -> bool {
        self.lease.as_ref().is_some_and(Lease::is_cancelled)
    }

    /// Notes a failed run after which the event runs again in place.
    pub(super) fn fail(&mut self, failed: Failed) {
        Arc::make_mut(&mut self.work.event).fail(failed);
        self.work.tries += 1;
    }

    /// Returns the run as one that is over and needs no follow-up. What it comes to is told once the event is settled.
    pub(super) fn finished(self, decision: &Decision, lane: &Lane) -> Ended {
        fail_point!("work.followed-up");
        let untold = Transition::of(decision, self.took, lane.spec.retry.max_attempts);
        Ended { untold, ..self.ended(End::Finished) }
    }

    /// Returns the run as one whose follow-up is confirmed and told.
    pub(super) fn ended(self, end: End) -> Ended {
        Ended { work: self.work, lease: self.lease, end, untold: None }
    }

    /// Gives the run up. The lease is renewed until it is dropped.
    pub(super) fn given_up(self) -> (Ready, Option<Lease>) {
        (Ready { work: self.work }, self.lease)
    }
}

/// A run and how it ended.
pub(super) type Ran = (Claimed, Result<Decision, NotSettled>);

/// An event that may run, and a decision if it has expired, or crashed its worker too often to run.
pub(super) type Granted = (Claimed, Option<Decision>);

/// Why an event is not settled: the register did not grant its claim, or its run was given up. Only a failed run (`Again`) may
/// spend an attempt.
pub(super) enum NotSettled {
    /// Another event of its reference runs.
    Busy,
    /// The event must run alone.
    Alone,
    /// The event is not due by Redis's clock.
    Later(Timestamp),
    /// The event is stale or replaced.
    Unwanted(ClaimAnswer),
    /// The event's key in Redis is damaged.
    Damaged(RegisterError),
    /// The delivery is answered like this: the worker stops, the follow-up cannot be published, or the event is stale.
    Answer(Disposition),
    /// The handler is unavailable.
    Unavailable,
    /// The event's schedule does not let it run yet.
    Waits,
    /// Its type is paused, its circuit breaker lets none run, or its schedule could not be asked in time.
    Held,
    /// The run failed, and the event runs again in place after this long.
    Again(Duration),
}

/// A delivery whose run is over. Its follow-up, if it has one, is confirmed by the broker.
pub(super) struct Ended {
    work: Box<Work>,
    lease: Option<Lease>,
    end: End,
    untold: Option<Transition>,
}

impl Ended {
    /// Returns the settlement for the register. `None` if the type has no register.
    pub(super) fn settle(&self, terms: Terms) -> Option<Settle> {
        let (event, Lease { token, fence, .. }) = (&self.work.event, self.lease.as_ref()?);
        Some(Settle {
            subject: event.subject(),
            stamp: event.stamp.clone(),
            fence: *fence,
            token: *token,
            due: event.due(),
            end: self.end.clone(),
            terms,
        })
    }

    /// Returns the delivery as one that the register has settled, or that has no register, and tells it.
    pub(super) fn settled(self, lane: &Lane) -> Settled {
        if let Some(transition) = &self.untold {
            lane.common.journal.tell(&lane.counters, &self.work.event, transition);
        }
        Settled { work: self.work }
    }

    pub(super) fn id(&self) -> &str {
        &self.work.event.id
    }
}

/// A delivery that is settled.
pub(super) struct Settled {
    work: Box<Work>,
}

impl Settled {
    /// Acknowledges the delivery.
    pub(super) fn acknowledge(self) -> Written {
        fail_point!("work.settled");
        let Work { event, receipt, run, delivered, deadline, .. } = *self.work;
        let receipt = if let Some(why) = receipt.taken_back() {
            log_late(&event, &why, delivered, deadline);
            run.and_then(HeldRun::settled_late).unwrap_or(receipt)
        } else if let Some(redelivery) = run.as_ref().and_then(HeldRun::redelivery) {
            // The connection of this delivery is lost, though the worker has not noticed it yet.
            drop(receipt.acknowledge());
            redelivery
        } else {
            receipt
        };
        let written = receipt.acknowledge();
        fail_point!("work.acknowledged");
        written
    }
}

/// Logs that an event was settled after RabbitMQ had taken its delivery back. If the connection is lost, the log says that.
fn log_late(event: &Event, why: &TakenBack, delivered: Instant, deadline: Instant) {
    let (id, event_type) = (plain(&event.id), &event.event_type);
    match why {
        TakenBack::Ended(why) => {
            let (after, ack_timeout) = (roughly(delivered.elapsed()), say((deadline - delivered) * 2));
            tracing::warn!(%id, %event_type, why, "event done {after} after its delivery, and RabbitMQ took its delivery back before: its consumer_timeout must not be below ack-timeout, which is {ack_timeout}");
        }
        TakenBack::Lost => tracing::debug!(%id, %event_type, "event done after its connection was lost"),
    }
}

/// How a task beside the event loop ended.
pub(super) enum Detour {
    /// The delivery is answered.
    Over,
    /// The event may be claimed.
    Ready(Ready),
    /// The follow-up is confirmed.
    Ended(Ended),
}
