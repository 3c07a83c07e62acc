//! The sentence of a finding, and the command that helps.

use hatchery::internals::{clocks, words::plain};
use jiff::{SignedDuration, Timestamp};

use super::finding::{Cure, Finding, Letters, Queue};
use crate::{
    names,
    plan::{Shadowing, WrongObject},
    text::{quoted, relative},
};

impl Finding {
    /// Returns what is wrong, as a sentence. Names and errors may come from strangers, so control characters are escaped.
    pub(super) fn words(&self) -> String {
        plain(&self.raw_words()).into_owned()
    }

    fn raw_words(&self) -> String {
        match self {
            Self::SourceNoConsumer { .. }
            | Self::SourceMissing { .. }
            | Self::ScheduleLate { .. }
            | Self::ScheduleNotApplied { .. }
            | Self::SchedulePaused { .. } => self.words_of_the_file(),
            Self::RedisAway { .. }
            | Self::RedisTakesNoWrites { .. }
            | Self::RedisTaken { .. }
            | Self::RedisEmptied { .. }
            | Self::RedisEvicts { .. }
            | Self::ClockWrong { .. } => self.words_of_redis(),
            Self::WrongObjects { objects } => {
                let shown: Vec<String> = objects.iter().take(SHOWN).map(wrong_object).collect();
                format!("events may be lost: not as the file says: {}", and_more(&shown, objects.len()))
            }
            Self::BrokerAlarm { alarms } => {
                let alarms: Vec<String> =
                    alarms.iter().map(|alarm| format!("{} alarm on {}", alarm.resource, alarm.node)).collect();
                format!("RabbitMQ blocks all publishers: {}", alarms.join(", "))
            }
            Self::Shadowed { shadowing, cure, .. } => shadowed(shadowing, cure),
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
            Self::NoConsumer { queues, redelivered, .. } => {
                let events = queues.iter().map(|queue| queue.messages).sum();
                let it = if queues.len() == 1 { "it has" } else { "they have" };
                format!("{} in {}, and {it} no consumer{}", wait(events), names(queues), and_ends(redelivered.as_ref()))
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
            Self::Blocked { types, connection, program, held, silent_seconds, .. } => {
                let s = if types.len() == 1 { "s" } else { "" };
                let (types, silent) = (first(types), in_words(*silent_seconds));
                let worker = program.as_ref().unwrap_or(connection);
                format!(
                    "{types} block{s} at the oldest event: its worker ({worker}) has acknowledged none of {} for {silent}; the \
                     event fails again and again, or the worker is frozen, and the worker's log says which",
                    count(*held, "delivery")
                )
            }
            Self::HandlerUnavailable { why, types, workers, of, .. } => {
                let handlers = if types.len() == 1 { "the handler" } else { "the handlers" };
                let is = if types.len() == 1 { "is" } else { "are" };
                let some = if workers < of { format!(" in {workers} of {of} workers") } else { String::new() };
                format!("{handlers} of {} {is} unavailable{some}: {why}", first(types))
            }
            Self::Overdue { event_type, reference, id, ago, events, may_be_more, types, .. } => {
                let name = reference.as_ref().or(id.as_ref()).map(|name| format!(" ({name})")).unwrap_or_default();
                let least = if *may_be_more { "at least " } else { "" };
                let others = match types - 1 {
                    0 => String::new(),
                    1 => " and 1 more type".to_owned(),
                    more => format!(" and {more} more types"),
                };
                match events {
                    1 => format!("an event of {event_type}{name} was due {ago} and has not run"),
                    _ => format!(
                        "{least}{events} events of {event_type}{others} are overdue: the first one{name} was due {ago} and has \
                         not run"
                    ),
                }
            }
            Self::ManagementAway { why } => {
                format!("alarms, policies, wedged timers and consumers that do not acknowledge are not known: {why}")
            }
            Self::Drift { missing, changed, to_migrate, blocked } => drift([*missing, *changed, *to_migrate, *blocked]),
            Self::DeadLetters { queues } => dead_letters(queues),
        }
    }

    /// Returns what is wrong with Redis.
    fn words_of_redis(&self) -> String {
        match self {
            Self::RedisAway { why, waiting } => {
                format!(
                    "Redis does not answer: {why}; workers take no events of types that use it{}",
                    and_wait(*waiting)
                )
            }
            Self::RedisTakesNoWrites { why, waiting, .. } => {
                let (why, wait) = (why.trim_end_matches('.'), and_wait(*waiting));
                format!("Redis takes no writes: {why}; workers take no events of types that use it{wait}")
            }
            Self::RedisTaken { by, waiting } => {
                let wait = and_wait(*waiting);
                format!("the register in Redis is in use by the broker {by}: workers of this one are refused{wait}")
            }
            Self::RedisEmptied { events } => format!(
                "Redis knows none of the {} on the broker: it was emptied, and what was replaced or cancelled runs again",
                count(*events, "event")
            ),
            Self::RedisEvicts { policy } => {
                format!("Redis evicts keys when its memory is full (maxmemory-policy {policy}): events may run again")
            }
            Self::ClockWrong { machine, ahead_seconds } => {
                let by = clocks::words(SignedDuration::from_secs(*ahead_seconds));
                format!("the clock of {machine} is {by} Redis's")
            }
            _ => String::new(),
        }
    }

    /// Returns what is wrong with a source or a schedule of the file.
    fn words_of_the_file(&self) -> String {
        match self {
            Self::SourceNoConsumer { queues, redelivered, .. } => {
                format!("{}{}", unconsumed(queues), and_ends(redelivered.as_ref()))
            }
            Self::SourceMissing { queues, source } => {
                let is = if queues.len() == 1 { "the queue" } else { "the queues" };
                format!("there is no {} of the source {source}: whoever owns {is} has to declare it", first(queues))
            }
            Self::ScheduleLate { schedules, ago, .. } => {
                format!("the next event of {} was due {ago} and has not run", of_schedules(schedules))
            }
            Self::ScheduleNotApplied { schedules } => {
                let is = if schedules.len() == 1 { "is" } else { "are" };
                format!("{} {is} not armed as the file says", of_schedules(schedules))
            }
            Self::SchedulePaused { schedules, why } => {
                let is = if schedules.len() == 1 { "is" } else { "are" };
                format!("{} {is} paused: {why}", of_schedules(schedules))
            }
            _ => String::new(),
        }
    }

    /// Returns the command that helps, or that shows more.
    pub(super) fn command(&self) -> String {
        match self {
            Self::WrongObjects { .. } => "topology apply --migrate".to_owned(),
            Self::BrokerAlarm { .. } => "rabbitmq-diagnostics alarms".to_owned(),
            Self::Shadowed { cure: Cure::Raise(command), .. } | Self::Overdue { command, .. } => command.clone(),
            Self::Shadowed { cure: Cure::Wait, .. } => "topology status --watch".to_owned(),
            Self::Shadowed { shadowing: Shadowing { operator, unknown: true, .. }, vhost, .. } => {
                let what = if *operator { "list_operator_policies" } else { "list_policies" };
                format!("rabbitmqctl {what} -p {}", quoted(vhost))
            }
            Self::Shadowed { shadowing: Shadowing { policy, operator, .. }, vhost, cure: Cure::Clear } => {
                let what = if *operator { "clear_operator_policy" } else { "clear_policy" };
                format!("rabbitmqctl {what} -p {} {}", quoted(vhost), quoted(policy))
            }
            Self::NotApplied { .. } | Self::ScheduleNotApplied { .. } => "topology apply".to_owned(),
            Self::ScheduleLate { schedules, .. } | Self::SchedulePaused { schedules, .. } => {
                format!("topology schedule show {}", schedules.first().map_or("SCHEDULE", String::as_str))
            }
            Self::Wedged { .. } | Self::RedisTaken { .. } | Self::Drift { .. } => "topology plan".to_owned(),
            Self::Unrouted { .. } => "topology dead-letter list --unrouted".to_owned(),
            Self::NoConsumer { types, .. } if types.is_empty() => "topology plan".to_owned(),
            Self::NoConsumer { types, .. } => format!("topology work --type {} --exec COMMAND", types.join(",")),
            Self::SourceNoConsumer { source, .. } => format!("topology work --source {source}"),
            Self::SourceMissing { queues, .. } => {
                format!("rabbitmqctl list_queues name | grep -F {}", quoted(queues.first().map_or("", String::as_str)))
            }
            Self::NotAcknowledging { .. } => {
                "rabbitmqctl list_connections name pid; rabbitmqctl close_connection PID idle".to_owned()
            }
            Self::HandlerUnavailable { show, .. } | Self::Blocked { show, .. } => show.clone(),
            Self::RedisAway { .. } => "redis-cli -u \"$REDIS_URL\" ping".to_owned(),
            Self::RedisTakesNoWrites { state, why, .. } => {
                let section = match *state {
                    "out-of-memory" => "memory",
                    _ if why.contains("MISCONF") => "persistence",
                    _ => "replication",
                };
                format!("redis-cli -u \"$REDIS_URL\" info {section}")
            }
            Self::RedisEmptied { .. } => "redis-cli -u \"$REDIS_URL\" info keyspace".to_owned(),
            Self::RedisEvicts { .. } => "redis-cli -u \"$REDIS_URL\" config set maxmemory-policy noeviction".to_owned(),
            Self::ClockWrong { .. } => "date +%s; redis-cli -u \"$REDIS_URL\" time".to_owned(),
            Self::ManagementAway { .. } => "curl -sS \"$RABBITMQ_MANAGEMENT_URL/api/overview\"".to_owned(),
            Self::DeadLetters { queues } => match queues.as_slice() {
                [one] => format!("topology dead-letter list --type {}", type_of(&one.queue)),
                _ => "topology dead-letter list".to_owned(),
            },
        }
    }
}

fn wrong_object(WrongObject { address, differences }: &WrongObject) -> String {
    let differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
    let what = if differences.is_empty() { "missing".to_owned() } else { differences.join(", ") };
    format!("{address} ({what})")
}

fn dead_letters(queues: &[Letters]) -> String {
    if let [one] = queues {
        let letters = count(one.messages, "dead letter");
        return format!("{letters} of {}{}", type_of(&one.queue), one.growth());
    }
    let all = queues.iter().map(|letters| letters.messages).sum();
    let shown: Vec<String> = queues.iter().take(SHOWN).map(Letters::words).collect();
    format!("{}: {}", count(all, "dead letter"), and_more(&shown, queues.len()))
}

/// Says on which queues a stranger's policy wins, and what that does.
fn shadowed(Shadowing { policy, operator, keys, unknown, queues }: &Shadowing, cure: &Cure) -> String {
    let (kind, queues) = (if *operator { "operator policy" } else { "policy" }, first(queues));
    if *unknown {
        return format!("{kind} {policy} wins on {queues}, and may do harm: nothing is known of {}", keys.join(", "));
    }
    let (keys, harm) = if keys.is_empty() {
        (String::new(), "the topology's own policy does not apply")
    } else {
        (format!(" ({})", keys.join(", ")), "events may be lost or stuck")
    };
    let until = match cure {
        Cure::Clear => "",
        Cure::Raise(_) => "; raise its limit, and clear it once nothing is wedged",
        Cure::Wait => {
            "; its limit is raised, so clear it once nothing is wedged, at the latest ten minutes after it was raised"
        }
    };
    format!("{kind} {policy}{keys} shadows {queues}: {harm}{until}")
}

/// Returns the first schedule, and the number of the others.
fn of_schedules(schedules: &[String]) -> String {
    let word = if schedules.len() == 1 { "schedule" } else { "schedules" };
    format!("{word} {}", first(schedules))
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
pub(super) fn first(names: &[String]) -> String {
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
    names::type_of(queue).unwrap_or(queue)
}

fn count(n: u64, what: &str) -> String {
    match (n, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        (_, None) => format!("{n} {what}s"),
    }
}

fn are(n: u64, what: &str) -> String {
    format!("{} {}", count(n, what), if n == 1 { "is" } else { "are" })
}

/// Tells how many objects are missing, changed, to migrate and in the way.
fn drift(counts: [usize; 4]) -> String {
    let parts = counts.into_iter().zip(["missing", "changed", "to migrate", "in the way"]);
    let parts: Vec<String> = parts.filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    format!("the broker's objects are not as the file says: {}", parts.join(", "))
}

/// Tells of queues of sources without a consumer.
fn unconsumed(queues: &[Queue]) -> String {
    let messages = queues.iter().map(|queue| queue.messages).sum();
    let it = if queues.len() == 1 { "it has" } else { "they have" };
    let wait = if messages == 1 { "waits" } else { "wait" };
    format!("{} {wait} in {}, and {it} no consumer", count(messages, "message"), names(queues))
}

/// Returns why a queue has no consumer although its messages were delivered again lately.
fn and_ends(queue: Option<&String>) -> String {
    let ends = |queue| {
        format!(
            "; the consumers of {queue} end soon after they begin, and the worker's log says why: a crash, Redis that comes and \
             goes, or a message that cannot be read (docs/operations/untranslatable.md)"
        )
    };
    queue.map(ends).unwrap_or_default()
}

fn wait(events: u64) -> String {
    format!("{} {}", count(events, "event"), if events == 1 { "waits" } else { "wait" })
}

/// Returns how many events wait for what the sentence before says.
fn and_wait(events: u64) -> String {
    if events == 0 { String::new() } else { format!(", and {}", wait(events)) }
}

/// Returns a number of seconds in the two largest units.
fn in_words(seconds: u64) -> String {
    let later = Timestamp::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let words = relative(Timestamp::UNIX_EPOCH, later, 2);
    words.strip_prefix("in ").map_or_else(|| "0s".to_owned(), str::to_owned)
}
