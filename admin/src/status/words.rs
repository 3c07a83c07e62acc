//! The sentence of a finding.

use hatchery::internals::{time, words::plain};
use jiff::{SignedDuration, Timestamp};

use super::finding::{Cure, Failing, Finding, Letters, OpenBreaker, Queue};
use crate::{
    names,
    plan::{Shadowing, WrongObject},
    text::{count, relative},
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
            | Self::BreakerOpen { .. }
            | Self::ScheduleLate { .. }
            | Self::ScheduleNotApplied { .. }
            | Self::SchedulePaused { .. } => self.words_of_the_file(),
            Self::Stranger { .. } | Self::NotAcknowledging { .. } | Self::Blocked { .. } => {
                self.words_of_a_connection()
            }
            Self::RedisAway { .. }
            | Self::RedisTakesNoWrites { .. }
            | Self::RedisTaken { .. }
            | Self::RedisEmptied { .. }
            | Self::RedisEvicts { .. }
            | Self::NotRecorded { .. }
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
            Self::SwitchesUnread { why } => format!("workers that start take no event: {why}"),
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
            Self::Misrouting { bindings, .. } => {
                let (s, bring) = if bindings.len() == 1 { ("", "brings") } else { ("s", "bring") };
                format!("binding{s} {} {bring} events that are not meant for the queue", first(bindings))
            }
            Self::HandlerUnavailable { why, types, workers, of, .. } => {
                let handlers = if types.len() == 1 { "the handler" } else { "the handlers" };
                let is = if types.len() == 1 { "is" } else { "are" };
                let some = if workers < of { format!(" in {workers} of {of} workers") } else { String::new() };
                format!("{handlers} of {} {is} unavailable{some}: {why}", first(types))
            }
            Self::Failing { types, .. } => format!("nearly all runs fail: {}", failing(types)),
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
                format!(
                    "alarms, policies, wedged timers, strangers and consumers that do not acknowledge are not known: {why}"
                )
            }
            Self::Drift { missing, changed, to_migrate, blocked } => drift([*missing, *changed, *to_migrate, *blocked]),
            Self::DeadLetters { queues } => dead_letters(queues),
        }
    }

    /// Returns what is wrong with a program that consumes.
    fn words_of_a_connection(&self) -> String {
        match self {
            Self::Stranger { connection, program, queues, keeps_out } => {
                let program = program.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
                let out = if keeps_out.is_empty() {
                    String::new()
                } else {
                    format!("; the workers of {} wait behind it", first(keeps_out))
                };
                format!(
                    "connection {connection}{program} is not known as a worker and takes messages of {}{out}",
                    first(queues)
                )
            }
            Self::NotAcknowledging { program, connection, queues, held, silent_seconds, worker: true } => {
                let (worker, silent) = (program.as_ref().unwrap_or(connection), in_words(*silent_seconds));
                format!(
                    "the worker {worker} holds {} of {} and has acknowledged none for {silent}: it is frozen; restart it",
                    count(*held, "delivery"),
                    first(queues)
                )
            }
            Self::NotAcknowledging { connection, program, queues, held, silent_seconds, .. } => {
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
            _ => String::new(),
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
            Self::RedisEmptied { events: 0, ago, .. } => {
                format!(
                    "Redis was emptied {ago}: events published before that run, even if they were replaced or cancelled"
                )
            }
            Self::RedisEmptied { events, .. } => format!(
                "Redis knows none of the {} on the broker: it was emptied, and what was replaced or cancelled runs again",
                count(*events, "event")
            ),
            Self::RedisEvicts { policy } => {
                format!("Redis evicts keys when its memory is full (maxmemory-policy {policy}): events may run again")
            }
            Self::NotRecorded { records, why } => {
                let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                format!(
                    "workers could not record what happened to events ({} in half an hour){why}",
                    count(*records, "record")
                )
            }
            Self::ClockWrong { machine, ahead_seconds } => {
                let by = time::words(SignedDuration::from_secs(*ahead_seconds));
                format!("the clock of {machine} is {by} Redis's")
            }
            _ => String::new(),
        }
    }

    /// Returns what is wrong with a source, a schedule or a breaker of the file.
    fn words_of_the_file(&self) -> String {
        match self {
            Self::SourceNoConsumer { queues, redelivered, .. } => {
                format!("{}{}", unconsumed(queues), and_ends(redelivered.as_ref()))
            }
            Self::SourceMissing { queues, source } => {
                let is = if queues.len() == 1 { "the queue" } else { "the queues" };
                format!("there is no {} of the source {source}: whoever owns {is} has to declare it", first(queues))
            }
            Self::BreakerOpen { breakers } => breaker_open(breakers),
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
}

fn wrong_object(WrongObject { address, differences }: &WrongObject) -> String {
    let differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
    let what = if differences.is_empty() { "missing".to_owned() } else { differences.join(", ") };
    format!("{address} ({what})")
}

fn dead_letters(queues: &[Letters]) -> String {
    if let [one] = queues {
        let letters = count(one.messages, "dead letter");
        return format!("{letters} of {}{}", one.of(), one.remarks());
    }
    let all: u64 = queues.iter().map(|letters| letters.messages).sum();
    let shown: Vec<String> = queues.iter().take(SHOWN).map(Letters::words).collect();
    format!("{}: {}", count(all, "dead letter"), and_more(&shown, queues.len()))
}

/// Says how many of the last runs of each type have failed, and why the last one has.
fn failing(types: &[Failing]) -> String {
    let word = |failing: &Failing| {
        let error = failing.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        format!("{} ({} of the last {}{error})", failing.event_type, failing.failed, failing.ended)
    };
    and_more(&types.iter().take(SHOWN).map(word).collect::<Vec<_>>(), types.len())
}

/// Says on which queues a stranger's policy wins, and what that does.
fn shadowed(shadowing: &Shadowing, cure: &Cure) -> String {
    let Shadowing { policy, operator, keys, unknown, queues } = shadowing;
    let is_of_switches = queues.iter().all(|queue| queue.ends_with(".control") || queue.ends_with(".life-cycle"));
    let (kind, queues) = (if *operator { "operator policy" } else { "policy" }, first(queues));
    if *unknown {
        return format!("{kind} {policy} wins on {queues}, and may do harm: nothing is known of {}", keys.join(", "));
    }
    let (keys, harm) = if keys.is_empty() {
        (String::new(), "the topology's own policy does not apply")
    } else if shadowing.is_of_life_cycle() {
        (format!(" ({})", keys.join(", ")), "that stream keeps what this policy says")
    } else if is_of_switches {
        (format!(" ({})", keys.join(", ")), "once its last message is gone, new workers start no event")
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

fn breaker_open(breakers: &[OpenBreaker]) -> String {
    let Some(breaker) = breakers.first() else { return String::new() };
    let OpenBreaker { event_type, state, ago, errors, runs, reason, waits_for_a_person, .. } = breaker;
    let next = match (breaker.is_half_open(), waits_for_a_person) {
        (true, _) => " and tries its next events",
        (false, true) => ", until a person closes it",
        (false, false) => "",
    };
    let why = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    let more = match breakers.len() {
        0 | 1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    format!(
        "the circuit breaker of {event_type} is {state}{next}: it opened {ago} at {errors} errors of {runs} runs{why}{more}"
    )
}

/// Returns the first schedule, and the number of the others.
fn of_schedules(schedules: &[String]) -> String {
    let word = if schedules.len() == 1 { "schedule" } else { "schedules" };
    format!("{word} {}", first(schedules))
}

impl Letters {
    /// Returns by how many the letters have become more, if they have, and how many need not be open.
    fn remarks(&self) -> String {
        let more = match (self.more, self.within_seconds) {
            (Some(more @ 1..), Some(within)) => Some(format!("+{more} in {}", in_words(within))),
            _ => None,
        };
        let not_open = self.not_open.filter(|not_open| *not_open > 0);
        let not_open = not_open.map(|not_open| format!("{not_open} obsolete, unreadable or unknown to Redis"));
        let remarks: Vec<String> = more.into_iter().chain(not_open).collect();
        if remarks.is_empty() { String::new() } else { format!(" ({})", remarks.join(", ")) }
    }

    /// Returns the type.
    fn of(&self) -> String {
        let of = type_of(&self.queue);
        if self.left_file { format!("{of} (no longer in the file)") } else { of.to_owned() }
    }

    fn words(&self) -> String {
        format!("{} of {}{}", self.messages, self.of(), self.remarks())
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
pub(super) fn type_of(queue: &str) -> &str {
    names::type_of(queue).unwrap_or(queue)
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
    let messages: u64 = queues.iter().map(|queue| queue.messages).sum();
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
