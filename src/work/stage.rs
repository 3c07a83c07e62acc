//! The stages of a delivery: [`Ready`], [`Claimed`], [`Confirmed`], [`Settled`]. Each is made from the one before it, and only
//! a settled delivery can be acknowledged, so the order of effects cannot be changed by mistake.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::{busy_wait::BusyWait, common::Holding, leases::Lease};
use crate::{
    domain::{
        event::Event,
        register::{Claim, End, Settle, Terms},
    },
    ports::{Receipt, Written},
};

/// A delivery that holds an event, and what the worker knows of it.
pub(super) struct Work {
    pub(super) event: Arc<Event>,
    receipt: Box<dyn Receipt>,
    /// When the delivery is better given back, because the broker would soon take it.
    pub(super) deadline: Instant,
    /// The token of the event's claims.
    pub(super) token: Uuid,
    /// Whether a claim was sent and not answered. It may have been granted.
    pub(super) is_claim_open: bool,
    /// Failed runs in place so far.
    pub(super) tries: u32,
    /// The wait for a reference that is busy.
    pub(super) busy: Option<Box<BusyWait>>,
    /// A copy of the event that is being published. The broker has not confirmed it for so long that the event is tried again
    /// as it came. There is one copy of each delivery: a broker that is slow to confirm keeps all that it is sent.
    pub(super) copying: Option<AbortOnDropHandle<Disposition>>,
    _held: Holding,
}

/// What becomes of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    /// The delivery is acknowledged: it is settled, or a copy of it is in the broker.
    Acknowledge,
    /// The broker itself dead-letters the message unchanged.
    Reject,
    /// The delivery returns to its queue.
    GiveBack,
}

impl Work {
    pub(super) fn new(event: Event, receipt: Box<dyn Receipt>, deadline: Instant, held: Holding) -> Self {
        Self {
            event: Arc::new(event),
            receipt,
            deadline,
            token: Uuid::now_v7(),
            is_claim_open: false,
            tries: 0,
            busy: None,
            copying: None,
            _held: held,
        }
    }

    /// Returns the receipt of a delivery that was not run, or whose run was given up.
    pub(super) fn into_receipt(self) -> Box<dyn Receipt> {
        self.receipt
    }
}

impl Disposition {
    /// Answers a delivery.
    pub(super) fn answer(self, receipt: Box<dyn Receipt>) -> Written {
        match self {
            Self::Acknowledge => receipt.acknowledge(),
            Self::Reject => receipt.reject(),
            Self::GiveBack => receipt.requeue(),
        }
    }
}

/// A delivery whose event is due, and waits until its handler may start.
pub(super) struct Ready(pub(super) Box<Work>);

impl Ready {
    /// Returns the claim of the event.
    pub(super) fn claim(&self, alone: bool, terms: Terms) -> Claim {
        let Work { event, token, .. } = &*self.0;
        Claim { subject: event.subject(), stamp: event.stamp.clone(), token: *token, due: event.due(), alone, terms }
    }

    /// Gives the next claim a token of its own.
    pub(super) fn renew_token(&mut self) {
        (self.0.token, self.0.is_claim_open) = (Uuid::now_v7(), false);
    }

    /// Returns the event as one that may run. Without the register there is no lease.
    pub(super) fn claimed(self, lease: Option<Lease>) -> Claimed {
        Claimed { work: self.0, lease }
    }
}

/// A delivery whose event may run: the register has granted its claim, or its type has no register.
pub(super) struct Claimed {
    pub(super) work: Box<Work>,
    pub(super) lease: Option<Lease>,
}

impl Claimed {
    /// Returns the run as one that is over, and whose follow-up, if it has one, is confirmed by the broker.
    pub(super) fn confirmed(self, end: End) -> Confirmed {
        Confirmed { work: self.work, lease: self.lease, end }
    }
}

/// A delivery whose run is over and whose follow-up is in the broker.
pub(super) struct Confirmed {
    work: Box<Work>,
    lease: Option<Lease>,
    end: End,
}

impl Confirmed {
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

    /// Returns the delivery as one that the register has settled, or that has no register.
    pub(super) fn settled(self) -> Settled {
        Settled(self.work)
    }

    pub(super) fn id(&self) -> &str {
        &self.work.event.id
    }
}

/// A delivery that is settled.
pub(super) struct Settled(Box<Work>);

impl Settled {
    /// Returns the delivery of an event that was cancelled or settled by another run meanwhile.
    pub(super) const fn of_stale(work: Box<Work>) -> Self {
        Self(work)
    }

    /// Acknowledges the delivery.
    pub(super) fn acknowledge(self) -> Written {
        self.0.receipt.acknowledge()
    }

    /// Returns the delivery, which is to be acknowledged.
    pub(super) fn into_work(self) -> Work {
        *self.0
    }
}

/// How a task beside the lane ended.
pub(super) enum Detour {
    /// The delivery is answered.
    Over,
    /// The event may be claimed.
    Ready(Ready),
    /// The follow-up is confirmed.
    Confirmed(Confirmed),
    /// The event is tried again in place.
    Again(Claimed),
    /// The event was given back instead of being tried again in place.
    GivenUp,
    /// The place of a handler that found no room is free again.
    Cooled,
}

impl Deref for Ready {
    type Target = Work;

    fn deref(&self) -> &Work {
        &self.0
    }
}

impl DerefMut for Ready {
    fn deref_mut(&mut self) -> &mut Work {
        &mut self.0
    }
}
