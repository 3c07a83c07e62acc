//! The account that the properties are checked against: what was confirmed, started, handled and cancelled.

use std::fmt;

use crate::message::{Message, Place, Set, only};

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Property {
    /// Under every fault: whose publish was confirmed is handled to the end, lies in dead-letter, was replaced by a newer
    /// one of its slot of which the same can be said, or was cancelled.
    NothingLost,
    /// A newer payload is never followed by the start of an older one of its slot.
    NewestLast,
    /// Never two handlers of one reference at once, while their leases hold.
    OneAtATime,
    /// What was cancelled never starts after the cancel returned.
    CancelledStaysCancelled,
    /// What is settled as done never starts again, and no copy that was settled as followed by another.
    SettledStaysSettled,
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingLost => "a confirmed event is lost",
            Self::NewestLast => "an older payload starts after a newer one of its slot",
            Self::OneAtATime => "two handlers of one reference run at once while both leases hold",
            Self::CancelledStaysCancelled => "what was cancelled starts",
            Self::SettledStaysSettled => "what is settled starts again",
        })
    }
}

/// A version that was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Given {
    pub(crate) place: Place,
    pub(crate) version: i64,
    pub(crate) event: u8,
    pub(crate) serves: Set,
}

/// How a copy of a version was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Settled {
    pub(crate) place: Place,
    pub(crate) version: i64,
    /// No copy of this generation or a lower one; of none where it is done.
    pub(crate) generation: i64,
}

/// The account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Account {
    /// Redis was emptied or rolled back: nothing more is promised but that no event is lost.
    pub(crate) redis_lost: bool,
    pub(crate) confirmed: Set,
    /// A handler has run to its end for them, or for one that replaced them.
    pub(crate) handled: Set,
    pub(crate) cancelled: Set,
    /// Nothing at all of these may start.
    pub(crate) never: Set,
    pub(crate) given: Vec<Given>,
    /// The newest that has started of each slot.
    pub(crate) started: Vec<(Place, i64)>,
    /// Below which version a slot is cancelled.
    pub(crate) below: Vec<(Place, i64)>,
    pub(crate) settled: Vec<Settled>,
    pub(crate) broken: Option<Property>,
}

impl Account {
    pub(crate) fn breaks(&mut self, property: Property) {
        if !self.redis_lost {
            self.broken.get_or_insert(property);
        }
    }

    /// A version was given out for an event, or for the return of what it has stood for.
    pub(crate) fn gives(&mut self, place: Place, version: i64, event: u8, serves: Set) {
        self.given.push(Given { place, version, event, serves });
    }

    /// All that a run of this copy stands for. In slot `f` that is what was given a version before the run began, else
    /// what is older.
    pub(crate) fn stands_for(&self, message: &Message, fence: i64) -> Set {
        let limit = if message.place == Place::First { fence } else { message.version };
        let given = self.given.iter().filter(|given| given.place == message.place && given.version <= limit);
        given.fold(message.serves | only(message.event), |set, given| set | given.serves)
    }

    /// Redis has forgotten something.
    pub(crate) fn loses_redis(&mut self) {
        self.redis_lost = true;
        self.never = 0;
        self.started.clear();
        self.below.clear();
        self.settled.clear();
    }
}
