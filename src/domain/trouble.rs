//! What keeps the register from answering, in one word.

use std::fmt;

/// Why the register does not answer: the words of the log, the metrics and the documentation.
///
/// As a text it is as people say it; [`label`](Self::label) is as a metric has it.
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
    /// It cannot be reached.
    Away,
    /// It is reached, and does not answer in time.
    Slow,
    /// It takes no writes: a replica, or a master that may not write for now.
    ReadOnly,
    /// Its memory is full, and it evicts nothing.
    OutOfMemory,
    /// It loads its data, or a script of somebody else's holds it up.
    Busy,
    /// A master is gone, and nobody has taken its place yet.
    FailingOver,
    /// It answers, and does not let this client do what it asks for.
    Refusing,
}

impl Trouble {
    /// All of them.
    ///
    /// ```
    /// assert!(hatchery::Trouble::ALL.iter().all(|trouble| !trouble.label().contains(' ')));
    /// ```
    pub const ALL: [Self; 7] =
        [Self::Away, Self::Slow, Self::ReadOnly, Self::OutOfMemory, Self::Busy, Self::FailingOver, Self::Refusing];

    /// As one word, for the label of a metric.
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
