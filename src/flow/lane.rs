//! A lane: one type with its handler, the state that its deliveries share, and the ways in which a delivery ends.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use super::{common::Common, cramped::Cramped};
use crate::{
    domain::{register::Terms, spec::TypeSpec, words::EventType},
    handler::Handler,
};

/// One type in a worker.
pub(super) struct Lane {
    pub(super) common: Arc<Common>,
    pub(super) event_type: EventType,
    pub(super) spec: TypeSpec,
    pub(super) terms: Terms,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) permits: Arc<Semaphore>,
    /// Places in memory for events whose reference is busy.
    pub(super) busy: Semaphore,
    pub(super) prefetch: u16,
    pub(super) cramped: Cramped,
}

/// What becomes of a delivery.
pub(super) enum Disposition {
    /// It is settled.
    Acknowledge,
    /// The broker itself puts it into dead-letter.
    Reject,
    /// It comes again, here or elsewhere.
    GiveBack,
}

/// How an event's turn ended.
pub(super) enum RunEnd {
    Settled,
    /// The broker does not take what follows. The claim is released.
    Refused,
    /// No attempt is spent.
    GivenBack,
    /// There was no room for its handler. No attempt is spent, and the claim is released.
    NotStarted,
    /// It failed, and is tried again in its place after this long. The claim is released.
    Again {
        after: Duration,
    },
}
