//! Makes the register's calls, by the rules of the scenario.

use std::time::Duration;

use hatchery::internals::register::{
    Cancel, Claim, ClaimAnswer, CopyVersion, DedupSlot, End, Later as PutOff, Note, Postponed, Record, Release, Renew,
    Renewed, Reserve, Reserved, Settle, Stage, Subject,
    state::{self, END_OF_TIME, Shard},
    transitions::At,
};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{
    message::{Message, Place, Tick},
    scenario::Scenario,
    world::{Doing, Ending, Holder, Lease, Register, World},
};

/// The number of versions within a tick, more than a path ever uses.
const VERSIONS: i64 = 1_000_000;

/// Returns the time at which a tick begins, in ms.
pub(crate) fn millis(tick: Tick) -> i64 {
    i64::from(tick) * 1_000
}

/// Returns the time at which a tick begins.
pub(crate) fn time(tick: Tick) -> Timestamp {
    Timestamp::from_second(tick.into()).unwrap_or_default()
}

/// Returns the token with this number.
pub(crate) fn uuid(token: u8) -> Uuid {
    Uuid::from_u128(token.into())
}

impl Place {
    /// Returns the slot as the library has it.
    pub(crate) fn slot(self) -> DedupSlot {
        match self {
            Self::Immediate => DedupSlot::Immediate,
            Self::First => DedupSlot::First,
            Self::Dated => DedupSlot::Dated,
            Self::DatedAt(tick) => DedupSlot::DatedAt(millis(tick)),
            Self::RequeuedAt(tick) => DedupSlot::RequeuedAt(millis(tick)),
            Self::Alone(event) => DedupSlot::Event(id(event)),
        }
    }

    fn of(slot: &DedupSlot) -> Option<Self> {
        let tick = |ms: &i64| Tick::try_from(ms / 1_000).ok();
        match slot {
            DedupSlot::Immediate => Some(Self::Immediate),
            DedupSlot::First => Some(Self::First),
            DedupSlot::Dated => Some(Self::Dated),
            DedupSlot::DatedAt(ms) => tick(ms).map(Self::DatedAt),
            DedupSlot::RequeuedAt(ms) => tick(ms).map(Self::RequeuedAt),
            DedupSlot::Event(id) => event(id).map(Self::Alone),
        }
    }

    /// Returns the slot with this home and this field.
    fn named(home: &str, field: &str) -> Option<Self> {
        match field {
            "e" => event(home.rsplit_once(':')?.1).map(Self::Alone),
            field => Self::of(&field.parse().ok()?),
        }
    }
}

fn id(event: u8) -> String {
    event.to_string()
}

fn event(id: &str) -> Option<u8> {
    id.parse().ok()
}

/// Returns the subject of a call about an event. All events have one reference.
pub(crate) fn subject(event: u8) -> Subject {
    let reference = "r".parse().ok();
    Subject { event_type: word(), reference, id: id(event) }
}

#[expect(clippy::expect_used, reason = "a word is a word")]
fn word() -> hatchery::internals::words::EventType {
    "t".parse().expect("one word")
}

impl Message {
    pub(crate) fn stamp(&self) -> CopyVersion {
        CopyVersion { slot: self.place.slot(), version: self.version, generation: self.generation }
    }
}

impl Register {
    /// Converts the register to the library's form.
    pub(crate) fn open(&self, scenario: &Scenario, last: i64) -> Shard {
        let mut shard = Shard { last, ..Shard::default() };
        let subject = subject(0);
        for (place, slot) in &self.slots {
            let slot_name = place.slot();
            shard.slots.insert((subject.home(&slot_name).to_string(), slot_name.field()), slot.clone());
        }
        for lease in &self.leases {
            let Lease { holder, token, place, version, generation, fence, crashes } = *lease;
            let stored = state::Lease {
                token: uuid(token),
                until: END_OF_TIME,
                field: place.slot().field(),
                version,
                generation,
                fence,
                crashes,
            };
            let whose = match holder {
                Holder::Reference => subject.home(&DedupSlot::Immediate).lease(),
                Holder::Event(event) => crate::register::subject(event).leaseholder(&scenario.terms()).lease(),
            };
            shard.leases.insert(whose, stored);
        }
        shard
    }

    /// Converts the library's form back, sorted and without expired slots.
    pub(crate) fn close(shard: Shard, now: i64) -> Self {
        let slots = shard.slots.into_iter().filter(|(_, slot)| slot.until > now);
        let mut slots: Vec<_> =
            slots.filter_map(|((home, field), slot)| Some((Place::named(&home, &field)?, slot))).collect();
        slots.sort_by_key(|(place, _)| *place);
        let leases = shard.leases.into_iter().filter_map(|(name, lease)| {
            let (home, event_id) = name.rsplit_once(':')?;
            let holder = if home.ends_with('r') { Holder::Reference } else { Holder::Event(event(event_id)?) };
            let alone = format!("t:i:{event_id}");
            Some(Lease {
                holder,
                token: u8::try_from(lease.token.as_u128()).ok()?,
                place: match Place::named(&alone, &lease.field) {
                    Some(place) => place,
                    // An `e:` slot whose lease is held by the reference. Nothing tells which event it is.
                    None => Place::Alone(u8::MAX),
                },
                version: lease.version,
                generation: lease.generation,
                fence: lease.fence,
                crashes: lease.crashes,
            })
        });
        let mut leases: Vec<_> = leases.collect();
        leases.sort_unstable();
        Self { slots, leases }
    }
}

