//! What must hold, and the account that it is checked against: what was confirmed, started, handled and cancelled.

use std::fmt;

use crate::{
    scenario::Scenario,
    world::{Ending, Message, Phase, Place, Set, World, only},
};

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
    fn breaks(&mut self, property: Property) {
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

/// The register has let this copy start: what becomes of the world's account, and what the run stands for.
pub(crate) fn starts(world: &mut World, scenario: &Scenario, message: &Message, fence: i64) -> Set {
    let Message { event, place, version, generation, .. } = *message;
    let runs = world.workers.iter().flatten().any(|task| task.phase == Phase::Running && !task.lost);
    let account = &mut world.account;
    if scenario.exclusive && runs {
        account.breaks(Property::OneAtATime);
    }
    let started = account.started.iter_mut().find(|(of, _)| *of == place);
    match started {
        Some((_, newest)) if version < *newest => account.breaks(Property::NewestLast),
        Some((_, newest)) => *newest = version,
        None => account.started.push((place, version)),
    }
    let below = account.below.iter().any(|(of, below)| *of == place && version < *below);
    // Without a version it is out of the reach of a cancel of its reference.
    let never = !matches!(place, Place::Alone(_)) && account.never & only(event) != 0;
    if below || never {
        account.breaks(Property::CancelledStaysCancelled);
    }
    let settled = |settled: &Settled| (settled.place, settled.version) == (place, version);
    if account.settled.iter().any(|one| settled(one) && generation <= one.generation) {
        account.breaks(Property::SettledStaysSettled);
    }
    account.stands_for(message, fence)
}

/// The register was told of an end.
pub(crate) fn settled(world: &mut World, message: &Message, fence: i64, end: Ending) {
    // In slot `f` a person settles nothing where a run has begun since the person looked: that one goes on.
    let first = world.register.slots.iter().find(|(place, _)| *place == Place::First && message.place == Place::First);
    if first.is_some_and(|(_, slot)| fence < slot.covered) {
        return;
    }
    let account = &mut world.account;
    let Message { place, version, generation, .. } = *message;
    if account.redis_lost {
        return;
    }
    let generation = if end == Ending::Finished { i64::MAX } else { generation };
    match account.settled.iter_mut().find(|one| (one.place, one.version) == (place, version)) {
        Some(one) => one.generation = one.generation.max(generation),
        None => account.settled.push(Settled { place, version, generation }),
    }
}

/// What a cancel of the whole reference is about, of this place, or of an event without a version: all that has a version by now.
pub(crate) fn asked(world: &World, reached: impl Fn(Place) -> bool) -> Set {
    let given = world.account.given.iter().filter(|given| reached(given.place));
    given.fold(0, |set, given| set | given.serves | only(given.event))
}

/// A cancel has had its effect, and its caller does not know: nothing is promised, and what it was asked for may be gone.
pub(crate) fn cancelled_unheard(world: &mut World, asked: Set) {
    world.account.cancelled |= asked;
}

/// A cancel has returned. `all` is a cancel of the whole reference, which reaches what a running handler will ask for, too.
pub(crate) fn cancelled(world: &mut World, places: &[Place], all: bool, below: i64) {
    let account = &mut world.account;
    let mut set = 0;
    for given in &account.given {
        let reached = all || places.contains(&given.place);
        if reached {
            set |= given.serves | only(given.event);
            account.never |= if all { only(given.event) } else { 0 };
        }
    }
    for place in places {
        if let Place::Alone(event) = place {
            set |= only(*event);
        }
        account.below.retain(|(of, _)| of != place);
        account.below.push((*place, below));
    }
    account.cancelled |= set;
    if account.redis_lost {
        account.never = 0;
        account.below.clear();
    }
}

/// Nothing more can happen: is everything accounted for?
pub(crate) fn at_the_end(world: &World) -> Option<Property> {
    let account = &world.account;
    let letters = world.letters.iter().fold(0, |set, letter| set | letter.serves | only(letter.event));
    let lost = account.confirmed & !(account.handled | account.cancelled | letters);
    (lost != 0).then_some(Property::NothingLost)
}
