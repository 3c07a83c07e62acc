//! The findings of `status`. `severity.rs` says how bad each is, and `words.rs` has its sentence.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::types::{in_millis, maybe_in_millis};
use crate::{
    figures::Alarm,
    plan::{Shadowing, WrongObject},
};

/// A queue and a number of messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Queue {
    /// The name of the queue.
    pub queue: String,
    /// The number of messages.
    pub messages: u64,
}

/// The dead letters of a type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Letters {
    /// The dead-letter queue.
    pub queue: String,
    /// The number of letters.
    pub messages: u64,
    /// How many of them Redis does not know to be open: their event was handled, cancelled or replaced, they are no events, or Redis has
    /// forgotten them. `null` if that is not known.
    pub not_open: Option<u64>,
    /// How many more there are than at the beginning of the last minutes; `null` if that is not known.
    pub more: Option<u64>,
    /// The length of that time in seconds.
    pub within_seconds: Option<u64>,
    /// Whether the file no longer has the type or the source of the queue.
    pub left_file: bool,
}

/// A type of which nearly all runs fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Failing {
    /// The name of the type.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The number of the last runs.
    pub ended: u64,
    /// How many of them have failed or timed out.
    pub failed: u64,
    /// Why the last one failed.
    pub error: Option<String>,
}

/// A circuit breaker that is open or half-open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OpenBreaker {
    /// The name of the type.
    #[serde(rename = "type")]
    pub event_type: String,
    /// `open`, or `half-open` once its cooldown is over: a few events are tried, as soon as workers have them.
    pub state: &'static str,
    /// When it opened.
    #[serde(serialize_with = "in_millis")]
    #[schemars(with = "String")]
    pub opened_at: Timestamp,
    /// The time since then, in words.
    #[serde(skip)]
    pub ago: String,
    /// The errors that opened it.
    pub errors: u64,
    /// The runs that they were among.
    pub runs: u64,
    /// The last reason before.
    pub reason: Option<String>,
    /// Whether it waits for a person.
    pub waits_for_a_person: bool,
}

impl OpenBreaker {
    pub(super) fn is_half_open(&self) -> bool {
        self.state == "half-open"
    }
}

/// The remedy for a stranger's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cure {
    /// Delete the policy.
    Clear,
    /// First raise the limit of the policy, with this command. A timer that it has wedged learns that its target has room when
    /// the target falls below its limit, and not when the limit goes.
    Raise(String),
    /// Keep the policy for now: its limit is raised, and timers are still wedged. RabbitMQ tries every three minutes to deliver
    /// what is in the timers, so after ten minutes the policy is not the cause, and need not stay.
    Wait,
}

