//! Tells in words where an event should be, what the queues say to that, and which command to run next.
//!
//! RabbitMQ cannot be asked for one message. So a queue is named only as far as its counts allow, and an event counts as
//! removed only if no queue that could have it has a message: not one that has left the file, and no timer, in which an event whose
//! reference is busy waits although it is due.

use std::{fmt::Write as _, time::Duration};

use hatchery::{
    EventInfo, State, Topology,
    internals::{names::Names, whereabouts::Whereabouts},
};
use jiff::Timestamp;

use super::counts::QueueCounts;
use crate::text::{count, quoted};

/// How long after its due time an event may be on its way. The management API's figures are up to five seconds old.
const ON_ITS_WAY: Duration = Duration::from_secs(10);

/// The place of an event, as far as it is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EventLocation {
    /// The place in words.
    pub text: String,
    /// The queues in one of which it is.
    pub queues: Vec<String>,
    /// The commands that tell more, or publish the event again.
    pub commands: Vec<String>,
    /// Whether no queue that could have the event has a message.
    pub is_removed: bool,
}

/// Returns the place of an event. `None` if the file does not have its type.
#[must_use]
pub fn locate(event: &EventInfo, topology: &Topology, seen: &QueueCounts, now: Timestamp) -> Option<EventLocation> {
    let spec = topology.types.get(&event.event_type)?;
    let asked = Lookup { event, topology, names: Names::new(topology.name.clone()), seen };
    let place = |text: String, queues: Vec<String>| EventLocation { text, queues, ..EventLocation::default() };
    Some(match Whereabouts::of(event, topology, now)? {
        Whereabouts::Ended => place("nowhere: what is still in a queue is dropped".to_owned(), Vec::new()),
        Whereabouts::Running { queue } if event.leased == Some(true) => {
            place(format!("a worker has it, from {}", asked.counted(&queue)), vec![queue])
        }
        Whereabouts::Running { queue } => {
            let counted = asked.counted(&queue);
            place(format!("a worker has started it, from {counted}; whether it still runs is not known"), vec![queue])
        }
        Whereabouts::Due { queue } => {
            let mut place = asked.due(queue, now);
            if spec.keeps_order() {
                place.text += ". With `on-failure: block` the active worker tries the first event of the queue until it \
                               works; its log has each failure";
            }
            place
        }
        Whereabouts::Delayed { queues, then } => asked.delayed(queues, &then),
        Whereabouts::DeadLetter { queue } => asked.dead_letter(queue),
    })
}

/// A queue that may have an event instead of the one where it should be.
struct Candidate {
    queue: String,
    /// The queue with its counts.
    text: String,
    /// The command that tells more.
    command: String,
}

/// An event, and the counts of the queues.
struct Lookup<'a> {
    event: &'a EventInfo,
    topology: &'a Topology,
    names: Names,
    seen: &'a QueueCounts,
}

