//! The state of an event, as the commands for people show it.

use std::{fmt, str::FromStr};

/// The state of the newest event of a slot, as far as the register knows.
///
/// ```
/// use hatchery::State;
///
/// assert_eq!(State::DeadLetter.to_string(), "dead-letter");
/// assert_eq!("dead-letter".parse(), Ok(State::DeadLetter));
/// // The state of an ended event is shown, but no search finds it.
/// let error = "handled".parse::<State>().expect_err("at its end");
/// assert_eq!(error.to_string(), "`handled` is none of waiting, running, retry and dead-letter");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum State {
    /// The event is published and not started: it is not due yet, or it waits for a worker.
    Waiting,
    /// The event is started and not settled yet.
    Running,
    /// The event failed and waits for its next attempt.
    Retry,
    /// The event was given up and is in the dead-letter queue.
    DeadLetter,
    /// The event is handled to the end.
    Handled,
    /// The event was cancelled.
    Cancelled,
}

impl State {
    /// The states of events that have not ended. A search finds only these.
    ///
    /// ```
    /// use hatchery::State;
    ///
    /// assert!(State::OPEN.contains(&State::Retry) && !State::OPEN.contains(&State::Cancelled));
    /// ```
    pub const OPEN: [Self; 4] = [Self::Waiting, Self::Running, Self::Retry, Self::DeadLetter];

    /// Returns the name of the state on the command line.
    ///
    /// ```
    /// assert_eq!(hatchery::State::Waiting.as_str(), "waiting");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Retry => "retry",
            Self::DeadLetter => "dead-letter",
            Self::Handled => "handled",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for a text that is not one of [`State::OPEN`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of waiting, running, retry and dead-letter")]
pub struct StateError(String);

impl FromStr for State {
    type Err = StateError;

    fn from_str(text: &str) -> Result<Self, StateError> {
        Self::OPEN.into_iter().find(|state| state.as_str() == text).ok_or_else(|| StateError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_is_written() {
        for state in State::OPEN {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert!("handled".parse::<State>().is_err());
    }
}
