//! The state of the broker and of Redis that `status` has seen, as one plain value.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hatchery::{
    EventType, RegisterError, Trouble,
    internals::{
        breaker::{BreakerState, Phase},
        redis::ReportedClock,
        register::{ended_runs::Reported, index::TypeCounts},
        schedule::state::ScheduleState,
        switches::{Name, Pause, Paused, Switches},
        words::Word,
    },
};
use jiff::Timestamp;

use crate::{
    breakers::{BreakerInfo, Known},
    figures::{Alarm, Channel, Consumer, Figures, QueueFigures, Sample},
    live::Observed,
    names,
};

/// The state of the broker and of Redis. `None` means that a part is not known.
#[derive(Clone, Debug, Default)]
pub(super) struct Observation {
    pub(super) at: Timestamp,
    /// The virtual host.
    pub(super) vhost: String,
    /// The broker's version.
    pub(super) version: Option<String>,
    /// The figures of all queues, at one or several times, the oldest first.
    pub(super) readings: Vec<Reading>,
    /// All objects of the virtual host.
    pub(super) objects: Option<Observed>,
    /// The objects that are known to be missing, where `objects` is not known.
    pub(super) missing: Vec<String>,
    /// The channels that hold deliveries.
    pub(super) channels: Option<Vec<Channel>>,
    /// The consumers that this user may see.
    pub(super) consumers: Vec<Consumer>,
    pub(super) alarms: Option<Vec<Alarm>>,
    /// The queues without a consumer whose messages were delivered again in the last minute.
    pub(super) redelivered: BTreeSet<String>,
    /// The numbers of dead letters in the last minutes, by queue.
    pub(super) letters: BTreeMap<String, Vec<Sample>>,
    pub(super) redis: Redis,
    /// For how long Redis has run.
    pub(super) redis_up_for: Option<Duration>,
    /// The machines whose clocks differ from Redis's: that of a worker, and this one.
    pub(super) wrong_clocks: Vec<ReportedClock>,
    /// Why workers cannot read the switches.
    pub(super) switches_unread: Option<String>,
    /// The switches, if the broker tells.
    pub(super) switches: Option<Switches>,
    /// The states of the schedules, if Redis tells them.
    pub(super) schedules: Option<BTreeMap<String, ScheduleState>>,
    /// The states of the circuit breakers that workers share, if Redis tells them.
    pub(super) breakers: BTreeMap<EventType, BreakerState>,
    /// When the event of each type was due that has waited longest; `None` if none waits. A type is missing if that is not known.
    pub(super) oldest_due: BTreeMap<EventType, Option<Timestamp>>,
    /// How many events in each dead-letter queue are still to be handled, by the register.
    pub(super) open_letters: BTreeMap<String, u64>,
    /// The reports of workers and publishers in Redis: how runs ended, and when Redis was emptied.
    pub(super) reported: Reported,
    /// For each type the first event that should have run long ago.
    pub(super) overdue: Vec<OverdueEvent>,
    /// Why some of the figures are not known.
    pub(super) blind: Vec<Blind>,
}

/// The figures of all queues at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    pub(super) at: Timestamp,
    pub(super) queues: QueueFigures,
}

/// The state of Redis.
#[derive(Clone, Debug, Default)]
pub(super) enum Redis {
    /// No type uses the register.
    #[default]
    Unused,
    /// No address of Redis was given, and none answers at the default one.
    NotGiven,
    /// Redis does not answer, or refuses.
    Away {
        why: String,
    },
    /// Another broker uses the register.
    Taken {
        by: String,
    },
    There(ObservedRegister),
}

/// The register as Redis has it.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedRegister {
    pub(super) counts: BTreeMap<EventType, TypeCounts>,
    /// The eviction policy, if Redis may evict keys.
    pub(super) evicts: Option<String>,
    /// Whether a user of the register is recorded, which an emptied Redis has forgotten.
    pub(super) has_owner: bool,
    /// Why Redis takes no writes, although it answers.
    pub(super) refusal: Option<Refusal>,
}

/// Why Redis takes no writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) trouble: Trouble,
    pub(super) why: String,
}

/// The first event of a type that should have run long ago, and how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OverdueEvent {
    pub(super) event_type: EventType,
    pub(super) reference: Option<String>,
    pub(super) id: Option<String>,
    pub(super) due: Timestamp,
    /// The number of such events of the type.
    pub(super) events: usize,
    /// Whether there may be more of them: not all were looked at.
    pub(super) may_be_more: bool,
}

