//! The state of a letter's event in the register.

use std::fmt;

use hatchery::{
    CopyVersion,
    internals::register::{Subject, state::SlotState},
};

/// Whether a letter's event is still to be handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The letter is the last copy of its event that anybody knows.
    Open,
    /// The event was handled, cancelled or replaced, or a later copy of it is in the broker: for this reason. A copy of
    /// the letter would be dropped.
    Obsolete(String),
    /// The letter is no event that could be published again, for this reason.
    Unreadable(String),
    /// The type has `register: off`, so nobody knows whether the event has run meanwhile.
    Unregistered,
    /// Redis is away.
    Unknown,
    /// The letter is a message of a source, and no event.
    Message,
}

impl Standing {
    /// Tells whether the letter's event needs the letter no more.
    #[must_use]
    pub const fn is_obsolete(&self) -> bool {
        matches!(self, Self::Obsolete(_))
    }

    /// Returns the standing of a copy, by the state of its slot.
    #[must_use]
    pub fn of(subject: &Subject, stamp: &CopyVersion, state: &SlotState) -> Self {
        let (version, generation) = (stamp.counted_version(subject), stamp.counted_generation());
        if state.stale(version, generation) || state.replaces(&subject.field(&stamp.slot), version) {
            return Self::Obsolete(state.why_dropped(version));
        }
        Self::Open
    }

    /// Returns the standing in one word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Obsolete(_) => "obsolete",
            Self::Unreadable(_) => "unreadable",
            Self::Unregistered => "unregistered",
            Self::Unknown => "unknown",
            Self::Message => "message",
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Obsolete(why) | Self::Unreadable(why) => write!(f, "{}: {why}", self.word()),
            Self::Open | Self::Unregistered | Self::Unknown | Self::Message => f.write_str(self.word()),
        }
    }
}

#[cfg(test)]
mod tests {
    use hatchery::internals::register::state::Mark;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing_is_known("i", SlotState::default(), false)]
    #[case::dead_lettered("i", state(5, false, 2), false)]
    #[case::run_now("i", state(5, false, 3), true)]
    #[case::handled("i", state(5, true, 2), true)]
    #[case::a_newer_one_ran("i", state(6, true, 0), true)]
    #[case::a_newer_one_waits("i", SlotState { newest: 6, ..state(5, false, 2) }, true)]
    #[case::served_by_a_later_run("f", SlotState { covered: 9, ..state(8, true, 0) }, true)]
    #[case::alone("e:a", SlotState { newest: 6, ..state(0, false, 2) }, false)]
    fn a_letter_is_obsolete_if_its_copy_would_be_dropped(
        #[case] slot: &str,
        #[case] state: SlotState,
        #[case] obsolete: bool,
    ) {
        let (event_type, reference) = ("mail".parse().expect("a word"), "1234".parse().ok());
        let subject = Subject { event_type, reference, id: "a".to_owned() };
        let stamp = CopyVersion { slot: slot.parse().expect("a slot"), version: 5, generation: 2 };
        let standing = Standing::of(&subject, &stamp, &state);
        assert_eq!(standing.is_obsolete(), obsolete, "{standing}");
    }

    fn state(version: i64, finished: bool, generation: i64) -> SlotState {
        SlotState { mark: Mark { version, finished, generation }, newest: version, ..SlotState::default() }
    }
}
