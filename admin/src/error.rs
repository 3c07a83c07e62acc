//! Why a topology was not planned, applied or destroyed.

use hatchery::{
    BrokerError, ConnectError,
    internals::{safety::Unsafe, switches::NotSwitches},
};
use jiff::Timestamp;

use crate::{
    broker::declare::DeclareError,
    management::{ManagementError, ManagementUrlError},
    plan::Plan,
    results::{Doomed, Planned},
};

/// Why a topology was not planned, applied or destroyed, or only in part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The topology compiles to objects that are not safe.
    #[error(transparent)]
    Unsafe(#[from] Unsafe),
    /// A URL of the broker or of Redis is invalid, or Redis cannot be asked.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The URL of the management API is invalid.
    #[error(transparent)]
    ManagementUrl(#[from] ManagementUrlError),
    /// An error of the broker.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// An error of the management API.
    #[error(transparent)]
    Management(#[from] ManagementError),
    /// An object was refused, or the connection was lost. Nothing was written.
    #[error(transparent)]
    Declare(#[from] DeclareError),
    /// Another apply or destroy held this lock for all of the `lock_timeout`. Nothing was written.
    #[error("another apply or destroy holds {0}; nothing was written")]
    Held(String),
    /// AMQP and the management API lead to two brokers. Nothing was written.
    #[error("AMQP and the management API lead to two brokers: {0}; nothing was written")]
    TwoBrokers(String),
    /// The management API does not show the lock, which was declared over AMQP. Nothing was written.
    #[error(
        "the management API does not show the queue {0}, which was declared over AMQP a moment ago: the two URLs lead to two \
         brokers, or to two virtual hosts; nothing was written"
    )]
    NoLock(String),
    /// Another topology or broker uses the register. Nothing was written.
    #[error("{0}; nothing was written")]
    InUse(String),
    /// Some changes are blocked, or the type of a queue to prune still has events. Nothing was written.
    #[error("some changes are blocked; nothing was written")]
    Blocked(Box<Planned>),
    /// Some objects to remove are in use. Nothing was removed.
    #[error("some objects are in use; nothing was removed")]
    ObjectsInUse(Box<Doomed>),
    /// The broker has changed since the plan was made. Nothing was written.
    #[error("the broker has changed since the plan was shown; nothing was written. Run it again")]
    Stale,
    /// Some objects are written, and these are left, if they are known.
    #[error("{why}")]
    Partly {
        /// The reason why the change stopped, and the remedy.
        why: String,
        /// The objects that are left to write, if they are known.
        left: Option<Vec<String>>,
    },
    /// Some objects are removed, and others are left.
    #[error("{why}")]
    PartlyRemoved {
        /// The reason why the change stopped, and the remedy.
        why: String,
        /// The number of objects that were removed.
        removed: usize,
    },
    /// Everything is written, and the broker still differs from the file.
    #[error("written, but the broker still differs from the file. Run it again")]
    Differs(Box<Plan>),
    /// The change was told to stop.
    #[error("interrupted; the change may be partly done, and nothing is lost. Run it again with the same flags")]
    Interrupted,
    /// The broker is as the file says, and not all schedules are armed.
    #[error("the broker is as the file says, but not all schedules are armed: {0}. Run `topology apply` again")]
    NotArmed(String),
    /// The pauses of the file are not written.
    #[error(
        "the pauses of the file are not written, and other changes may be missing too: {0}. Run `topology apply` again"
    )]
    NotSwitched(String),
    /// The last message of the stream with the switches cannot be read.
    #[error(
        "{source}. If a newer version has written it, use that one; if nobody has, delete the stream {stream} and run `topology apply`, \
         which forgets the pauses"
    )]
    Switches {
        /// The stream.
        stream: String,
        /// The cause.
        source: NotSwitches,
    },
    /// The stream with the switches sends no message.
    #[error(
        "the stream with the switches is empty, or has lost the majority of its nodes: run `topology apply` if all nodes are up"
    )]
    NoSwitches,
    /// RabbitMQ does not tell how many consumers a queue has.
    #[error("nothing is known of the queue {0}: its node is down, or the user has no right on it")]
    Uncounted(String),
    /// Somebody else changed the switches for all of the `patience`, and holds this lock. Nothing was written.
    #[error("another pause or apply holds {0}; nothing was written")]
    SwitchesHeld(String),
    /// The file has no type, source or schedule of this name.
    #[error("the file has no {kind} `{name}`{}", nearest.as_ref().map(|name| format!("; is it `{name}`?")).unwrap_or_default())]
    UnknownName {
        /// `type`, `source` or `schedule`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The name of the file that is most like it.
        nearest: Option<String>,
    },
    /// The end of a pause has passed.
    #[error("the pause would have ended at {0}, which has passed; nothing was written")]
    Past(Timestamp),
}