/// Why figures are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Blind {
    /// The management API does not answer.
    Management { why: String },
    /// The user may see only its own channels.
    Channels,
    /// The broker keeps no rates.
    Rates,
    /// This user cannot read the switches, and workers perhaps can.
    Switches { why: String },
    /// The states of the circuit breakers cannot be read.
    Breakers { why: String },
    /// Redis does not tell this.
    Register { what: &'static str, why: String },
    /// The user of Redis may not write.
    Writes,
    /// The user of Redis may not call `INFO`.
    Eviction,
}

impl Observation {
    /// Returns what Redis has told, or notes what is not known without it.
    pub(super) fn told<T>(&mut self, what: &'static str, answer: Result<T, RegisterError>) -> Option<T> {
        answer.map_err(|error| self.blind.push(Blind::Register { what, why: error.to_string() })).ok()
    }

    /// Takes the states of the breakers that workers share.
    pub(super) fn take_breakers(&mut self, breakers: Vec<BreakerInfo>) {
        for BreakerInfo { event_type, state, .. } in breakers {
            match state {
                Known::Shared(state) => drop(self.breakers.insert(event_type, state)),
                Known::NoState => {
                    let why = format!("the text of {event_type} in Redis is no state");
                    self.blind.push(Blind::Breakers { why });
                }
                Known::OfEachWorker => {}
            }
        }
    }

    /// Returns the figures of all queues at the present.
    pub(super) fn queues(&self) -> &QueueFigures {
        static NONE: QueueFigures = QueueFigures::new();
        self.readings.last().map_or(&NONE, |reading| &reading.queues)
    }

    /// Returns the figures of a queue. `None` if it does not exist, or if nothing is known of it.
    pub(super) fn queue(&self, name: &str) -> Option<&Figures> {
        self.queues().get(name)
    }

    /// Returns whether a queue of the file exists, as far as is known.
    pub(super) fn exists(&self, name: &str) -> bool {
        match &self.objects {
            Some(objects) => objects.queues.iter().any(|queue| queue.name == name),
            None => !self.missing.iter().any(|missing| missing == name),
        }
    }

    /// Returns how many messages these queues hold together. `None` if that of any of them is not known.
    pub(super) fn held<'n>(&self, queues: impl IntoIterator<Item = &'n str>) -> Option<u64> {
        queues.into_iter().map(|name| self.queue(name)?.held()).sum()
    }

    /// Returns until when a pause or a breaker may have held a type: until now if one holds it. `None` if none ever did, as far as
    /// is known.
    pub(super) fn held_until(&self, event_type: &EventType) -> Option<Timestamp> {
        let breaker = self.breakers.get(event_type).and_then(|state| match state.phase {
            Phase::Closed { at, .. } => at.and_then(|at| Timestamp::from_millisecond(at).ok()),
            Phase::Open { .. } | Phase::HalfOpen { .. } => Some(self.at),
        });
        let pause = self.switches.as_ref().and_then(|switches| match self.paused_type(event_type) {
            Some(_) => Some(self.at),
            // The number of the switches is not before the second of their last change.
            None => switches
                .pauses
                .iter()
                .filter_map(|pause| pause.until)
                .filter(|until| *until <= self.at)
                .chain(Timestamp::from_second(switches.number).ok())
                .max(),
        });
        breaker.max(pause)
    }

    /// Returns the pause of a type.
    pub(super) fn paused_type(&self, name: &Word) -> Option<&Pause> {
        self.paused(&Paused::Type(Name(name.clone())))
    }

    /// Returns the pause of a source.
    pub(super) fn paused_source(&self, name: &Word) -> Option<&Pause> {
        self.paused(&Paused::Source(Name(name.clone())))
    }

    fn paused(&self, what: &Paused) -> Option<&Pause> {
        self.switches.as_ref()?.paused(what, self.at)
    }

    /// Returns whether the type of a queue that workers consume is paused.
    pub(super) fn is_paused(&self, queue: &str) -> bool {
        let name = names::consumed_type(queue).and_then(|name| name.parse().ok());
        name.is_some_and(|name| self.paused_type(&name).is_some())
    }

    /// Returns the counts of the register for a type.
    pub(super) fn registered(&self, event_type: &EventType) -> Option<&TypeCounts> {
        match &self.redis {
            Redis::There(register) => register.counts.get(event_type),
            _ => None,
        }
    }
}
