//! A letter: a message that waits for people in a dead-letter queue or in `unrouted`.

use std::borrow::Cow;

use hatchery::{
    Event, EventType, Word,
    internals::{
        names,
        wire::{self, Headers, Incoming, Value},
    },
    parse_time,
};
use jiff::Timestamp;

/// A letter, as its queue delivered it. All fields are read from the message, so that a letter is shown although Redis
/// is away, and although it is no event.
#[derive(Clone, Debug)]
pub struct Letter {
    /// The type in the file. `None` if a message in `unrouted` is of no such type.
    pub known_type: Option<EventType>,
    /// The source, if the message is a foreign one that became no event.
    pub source: Option<Word>,
    /// The message.
    pub message: Incoming,
}

impl Letter {
    /// Returns the type: that of the queue, or in `unrouted` the first word of the routing key. A source is named like a type,
    /// `source-hr`.
    #[must_use]
    pub fn event_type(&self) -> Cow<'_, str> {
        match (&self.known_type, &self.source) {
            (Some(known), _) => known.as_str().into(),
            (None, Some(source)) => names::source_word(source).into(),
            (None, None) => self.message.routing_key.split('.').next().unwrap_or_default().into(),
        }
    }

    /// Returns the event's id, if the message has one.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.message.properties.message_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Returns the event's reference, if it has one.
    #[must_use]
    pub fn reference(&self) -> Option<&str> {
        self.text("reference")
    }

    /// Returns the header `reason`.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.text("reason")
    }

    /// Returns the number of failed attempts.
    #[must_use]
    pub fn attempts(&self) -> i64 {
        self.number("attempts")
    }

    /// Returns how often the event was replayed.
    #[must_use]
    pub fn replays(&self) -> i64 {
        self.number(wire::REPLAYS)
    }

    /// Returns the time of the first failure, if the letter tells it.
    #[must_use]
    pub fn first_failed_at(&self) -> Option<Timestamp> {
        self.text("first_failure").and_then(time_of).or_else(|| self.failed_at())
    }

    /// Returns when the letter came to its queue, as far as it tells: the time of the last failure, or that of
    /// RabbitMQ's own dead-lettering, or that of its publishing.
    #[must_use]
    pub fn failed_at(&self) -> Option<Timestamp> {
        let own = || self.text("last_failure").and_then(time_of);
        let brokers = || match self.death()?.get("time")? {
            Value::Timestamp(seconds) => second(*seconds),
            _ => None,
        };
        let published = || self.text("created_at").and_then(|text| parse_time(text).ok());
        own().or_else(brokers).or_else(published).or_else(|| second(self.message.properties.timestamp?))
    }

    /// Returns why the letter is in its queue, without the time: the last failure, or RabbitMQ's reason.
    #[must_use]
    pub fn cause(&self) -> String {
        if let Some(failure) = self.text("last_failure") {
            return failure.split_once(' ').map_or(failure, |(_, cause)| cause).to_owned();
        }
        if let Some(death) = self.death()
            && let Some(reason @ ("rejected" | "delivery_limit" | "maxlen")) =
                death.get("reason").and_then(Value::as_str)
        {
            let queue = death.get("queue").and_then(Value::as_str).unwrap_or("?");
            return format!("RabbitMQ dead-lettered it: {reason} in {queue}");
        }
        if self.is_unrouted() {
            let route: Vec<&str> = self.message.routing_key.splitn(3, '.').take(2).collect();
            return format!("no queue takes {}", route.join("."));
        }
        self.reason().unwrap_or("unknown").to_owned()
    }

    /// Returns the event, if the letter is one that the file has a type for.
    ///
    /// # Errors
    /// Says why the letter is no event.
    pub fn event(&self, now: Timestamp) -> Result<Event, String> {
        let Some(known) = &self.known_type else {
            return Err(format!("topology.yaml has no type `{}`", self.event_type()));
        };
        let id = || uuid::Uuid::now_v7().to_string();
        wire::decode_kept(known, &self.message, now, id).map_err(|poison| poison.to_string())
    }

    fn is_unrouted(&self) -> bool {
        self.text("last_failure").is_none() && !self.message.routing_key.ends_with(".dead-letter")
    }

    fn headers(&self) -> &Headers {
        &self.message.properties.headers
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.headers().get(name).and_then(Value::as_str)
    }

    fn number(&self, name: &str) -> i64 {
        self.headers().get(name).and_then(Value::as_i64).unwrap_or(0)
    }

    /// Returns the newest entry of `x-death`.
    fn death(&self) -> Option<&Headers> {
        match self.headers().get("x-death") {
            Some(Value::Array(deaths)) => match deaths.first() {
                Some(Value::Table(death)) => Some(death),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Reads the time with which a failure header begins.
fn time_of(failure: &str) -> Option<Timestamp> {
    parse_time(failure.split(' ').next()?).ok()
}

fn second(seconds: u64) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(seconds).ok()?).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use hatchery::{bytes::Bytes, internals::wire::Properties};

    use super::*;

    pub(in super::super) fn letter(event_type: &str, id: &str, headers: &[(&str, Value)]) -> Letter {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let properties = Properties { message_id: Some(id.to_owned()), headers, ..Properties::default() };
        let routing_key = format!("{event_type}.dead-letter");
        let message = Incoming { routing_key, properties, body: Bytes::from_static(b"{}") };
        Letter { known_type: event_type.parse().ok(), source: None, message }
    }

    fn death(reason: &str) -> Value {
        let entry = [
            ("reason", Value::text(reason)),
            ("queue", Value::text("t.processor.mail")),
            ("time", Value::Timestamp(1_780_000_000)),
        ];
        Value::Array(vec![Value::Table(entry.map(|(name, value)| (name.to_owned(), value)).into())])
    }

    #[test]
    fn a_letter_tells_its_last_failure_and_its_time() {
        let failure = Value::text("2026-06-01T09:00:00.000Z connection refused");
        let letter = letter("mail", "a", &[("last_failure", failure), ("attempts", Value::I64(4))]);
        assert_eq!((letter.cause().as_str(), letter.attempts()), ("connection refused", 4));
        assert_eq!(letter.failed_at(), "2026-06-01T09:00:00Z".parse().ok());
    }

    #[test]
    fn a_letter_that_rabbitmq_dead_lettered_tells_the_reason_and_the_time_of_rabbitmq() {
        let letter = letter("mail", "a", &[("x-death", death("delivery_limit"))]);
        assert_eq!(letter.cause(), "RabbitMQ dead-lettered it: delivery_limit in t.processor.mail");
        assert_eq!(letter.failed_at(), Timestamp::from_second(1_780_000_000).ok());
    }

    #[test]
    fn a_message_without_a_queue_tells_the_first_two_words_of_its_key() {
        let mut letter = letter("mail", "a", &[]);
        letter.message.routing_key = "mail.250ms-4.0.1.1.0".to_owned();
        letter.known_type = None;
        assert_eq!((&*letter.event_type(), letter.cause().as_str()), ("mail", "no queue takes mail.250ms-4"));
        let why = letter.event(Timestamp::UNIX_EPOCH).expect_err("no such type");
        assert_eq!(why, "topology.yaml has no type `mail`");
    }

    #[test]
    fn a_letter_has_the_event_that_its_delivery_would_have() {
        let headers = [("x-death", death("rejected")), ("attempts", Value::I64(4)), ("tenant", Value::text("a"))];
        let letter = letter("mail", "a", &headers);
        let (known, now) = ("mail".parse().expect("a type"), Timestamp::UNIX_EPOCH);
        let delivered = wire::decode(&known, letter.message.clone(), now, String::new).expect("an event");
        assert_eq!(letter.event(now), Ok(delivered));
    }

    #[test]
    fn a_letter_with_a_broken_header_is_no_event() {
        let letter = letter("mail", "a", &[("nbf", Value::Bool(true))]);
        assert!(letter.event(Timestamp::UNIX_EPOCH).expect_err("poison").contains("`nbf`"));
    }
}
