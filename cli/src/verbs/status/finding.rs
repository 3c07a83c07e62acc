//! The findings of `status`, each with its words, how bad it is, the command that helps, and its place in the
//! runbook.

use hatchery::internals::words::plain;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    types::in_millis,
    words::{are, count, in_words, quoted, wait},
};
use crate::{figures::Alarm, plan::Shadowing};

/// The runbook, as `status` names it.
pub(super) const RUNBOOK: &str = "docs/runbook.md";

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Somebody should look at it.
    Look,
    /// Events are stuck, or may be lost.
    Stuck,
}

/// A queue and a number of messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Queue {
    /// The name of the queue.
    pub(super) queue: String,
    /// The number of messages.
    pub(super) messages: u64,
}

/// The dead letters of a type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Letters {
    /// The dead-letter queue.
    pub(super) queue: String,
    /// The number of letters.
    pub(super) messages: u64,
    /// How many more there are than at the beginning of the last minutes; `null` if that is not known.
    pub(super) more: Option<u64>,
    /// The length of that time in seconds.
    pub(super) within_seconds: Option<u64>,
}

/// Something that is wrong. The variants are in the order in which they are shown: the worst first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Finding {
    /// An alarm of the broker blocks all publishers.
    BrokerAlarm {
        /// The alarms that are in effect.
        alarms: Vec<Alarm>,
    },
    /// A stranger's policy bounds, expires or diverts owned queues.
    Shadowed {
        /// The policy and the queues.
        #[serde(flatten)]
        shadowing: Shadowing,
        /// The virtual host of the policy.
        vhost: String,
    },
    /// The topology was never applied here: the exchange that publishers publish to does not exist.
    NotApplied {
        /// The missing exchange.
        exchange: String,
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
        /// For how long it has acknowledged none, in seconds.
        silent_seconds: u64,
    },
    /// An event that should have run long ago.
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
        /// For how long it is due, in words.
        #[serde(skip)]
        ago: String,
        /// How many types have such events.
        types: usize,
    },
    /// Redis does not answer, or refuses.
    RedisAway {
        /// The cause.
        why: String,
    },
    /// The register belongs to another broker.
    RedisTaken {
        /// The other broker.
        by: String,
    },
    /// Redis has forgotten the events that wait.
    RedisEmptied {
        /// The number of events of registered types on the broker.
        events: u64,
    },
    /// Redis may evict keys.
    RedisEvicts {
        /// The setting `maxmemory-policy`.
        policy: String,
    },
    /// The management API does not answer, so that most of this is not known.
    ManagementAway {
        /// The cause.
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

impl Finding {
    pub(super) const fn severity(&self) -> Severity {
        match self {
            Self::BrokerAlarm { .. }
            | Self::Shadowed { .. }
            | Self::NotApplied { .. }
            | Self::Wedged { .. }
            | Self::Unrouted { .. }
            | Self::NoConsumer { .. }
            | Self::NotAcknowledging { .. }
            | Self::Overdue { .. }
            | Self::RedisAway { .. }
            | Self::RedisTaken { .. } => Severity::Stuck,
            Self::RedisEmptied { .. }
            | Self::RedisEvicts { .. }
            | Self::ManagementAway { .. }
            | Self::Drift { .. }
            | Self::DeadLetters { .. } => Severity::Look,
        }
    }

    /// Returns the finding's place in the runbook.
    pub(super) const fn anchor(&self) -> &'static str {
        match self {
            Self::BrokerAlarm { .. } => "broker-alarm",
            Self::Shadowed { .. } => "shadowed",
            Self::NotApplied { .. } => "not-applied",
            Self::Wedged { .. } => "wedged",
            Self::Unrouted { .. } => "unrouted",
            Self::NoConsumer { .. } => "no-consumer",
            Self::NotAcknowledging { .. } => "not-acknowledging",
            Self::Overdue { .. } => "overdue",
            Self::RedisAway { .. } => "redis-away",
            Self::RedisTaken { .. } => "redis-taken",
            Self::RedisEmptied { .. } => "redis-emptied",
            Self::RedisEvicts { .. } => "redis-evicts",
            Self::ManagementAway { .. } => "management-away",
            Self::Drift { .. } => "drift",
            Self::DeadLetters { .. } => "dead-letters",
        }
    }

    /// Returns what is wrong, as a sentence. Names and errors may come from strangers, so control characters are escaped.
    pub(super) fn words(&self) -> String {
        plain(&self.raw_words()).into_owned()
    }

    fn raw_words(&self) -> String {
        match self {
            Self::BrokerAlarm { alarms } => {
                let alarms: Vec<String> =
                    alarms.iter().map(|alarm| format!("{} alarm on {}", alarm.resource, alarm.node)).collect();
                format!("RabbitMQ blocks all publishers: {}", alarms.join(", "))
            }
            Self::Shadowed { shadowing: Shadowing { policy, operator, keys, queues }, .. } => {
                let kind = if *operator { "operator policy" } else { "policy" };
                let (keys, harm) = if keys.is_empty() {
                    (String::new(), "the topology's own policy does not apply")
                } else {
                    (format!(" ({})", keys.join(", ")), "events may be lost or stuck")
                };
                format!("{kind} {policy}{keys} shadows {}: {harm}", first(queues))
            }
            Self::NotApplied { exchange } => {
                format!("the topology was never applied here: there is no exchange {exchange}")
            }
            Self::Wedged { queues } => {
                let events = queues.iter().map(|queue| queue.messages).sum();
                let s = if queues.len() == 1 { "is" } else { "are" };
                format!("{} {s} wedged: {} due and cannot leave", names(queues), are(events, "event"))
            }
            Self::Unrouted { queue } => {
                let their = if queue.messages == 1 { "its" } else { "their" };
                let (events, place) = (are(queue.messages, "event"), &queue.queue);
                format!("{events} in {place}: no queue was bound for {their} type or delay")
            }
            Self::NoConsumer { queues, .. } => {
                let events = queues.iter().map(|queue| queue.messages).sum();
                let (it, them) = if queues.len() == 1 { ("it has", "in") } else { ("they have", "in") };
                format!("{} {them} {}, and {it} no consumer", wait(events), names(queues))
            }
            Self::NotAcknowledging { connection, program, queues, held, silent_seconds } => {
                let program = program.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
                let queues = if queues.is_empty() { String::new() } else { format!(" of {}", first(queues)) };
                let silent = in_words(*silent_seconds);
                format!(
                    "connection {connection}{program} holds {}{queues} and has acknowledged none for {silent}",
                    count(*held, "delivery")
                )
            }
            Self::Overdue { event_type, reference, id, ago, types, .. } => {
                let name = match (reference, id) {
                    (Some(reference), _) => format!(" ({reference})"),
                    (None, Some(id)) => format!(" ({id})"),
                    (None, None) => String::new(),
                };
                let others = match types - 1 {
                    0 => String::new(),
                    1 => "; so were events of 1 more type".to_owned(),
                    more => format!("; so were events of {more} more types"),
                };
                format!("an event of {event_type}{name} was due {ago} and has not run{others}")
            }
            Self::RedisAway { why } => {
                format!("Redis does not answer: {why}; workers take no events of types that use it")
            }
            Self::RedisTaken { by } => {
                format!("the register in Redis is in use by the broker {by}: workers of this one are refused")
            }
            Self::RedisEmptied { events } => format!(
                "Redis knows none of the {} on the broker: it was emptied, and what was replaced or cancelled runs again",
                count(*events, "event")
            ),
            Self::RedisEvicts { policy } => {
                format!("Redis evicts keys when its memory is full (maxmemory-policy {policy}): events may run again")
            }
            Self::ManagementAway { why } => {
                format!("alarms, policies, wedged timers and consumers that do not acknowledge are not known: {why}")
            }
            Self::Drift { missing, changed, to_migrate, blocked } => {
                let parts = [
                    (*missing, "missing"),
                    (*changed, "changed"),
                    (*to_migrate, "to migrate"),
                    (*blocked, "in the way"),
                ];
                let parts: Vec<String> =
                    parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
                format!("the broker's objects are not as the file says: {}", parts.join(", "))
            }
            Self::DeadLetters { queues } => {
                if let [one] = queues.as_slice() {
                    let letters = count(one.messages, "dead letter");
                    return format!("{letters} of {}{}", type_of(&one.queue), one.growth());
                }
                let all = queues.iter().map(|letters| letters.messages).sum();
                let shown: Vec<String> = queues.iter().take(SHOWN).map(Letters::words).collect();
                format!("{}: {}", count(all, "dead letter"), and_more(&shown, queues.len()))
            }
        }
    }

    /// Returns the command that helps, or that shows more.
    pub(super) fn command(&self) -> String {
        match self {
            Self::BrokerAlarm { .. } => "rabbitmq-diagnostics alarms".to_owned(),
            Self::Shadowed { shadowing: Shadowing { policy, operator, .. }, vhost } => {
                let what = if *operator { "clear_operator_policy" } else { "clear_policy" };
                format!("rabbitmqctl {what} -p {} {}", quoted(vhost), quoted(policy))
            }
            Self::NotApplied { .. } => "topology apply".to_owned(),
            Self::Wedged { .. } | Self::RedisTaken { .. } | Self::Drift { .. } => "topology plan".to_owned(),
            Self::Unrouted { .. } => "topology dead-letter list --unrouted".to_owned(),
            Self::NoConsumer { event_type, .. } => format!("topology work --type {event_type} --exec COMMAND"),
            Self::NotAcknowledging { .. } => {
                "rabbitmqctl list_connections name pid; rabbitmqctl close_connection PID idle".to_owned()
            }
            Self::Overdue { event_type, reference, id, .. } => {
                let name = match (reference, id) {
                    (Some(reference), _) => format!("--reference {}", quoted(reference)),
                    (None, Some(id)) => format!("--id {}", quoted(id)),
                    (None, None) => return format!("topology events list --type {event_type} --due-before now"),
                };
                format!("topology events show --type {event_type} {name}")
            }
            Self::RedisAway { .. } => "redis-cli -u \"$REDIS_URL\" ping".to_owned(),
            Self::RedisEmptied { .. } => "redis-cli -u \"$REDIS_URL\" info keyspace".to_owned(),
            Self::RedisEvicts { .. } => "redis-cli -u \"$REDIS_URL\" config set maxmemory-policy noeviction".to_owned(),
            Self::ManagementAway { .. } => "curl -sS \"$RABBITMQ_MANAGEMENT_URL/api/overview\"".to_owned(),
            Self::DeadLetters { queues } => match queues.as_slice() {
                [one] => format!("topology dead-letter list --type {}", type_of(&one.queue)),
                _ => "topology dead-letter list".to_owned(),
            },
        }
    }
}

impl Letters {
    /// Returns by how many the letters have become more, if they have.
    fn growth(&self) -> String {
        match (self.more, self.within_seconds) {
            (Some(more @ 1..), Some(within)) => format!(" (+{more} in {})", in_words(within)),
            _ => String::new(),
        }
    }

    fn words(&self) -> String {
        format!("{} of {}{}", self.messages, type_of(&self.queue), self.growth())
    }
}

/// How many names a sentence has at most.
const SHOWN: usize = 3;

/// Returns the first names, and how many more there are.
fn first(names: &[String]) -> String {
    and_more(&names[..names.len().min(SHOWN)], names.len())
}

fn and_more(shown: &[String], all: usize) -> String {
    let more = all - shown.len();
    let shown = shown.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

fn names(queues: &[Queue]) -> String {
    first(&queues.iter().map(|queue| queue.queue.clone()).collect::<Vec<_>>())
}

/// Returns the type of a dead-letter queue.
fn type_of(queue: &str) -> &str {
    hatchery::internals::names::type_of(queue).unwrap_or(queue)
}