/// Something that is wrong. The variants are in the order in which they are shown: the worst first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Finding {
    /// Objects that somebody else has declared anew: they lose events, or keep them for ever.
    WrongObjects {
        /// The objects, and what they should have.
        objects: Vec<WrongObject>,
    },
    /// An alarm of the broker blocks all publishers.
    BrokerAlarm {
        /// The alarms that are in effect.
        alarms: Vec<Alarm>,
    },
    /// A stranger's policy bounds, expires or diverts owned queues, or has keys of which nothing is known.
    Shadowed {
        /// The policy and the queues.
        #[serde(flatten)]
        shadowing: Shadowing,
        /// The virtual host of the policy.
        vhost: String,
        /// The remedy for the policy.
        #[serde(skip)]
        cure: Cure,
    },
    /// The topology was never applied here: the exchange that publishers publish to does not exist.
    NotApplied {
        /// The missing exchange.
        exchange: String,
    },
    /// Workers cannot read what is paused, so those that start take no event.
    SwitchesUnread {
        /// The cause.
        why: String,
    },
    /// Redis does not answer, or refuses.
    RedisAway {
        /// The cause.
        why: String,
        /// The number of events that wait for Redis in queues without a consumer.
        waiting: u64,
    },
    /// Redis answers, and takes no writes: it is a replica, or its memory is full.
    RedisTakesNoWrites {
        /// The state, as the log and the metrics name it.
        state: &'static str,
        /// The cause.
        why: String,
        /// The number of events that wait for Redis in queues without a consumer.
        waiting: u64,
    },
    /// The register belongs to another broker.
    RedisTaken {
        /// The other broker.
        by: String,
        /// The number of events that wait in queues without a consumer.
        waiting: u64,
    },
    /// Events that are due cannot leave their timer.
    Wedged {
        /// The timers, and how many events each of them cannot deliver.
        queues: Vec<Queue>,
    },
    /// Events for which there is no queue.
    Unrouted {
        /// The queue that they are in.
        #[serde(flatten)]
        queue: Queue,
    },
    /// Queues with events and no consumer.
    NoConsumer {
        /// The queues.
        queues: Vec<Queue>,
        /// The type of the first queue.
        #[serde(rename = "type")]
        event_type: String,
        /// The types of all these queues, that with the most events first.
        types: Vec<String>,
        /// One of the queues whose messages were delivered again in the last minute: its consumers end soon after they begin.
        redelivered: Option<String>,
    },
    /// Queues of sources with messages and no consumer.
    SourceNoConsumer {
        /// The queues.
        queues: Vec<Queue>,
        /// One of the queues whose messages were delivered again in the last minute: its consumers end soon after they begin.
        redelivered: Option<String>,
        /// The source of the first queue.
        source: String,
        /// Whether it has left the file: a worker refuses it.
        #[serde(skip)]
        has_left: bool,
    },
    /// Queues of sources that do not exist, and that somebody else has to declare.
    SourceMissing {
        /// The queues.
        queues: Vec<String>,
        /// The source of the first queue.
        source: String,
    },
    /// A connection of a stranger that consumes queues of the topology: it takes events and letters away.
    Stranger {
        /// The connection's name: the addresses of both ends.
        connection: String,
        /// The name that the program gave its connection, or else its client library.
        program: Option<String>,
        /// The queues that it consumes.
        queues: Vec<String>,
        /// The types that keep their order and whose workers wait behind it.
        keeps_out: Vec<String>,
    },
    /// A connection that holds deliveries and acknowledges none.
    NotAcknowledging {
        /// The connection's name: the addresses of both ends.
        connection: String,
        /// The name that the program gave its connection.
        program: Option<String>,
        /// The queues that it consumes.
        queues: Vec<String>,
        /// The number of deliveries.
        held: u64,
        /// The time in which the connection has acknowledged none, in seconds.
        silent_seconds: u64,
        /// Whether it is a worker's: then it is frozen, or its handler does not end.
        worker: bool,
    },
    /// Types that keep their order, and whose worker acknowledges nothing: the worker tries its oldest event again and
    /// again, or is frozen.
    Blocked {
        /// The types.
        types: Vec<String>,
        /// The name of the worker's connection: the addresses of both ends.
        connection: String,
        /// The name that the program gave its connection.
        program: Option<String>,
        /// The number of deliveries that the connection holds.
        held: u64,
        /// The time in which the connection has acknowledged none, in seconds.
        silent_seconds: u64,
        /// The command that shows the events that wait, or the workers.
        #[serde(skip)]
        show: String,
    },
    /// The service or the program that handlers need is away.
    HandlerUnavailable {
        /// The cause, as a worker says it.
        why: String,
        /// The types that wait.
        types: Vec<String>,
        /// The number of workers whose handler is unavailable.
        workers: u64,
        /// The number of workers that the types have.
        of: u64,
        /// The command that shows the events that wait, or the workers.
        #[serde(skip)]
        show: String,
    },
    /// Types of which nearly all runs fail or time out.
    Failing {
        /// The types, that with the most failed runs first.
        types: Vec<Failing>,
        /// The command that shows the events of the first one.
        #[serde(skip)]
        show: String,
    },
    /// Events that should have run long ago. The type, reference, id and time are those of the first one.
    Overdue {
        /// The type of the event.
        #[serde(rename = "type")]
        event_type: String,
        /// The reference of the event.
        reference: Option<String>,
        /// The id of the event.
        id: Option<String>,
        /// The due time of the event.
        #[serde(serialize_with = "in_millis")]
        #[schemars(with = "String")]
        due: Timestamp,
        /// The time since it was due, in words.
        #[serde(skip)]
        ago: String,
        /// How many such events there are, at least.
        events: usize,
        /// Whether there may be more of them.
        may_be_more: bool,
        /// How many types have such events.
        types: usize,
        /// The command that runs them, or shows them.
        #[serde(skip)]
        command: String,
    },
    /// Bindings that the file does not ask for bring queues events which are not meant for them.
    Misrouting {
        /// The bindings.
        bindings: Vec<String>,
        /// Whether `topology apply --prune` removes them.
        #[serde(skip)]
        prunable: bool,
    },
    /// Redis was emptied within the last day, or has forgotten the events that wait.
    RedisEmptied {
        /// The number of events of registered types on the broker, if Redis knows none of them.
        events: u64,
        /// When a worker or a publisher found that Redis was emptied; `null` if none has.
        #[serde(serialize_with = "maybe_in_millis")]
        #[schemars(with = "Option<String>")]
        at: Option<Timestamp>,
        /// The time since then, in words.
        #[serde(skip)]
        ago: String,
    },
    /// Redis may evict keys.
    RedisEvicts {
        /// The setting `maxmemory-policy`.
        policy: String,
    },
    /// Workers could not record what happened to events.
    NotRecorded {
        /// How many records were dropped in the last half an hour.
        records: u64,
        /// Why the last one was.
        why: Option<String>,
    },
    /// The clock of a machine differs from Redis's.
    ClockWrong {
        /// The name of the machine.
        machine: String,
        /// How far its clock is ahead of Redis's, in seconds; negative if it is behind.
        ahead_seconds: i64,
    },
    /// Types whose circuit breaker is open or half-open: nothing of them starts, or a few events. The open ones are first.
    BreakerOpen {
        /// The breakers.
        breakers: Vec<OpenBreaker>,
    },
    /// The management API does not answer, so most of the status is not known.
    ManagementAway {
        /// The cause.
        why: String,
    },
    /// Schedules whose next event is late.
    ScheduleLate {
        /// The schedules.
        schedules: Vec<String>,
        /// Since when the event of the first one is due.
        #[serde(serialize_with = "in_millis")]
        #[schemars(with = "String")]
        due: Timestamp,
        /// The time since it was due, in words.
        #[serde(skip)]
        ago: String,
    },
    /// Schedules that are not armed as the file says.
    ScheduleNotApplied {
        /// The schedules.
        schedules: Vec<String>,
    },
    /// Schedules that somebody, or a failure, has paused.
    SchedulePaused {
        /// The schedules.
        schedules: Vec<String>,
        /// Why the first of them is paused.
        why: String,
    },
    /// The broker's objects are not as the file says.
    Drift {
        /// Objects that are missing.
        missing: usize,
        /// Objects that differ and are put back by an apply.
        changed: usize,
        /// Queues that must be replaced.
        to_migrate: usize,
        /// Differences that block an apply.
        blocked: usize,
    },
    /// Dead letters.
    DeadLetters {
        /// The dead-letter queues with letters, the fullest first.
        queues: Vec<Letters>,
    },
}
