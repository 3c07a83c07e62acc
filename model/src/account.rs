//! The account that the properties are checked against: which events were confirmed, started, handled and cancelled.

use std::fmt;

use crate::message::{Message, Place, Set, only};

/// A property of every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Property {
    /// Under every fault an event whose publish was confirmed is handled to the end, is in dead-letter, was cancelled,
    /// or was replaced by a newer event of its slot for which the same holds.
    NothingLost,
    /// After a payload has started, no older payload of its slot starts.
    NewestLast,
    /// Two handlers of one reference never run at once while their leases hold.
    OneAtATime,
    /// A cancelled event never starts after the cancel returned.
    CancelledStaysCancelled,
    /// An event that was settled as done never starts again, nor does a copy that was settled as followed by another.
    SettledStaysSettled,
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingLost => "a confirmed event is lost",
            Self::NewestLast => "an older payload starts after a newer one of its slot",
            Self::OneAtATime => "two handlers of one reference run at once while both leases hold",
            Self::CancelledStaysCancelled => "a cancelled event starts",
            Self::SettledStaysSettled => "a settled copy starts again",
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
    /// No copy of this generation or a lower one may start. The highest number means that the event is done.
    pub(crate) generation: i64,
}

/// The account of one path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Account {
    /// Redis was emptied or rolled back. From then on only [`Property::NothingLost`] must hold.
    pub(crate) redis_lost: bool,
    pub(crate) confirmed: Set,
    /// The events that a handler has run for to its end. Its run also stands for the events that its own event
    /// replaced.
    pub(crate) handled: Set,
    pub(crate) cancelled: Set,
    /// The events of which no copy may start, in any slot.
    pub(crate) never: Set,
    pub(crate) given: Vec<Given>,
    /// The newest version of each slot that has started.
    pub(crate) started: Vec<(Place, i64)>,
    /// The version of each cancelled slot below which no copy may start.
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

    /// Notes a version that was given out for an event, or for its requeue, which serves all events that the run stood
    /// for.
    pub(crate) fn gives(&mut self, place: Place, version: i64, event: u8, serves: Set) {
        self.given.push(Given { place, version, event, serves });
    }

    /// Returns the events that a run stands for, and notes that any later run of this version stands for them too, such as
    /// that of a copy which a person sends.
    pub(crate) fn begins(&mut self, message: &Message, fence: i64) -> Set {
        let stands = self.stands_for(message, fence);
        let (place, version) = (message.place, message.version);
        for given in self.given.iter_mut().filter(|given| (given.place, given.version) == (place, version)) {
            given.serves |= stands;
        }
        stands
    }

    /// Returns the events that a run of this copy stands for: in slot `f` those that got a version before the run
    /// began, and else those with a lower version.
    pub(crate) fn stands_for(&self, message: &Message, fence: i64) -> Set {
        let limit = if message.place == Place::First { fence } else { message.version };
        let given = self.given.iter().filter(|given| given.place == message.place && given.version <= limit);
        given.fold(message.serves | only(message.event), |set, given| set | given.serves)
    }

    /// Notes that Redis has lost data.
    pub(crate) fn loses_redis(&mut self) {
        self.redis_lost = true;
        self.never = 0;
        self.started.clear();
        self.below.clear();
        self.settled.clear();
    }
}
