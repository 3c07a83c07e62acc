//! The request to move an event to another time, and its outcome.

use std::fmt;

use jiff::Timestamp;

/// The outcome of moving an event to another time.
///
/// ```no_run
/// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
/// use hatchery::{MoveOutcome, EventSelector};
///
/// for (event, moved) in events.run_now(&EventSelector::reference("hr-import", "1234")).await? {
///     match moved {
///         MoveOutcome::Done => println!("{}: on its way", event.slot),
///         MoveOutcome::Running => println!("{}: runs already", event.slot),
///         MoveOutcome::NotKept(why) => println!("{}: {why}", event.slot),
///         // Gone, and what may come to be.
///         _ => println!("{}: handled or cancelled meanwhile", event.slot),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MoveOutcome {
    /// The event waits for this time, or is on its way to a worker.
    Done,
    /// The event is already running.
    Running,
    /// The event was handled, cancelled or replaced in the meantime.
    Gone,
    /// The event would have to be published again, but its payload is not kept. It still waits for its former time.
    NotKept(PayloadNotKept),
}

/// Why an event would have to be published again.
///
/// ```
/// let why = hatchery::PayloadNotKept::Earlier.to_string();
/// assert!(why.starts_with("an earlier time takes its payload, which is not kept"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadNotKept {
    /// To run it now.
    Now,
    /// To run it before its due time.
    Earlier,
    /// To run a dead letter, whose message does not come back by itself.
    DeadLetter,
}

impl fmt::Display for PayloadNotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now => "running it now takes its payload, which is not kept: see `keep-payload` of its type",
            Self::Earlier => "an earlier time takes its payload, which is not kept: see `keep-payload` of its type",
            Self::DeadLetter => {
                "a dead letter whose payload is not kept has it in its queue alone: `topology dead-letter replay` publishes \
                 it again"
            }
        })
    }
}

/// The requested time of an event.
#[derive(Clone, Copy)]
pub(super) enum To {
    /// At this time.
    At(Timestamp),
    /// At once; the field is the time of the call.
    Now(Timestamp),
}

impl To {
    pub(super) const fn time(self) -> Timestamp {
        match self {
            Self::At(time) | Self::Now(time) => time,
        }
    }
}
