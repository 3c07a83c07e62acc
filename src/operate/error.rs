//! The errors of [`Events`](super::Events).

use crate::{
    domain::words::{UnknownType, WordError},
    handler::{IntoOutcome, Outcome},
    ports::RegisterError,
    publish::published::PublishError,
};

/// Why events could not be found, cancelled or moved.
///
/// An invalid selection fails before anything is sent:
///
/// ```
/// use hatchery::{EventsError, Hatchery, EventSelector};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = "version: 1\nname: billing\ntypes: { mail: {}, print: { register: off } }";
/// let events = Hatchery::builder(hatchery::file::read(file, "topology.yaml")?).events()?;
///
/// let off = events.show(&EventSelector::reference("print", "1234")).await.expect_err("not in Redis");
/// assert!(matches!(off, EventsError::Unregistered { .. }));
/// let long = events.show(&EventSelector::id("mail", "x".repeat(256))).await.expect_err("no id");
/// assert_eq!(long.to_string(), "an id has 1 to 255 bytes, this one has 256");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventsError {
    /// The file has no such type.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// The register does not record events of this type.
    #[error("{event_type} has `register: off`: its events are in RabbitMQ alone, and cannot be looked for")]
    Unregistered {
        /// The type.
        event_type: String,
    },
    /// The reference is empty, longer than 255 bytes, or has a control character.
    #[error(transparent)]
    Reference(#[from] WordError),
    /// The id does not have 1 to 255 bytes, but this many.
    #[error("an id has 1 to 255 bytes, this one has {0}")]
    Id(usize),
    /// Immediate events of this type have no common slot, so [`EventSelector::immediate`](super::EventSelector::immediate) selects
    /// none. Select them by their ids.
    #[error(
        "immediate events of {event_type} compete with nothing (`coalesce: {{ immediate: off }}`), so there may be many of \
         one reference: name one by its id, or all events of the reference"
    )]
    Alone {
        /// The type.
        event_type: String,
    },
    /// An event with this id waits under another reference, or under another spelling of the same UUID. Nothing was cancelled.
    #[error("nothing is known by this name, but the event {known}: nothing is cancelled")]
    OtherName {
        /// The id and the reference of the waiting event.
        known: String,
    },
    /// Redis cannot be reached, or refuses the call. Some of the events may have been changed: call again.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The broker did not confirm a moved event. It may run twice: at its old time and at the new one.
    #[error("a moved event may come at both times: {0}")]
    Publish(PublishError),
}

// The text includes the cause, so there is no source: a program that prints the chain would print the cause twice.
impl From<PublishError> for EventsError {
    fn from(error: PublishError) -> Self {
        Self::Publish(error)
    }
}

impl IntoOutcome for EventsError {
    fn into_outcome(self) -> Outcome {
        Outcome::from(self)
    }
}
