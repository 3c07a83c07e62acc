//! The port through which the API asks the servers of a topology, besides the publisher and the events. A topology in memory has it too.

use std::collections::BTreeMap;

use async_trait::async_trait;
use hatchery::{
    BrokerError, EventInfo, Topology,
    internals::switches::{Pause, Paused},
};

use crate::{
    dead_letters::DeliveryLimits,
    error::AdminError,
    live::Counts,
    location::QueueCounts,
    notation::Until,
    status::Status,
    switches::Switched,
    trace::{Trace, Traced},
};

/// The servers that a topology is on, as the operations ask them.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the topology.
    fn topology(&self) -> &Topology;

    /// Fails if the broker takes no messages.
    async fn require_publishing(&self) -> Result<(), BrokerError>;

    /// Looks at what is wrong, and at how many events are where.
    async fn status(&self) -> Result<Status, AdminError>;

    /// Returns the pauses that last, those of the file included.
    async fn pauses(&self) -> Result<Vec<Pause>, AdminError>;

    /// Pauses a type, a source, a schedule or everything.
    async fn pause(&self, what: Paused, reason: String, until: Option<Until>) -> Result<Switched, AdminError>;

    /// Ends the pause of a type, a source, a schedule or of everything.
    async fn resume(&self, what: Paused) -> Result<Switched, AdminError>;

    /// Returns the queues of letters that the file no longer asks for, and the policies that limit how often a letter may be looked at.
    async fn delivery_limits(&self) -> Result<DeliveryLimits, AdminError>;

    /// Returns what the stream of the life of events has recorded.
    async fn trace(&self, of: Trace) -> Result<Traced, BrokerError>;

    /// Returns the counts of the queues in which these events may be.
    async fn queue_counts(&self, events: Vec<EventInfo>) -> Result<QueueCounts, AdminError>;

    /// Returns the counts of the topology's queues, by their names.
    async fn counts(&self) -> Result<BTreeMap<String, Counts>, AdminError>;
}