impl Lookup<'_> {
    fn due(&self, queue: String, now: Timestamp) -> EventLocation {
        let counted = self.counted(&queue);
        let is_new = self.event.due.is_some_and(|due| now.duration_since(due).unsigned_abs() < ON_ITS_WAY);
        let (text, may_have_it) = match (self.seen.ready(&queue), self.seen.held(&queue)) {
            (Some(0), Some(0)) if is_new => (format!("it has just come due; {counted} may not have it yet"), true),
            (Some(0), Some(0)) => (format!("it is due, but not in {counted}"), false),
            (Some(0), _) => (format!("it is due, but not ready in {counted}: perhaps a worker has it"), true),
            _ => (format!("it is due, and should be in {counted}"), true),
        };
        let retrying = format!("{}.{}.", self.names.retry(), self.event.event_type);
        let retrying = self.seen.counts.keys().filter(|name| name.starts_with(&retrying));
        let timers: Vec<&String> = self.seen.timers.iter().chain(retrying).collect();
        let wedged = timers.iter().filter_map(|timer| {
            let expired = self.seen.expired(timer).filter(|expired| *expired > 0)?;
            Some(Candidate {
                queue: (*timer).clone(),
                text: format!("{timer} ({expired} expired, which no queue has taken)"),
                command: "topology status".to_owned(),
            })
        });
        let candidates = self.unrouted().into_iter().chain(wedged).collect();
        or_elsewhere(text, may_have_it.then_some(queue), candidates, self.is_nowhere())
    }

    fn delayed(&self, queues: Vec<String>, then: &str) -> EventLocation {
        let timers: Vec<&String> = match queues.as_slice() {
            [timer] if !timer.ends_with('*') => vec![timer],
            _ => self.seen.timers.iter().collect(),
        };
        let ready: Option<u64> = timers.iter().map(|timer| self.seen.ready(timer)).sum();
        let all: Option<u64> = timers.iter().map(|timer| self.seen.all(timer)).sum();
        let candidates = self.unrouted().into_iter().collect();
        let names = queues.join(" or ");
        if all == Some(0) && !timers.is_empty() {
            let text = format!("it is not due yet, but is not in {names} (0 messages)");
            return or_elsewhere(text, None, candidates, self.is_nowhere());
        }
        let counted = ready.max(all).filter(|counted| *counted > 0);
        let counted = counted.map(|counted| format!(" ({})", count(counted, "message"))).unwrap_or_default();
        let text = format!("{names}{counted}; RabbitMQ moves it to {then} when it is due");
        or_elsewhere(text, queues, candidates, false)
    }

    fn dead_letter(&self, queue: String) -> EventLocation {
        let counted = self.counted(&queue);
        let (text, may_have_it) = match (self.seen.ready(&queue), self.seen.held(&queue)) {
            (Some(0), Some(0)) => (format!("it was given up, but is not in {counted}"), false),
            (Some(0), _) => {
                (format!("it was given up, but is not ready in {counted}: perhaps somebody reads it"), true)
            }
            _ => (format!("it should be in {counted}, for people"), true),
        };
        let candidates = self.unrouted().into_iter().collect();
        let mut place = or_elsewhere(text, may_have_it.then_some(queue), candidates, self.is_nowhere());
        if let (true, Some(id)) = (may_have_it, &self.event.id) {
            let command = format!("topology dead-letter show --type {} {}", self.event.event_type, quoted(id));
            place.commands.insert(0, command);
        }
        place
    }

    /// Returns the queue `unrouted`, if it has messages.
    fn unrouted(&self) -> Option<Candidate> {
        let queue = self.names.unrouted();
        let messages = self.seen.ready(&queue)? + self.seen.held(&queue).unwrap_or_default();
        let command = match &self.event.id {
            Some(id) => format!("topology dead-letter show --unrouted {}", quoted(id)),
            None => "topology dead-letter list --unrouted".to_owned(),
        };
        let text = format!("{queue} ({})", count(messages, "message"));
        (messages > 0).then_some(Candidate { queue, text, command })
    }

    /// Returns whether no queue that could have the event has a message.
    fn is_nowhere(&self) -> bool {
        self.seen.are_empty(|queue| self.is_of_another_type(queue))
    }

    /// Returns whether a queue has events of another type of the file alone. A type that has left the file may be this one's
    /// former name.
    fn is_of_another_type(&self, queue: &str) -> bool {
        let of = |queue: &str| {
            let (kind, rest) = queue.strip_prefix(self.topology.name.as_str())?.strip_prefix('.')?.split_once('.')?;
            let event_type = rest.split('.').next()?;
            Some(
                matches!(kind, "processor" | "retry" | "dead-letter" | "aside")
                    && event_type != self.event.event_type.as_str()
                    && self.topology.types.contains_key(event_type),
            )
        };
        of(queue).unwrap_or(false)
    }

    /// Returns a queue with its counts, as far as they are known.
    fn counted(&self, queue: &str) -> String {
        if self.seen.missing.contains(queue) {
            return format!("{queue} (does not exist)");
        }
        match (self.seen.ready(queue), self.seen.held(queue)) {
            (Some(ready), Some(held)) => format!("{queue} ({ready} ready, {held} unacknowledged)"),
            (Some(ready), None) => format!("{queue} ({ready} ready)"),
            _ => queue.to_owned(),
        }
    }
}

impl EventLocation {
    /// Adds how an event that was removed comes back: published again if its payload is kept and no run of it has begun. An event
    /// without an id gets no command, because its reference may have other events.
    pub fn remedy(&mut self, event: &EventInfo, is_kept: bool, now: Timestamp) {
        let Some(id) = &event.id else { return };
        if !is_kept || event.state == State::Running {
            let why = if is_kept { "a worker has started it" } else { "its payload is not kept" };
            let _ = write!(
                self.text,
                ". `run-now` cannot publish it, because {why}: cancel it, and publish it with another id"
            );
            return;
        }
        let (verb, to) = match event.due {
            Some(due) if due > now && event.state != State::DeadLetter => ("reschedule", format!(" --to {due}")),
            _ => ("run-now", String::new()),
        };
        self.commands.push(format!("topology events {verb} --type {} --id {}{to}", event.event_type, quoted(id)));
    }
}

/// Returns the place: in these queues, or in one of the candidates. If it is nowhere, it was removed.
fn or_elsewhere(
    text: String,
    queues: impl IntoIterator<Item = String>,
    candidates: Vec<Candidate>,
    is_nowhere: bool,
) -> EventLocation {
    let mut place = EventLocation { text, queues: queues.into_iter().collect(), ..EventLocation::default() };
    if !candidates.is_empty() {
        let texts: Vec<&str> = candidates.iter().map(|candidate| candidate.text.as_str()).collect();
        let _ = write!(place.text, ". It may be in {} instead", texts.join(" or "));
    } else if place.queues.is_empty() && is_nowhere {
        place.is_removed = true;
        place.text +=
            ". No other queue that could have it has a message: somebody removed its message, or the broker lost it";
    } else if place.queues.is_empty() {
        place.text += ". Another queue may have it: an event whose reference is busy waits in a timer";
    }
    for Candidate { queue, command, .. } in candidates {
        place.queues.push(queue);
        if !place.commands.contains(&command) {
            place.commands.push(command);
        }
    }
    place
}
