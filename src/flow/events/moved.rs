//! Another time for an event: the wish, and its outcome.

use std::fmt;

use jiff::Timestamp;

/// What became of an event that was to have another time.
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
    /// It waits until then, or is on its way.
    Done,
    /// It has been started: too late.
    Running,
    /// Handled, cancelled or replaced meanwhile.
    Gone,
    /// It would have to be published again, and its message is not kept. It waits as it did.
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
    /// To run now.
    Now,
    /// To run at an earlier time than it is due.
    Earlier,
    /// It is a dead letter, which nothing brings back by itself.
    DeadLetter,
}

impl fmt::Display for PayloadNotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Now => "running it now",
            Self::Earlier => "an earlier time",
            Self::DeadLetter => "bringing back a dead letter",
        };
        write!(f, "{what} takes its payload, which is not kept: see `keep-payload` of its type")
    }
}

/// When an event is to run instead.
#[derive(Clone, Copy)]
pub(super) enum To {
    /// At this time.
    At(Timestamp),
    /// At once, which is now.
    Now(Timestamp),
}

impl To {
    pub(super) const fn time(self) -> Timestamp {
        match self {
            Self::At(time) | Self::Now(time) => time,
        }
    }
}
