//! The cause of an outage of the register, in one word.

use std::fmt;

/// The cause of an outage of the register (Redis), as the log, the metrics and the documentation name it.
///
/// `Display` writes it for people; [`label`](Self::label) is the value of a metric's label.
///
/// ```
/// use hatchery::Trouble;
///
/// assert_eq!(Trouble::OutOfMemory.to_string(), "out of memory");
/// assert_eq!(Trouble::OutOfMemory.label(), "out-of-memory");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// Redis cannot be reached.
    Away,
    /// Redis is connected, but does not answer in time.
    Slow,
    /// Redis takes no writes: it is a replica, or a master that may not write for now.
    ReadOnly,
    /// The memory of Redis is full, and it evicts nothing.
    OutOfMemory,
    /// Redis loads its data, or another client's script blocks it.
    Busy,
    /// A master is gone, and no replica has taken its place yet.
    FailingOver,
    /// Redis answers, but refuses this client's commands.
    Refusing,
}

impl Trouble {
    /// Every cause.
    ///
    /// ```
    /// assert!(hatchery::Trouble::ALL.iter().all(|trouble| !trouble.label().contains(' ')));
    /// ```
    pub const ALL: [Self; 7] =
        [Self::Away, Self::Slow, Self::ReadOnly, Self::OutOfMemory, Self::Busy, Self::FailingOver, Self::Refusing];

    /// Returns the cause as a text without spaces, for the label of a metric.
    ///
    /// ```
    /// assert_eq!(hatchery::Trouble::FailingOver.label(), "failing-over");
    /// ```
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::Slow => "slow",
            Self::ReadOnly => "read-only",
            Self::OutOfMemory => "out-of-memory",
            Self::Busy => "busy",
            Self::FailingOver => "failing-over",
            Self::Refusing => "refusing",
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "out of memory",
            Self::FailingOver => "failing over",
            one_word => one_word.label(),
        })
    }
}