impl World {
    /// Returns the last version that was given out in this tick.
    pub(crate) fn highest(&self) -> i64 {
        i64::from(self.now) * VERSIONS + self.given
    }

    /// Makes a call. The clock of Redis is always above the versions that it has given out, even after it has lost all
    /// data, because the servers' clocks agree (`docs/register.md`).
    pub(crate) fn ask<A>(&mut self, scenario: &Scenario, call: impl FnOnce(&mut Shard, At) -> A) -> A {
        let base = i64::from(self.now) * VERSIONS;
        let at = At { micros: base + self.given + 1, backlog_retention: scenario.backlog_retention() };
        let mut shard = self.register.open(scenario, 0);
        let answer = call(&mut shard, at);
        self.given = self.given.max(shard.last % VERSIONS);
        self.register = Register::close(shard, millis(self.now));
        answer
    }

    pub(crate) fn reserve(
        &mut self,
        scenario: &Scenario,
        event: u8,
        place: Place,
        due: Tick,
        asked_by: Option<CopyVersion>,
    ) -> Reserved {
        let call =
            Reserve { subject: subject(event), slot: place.slot(), due: time(due), asked_by, terms: scenario.terms() };
        self.ask(scenario, |shard, at| scenario.protocol.rules.reserve(shard, at, &call))
    }

    pub(crate) fn record(&mut self, scenario: &Scenario, event: u8, place: Place, version: i64, due: Tick) {
        let (subject, slot, due) = (subject(event), place.slot(), time(due));
        let call = Record { subject, slot, version, due, reason: None, kept: None, terms: scenario.terms() };
        self.ask(scenario, |shard, at| scenario.protocol.rules.record(shard, at, &call));
    }

    pub(crate) fn claim(&mut self, scenario: &Scenario, message: &Message, token: u8, alone: bool) -> ClaimAnswer {
        let call = Claim {
            subject: subject(message.event),
            stamp: message.stamp(),
            token: uuid(token),
            due: time(message.due),
            alone,
            terms: scenario.terms(),
        };
        self.ask(scenario, |shard, at| scenario.protocol.rules.claim(shard, at, &call))
    }

    pub(crate) fn renew(&mut self, scenario: &Scenario, doing: &Doing) -> Renewed {
        let Doing { message, token, .. } = doing;
        let (subject, stamp, due) = (subject(message.event), message.stamp(), time(message.due));
        let call = Renew { subject, stamp, token: uuid(*token), due, terms: scenario.terms() };
        self.ask(scenario, |shard, at| scenario.protocol.rules.renew(shard, at, &call))
    }

    pub(crate) fn release(&mut self, scenario: &Scenario, doing: &Doing) {
        let Doing { message, token, .. } = doing;
        let (subject, stamp, due) = (subject(message.event), message.stamp(), time(message.due));
        let call = Release { subject, stamp, token: uuid(*token), due, terms: scenario.terms() };
        self.ask(scenario, |shard, at| scenario.protocol.rules.release(shard, at, &call));
    }

    pub(crate) fn settle(&mut self, scenario: &Scenario, message: &Message, fence: i64, token: u8, end: Ending) {
        let end = match end {
            Ending::Finished => End::Finished,
            Ending::Copied(due) => End::Copied {
                due: time(due),
                note: Note { stage: Stage::Retry, attempts: message.attempts.into(), reason: None },
            },
        };
        let call = Settle {
            subject: subject(message.event),
            stamp: message.stamp(),
            fence,
            token: uuid(token),
            due: time(message.due),
            end,
            terms: scenario.terms(),
        };
        self.ask(scenario, |shard, at| scenario.protocol.rules.settle(shard, at, &call));
    }

    pub(crate) fn put_off(&mut self, scenario: &Scenario, message: &Message, to: Tick) -> Postponed {
        let (subject, stamp) = (subject(message.event), message.stamp());
        let call = PutOff { subject, stamp, at: time(to) };
        self.ask(scenario, |shard, at| scenario.protocol.rules.later(shard, at, &call))
    }

    /// Cancels, and returns the slots that were cancelled.
    pub(crate) fn cancel(&mut self, scenario: &Scenario, subject: Subject, slot: Option<DedupSlot>) -> Vec<Place> {
        let call = Cancel { subject, slot, due: None, horizon: Duration::from_secs(8) };
        let cancelled = self.ask(scenario, |shard, at| scenario.protocol.rules.cancel(shard, at, &call));
        cancelled.iter().filter_map(|cancelled| Place::of(&cancelled.slot)).collect()
    }
}

/// Returns the subject with an event's id alone, as a cancel by id has it.
pub(crate) fn by_id(event: u8) -> Subject {
    Subject { reference: None, ..subject(event) }
}
