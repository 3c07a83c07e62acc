//! Turns a message into events.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use super::{
    date,
    pointer::Pointer,
    spec::{ReferenceFrom, Rule, SourceSpec, Unmatched},
};
use crate::domain::{
    message::{self, Incoming, SHORT},
    names::Names,
    words::{EventType, Reference, Word, WordError, plain},
};

/// The most characters of a value that a reason repeats.
const SHOWN: usize = 60;

/// An event to publish, as the rules made it from a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The number of the rule that made it, from 1.
    pub rule: usize,
    /// The id; `None` if the message has none.
    pub id: Option<String>,
    /// The type.
    pub event_type: EventType,
    /// The reference.
    pub reference: Option<Reference>,
    /// The date; `None` means now.
    pub nbf: Option<Timestamp>,
    /// The payload.
    pub payload: Bytes,
    /// The MIME type of the payload, if the message tells it.
    pub content_type: Option<String>,
    /// The correlation id of the message.
    pub correlation_id: Option<String>,
    /// The W3C trace context of the message.
    pub traceparent: Option<String>,
    /// The message that it comes from, for people.
    pub reason: String,
}

/// Why a message becomes no event. It goes to the dead-letter queue of its source with this reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unmappable {
    /// The rules point into the message, and it is no JSON.
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    /// No rule matches the message.
    #[error("no rule matches")]
    NoRule,
    /// A pointer leads to nothing, and the key needs a value.
    #[error("{key} {at} points to nothing")]
    Nothing {
        /// The key of the file, with the number of its rule.
        key: String,
        /// The pointer.
        at: Pointer,
    },
    /// The id is an empty text, which other messages may have too.
    #[error(
        "`id` {at} is an empty text; the message must have its id there, or the `id` of the source must point to another field"
    )]
    EmptyId {
        /// The pointer.
        at: Pointer,
    },
    /// The value at a pointer is neither a text nor a whole number.
    #[error("{key} {at} is {found}; it takes a text or a whole number")]
    NoText {
        /// The key of the file, with the number of its rule.
        key: String,
        /// The pointer.
        at: Pointer,
        /// The kind of value that is there.
        found: &'static str,
    },
    /// The text at a pointer is not valid for this key.
    #[error("{key} {at}: {why}")]
    Refused {
        /// The key of the file, with the number of its rule.
        key: String,
        /// The pointer.
        at: Pointer,
        /// Why.
        why: WordError,
    },
    /// The value at a pointer is no date.
    #[error("{key} {at} is no date: {found}")]
    NoDate {
        /// The key of the file, with the number of its rule.
        key: String,
        /// The pointer.
        at: Pointer,
        /// The value that is there, as JSON, cut.
        found: String,
    },
    /// The payload is larger than the file allows.
    #[error("{key} {at} has {length} bytes, more than max-payload ({limit})")]
    TooLarge {
        /// The key of the file, with the number of its rule.
        key: String,
        /// The pointer.
        at: Pointer,
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

/// Turns a message into the events that the rules make of it. No events: the file drops a message that no rule matches.
///
/// # Errors
/// If a rule that matches cannot be carried out, or no rule matches. Then the message makes no event at all.
pub fn map(
    names: &Names,
    (source, spec): (&Word, &SourceSpec),
    max_payload: usize,
    message: &Incoming,
) -> Result<Vec<Mapped>, Unmappable> {
    let json = if spec.rules.iter().any(points_into) || spec.id.is_some() {
        serde_json::from_slice(&message.body).map_err(|error| not_json(&message.body, &error))?
    } else {
        Value::Null
    };
    let id = id(spec, message, &json)?;
    let queue = spec.queue(names, source);
    let matching = (1..).zip(&spec.rules).filter(|(_, rule)| rule.when.iter().all(|condition| condition.holds(&json)));
    let mapped = matching.map(|(number, rule)| {
        let read = Reading { number, json: &json, message };
        let (payload, content_type) = read.payload(&rule.payload, max_payload)?;
        let of_message = |text: &Option<String>| text.clone().filter(|text| (1..=SHORT).contains(&text.len()));
        let traceparent = message.properties.headers.get("traceparent").and_then(message::Value::as_str);
        Ok(Mapped {
            rule: number,
            id: id.as_deref().map(|id| id_of(source, id, (spec.rules.len() > 1).then_some(number))),
            event_type: rule.event_type.clone(),
            reference: rule.reference.as_ref().map(|from| read.reference(from)).transpose()?,
            nbf: rule.nbf.as_ref().map(|at| read.date(at, spec)).transpose()?.flatten(),
            payload,
            content_type,
            correlation_id: of_message(&message.properties.correlation_id),
            traceparent: of_message(&traceparent.map(str::to_owned)),
            reason: match &id {
                Some(id) => format!("message: queue={} id={}", plain(&queue), plain(id)),
                None => format!("message: queue={}", plain(&queue)),
            },
        })
    });
    let mapped = mapped.collect::<Result<Vec<_>, _>>()?;
    if mapped.is_empty() && spec.unmatched == Unmatched::DeadLetter {
        return Err(Unmappable::NoRule);
    }
    Ok(mapped)
}

/// Names the two causes of which the parser's own error says nothing.
fn not_json(body: &[u8], error: &serde_json::Error) -> Unmappable {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    Unmappable::NotJson(match body {
        [] => "it is empty".to_owned(),
        _ if body.starts_with(BYTE_ORDER_MARK) => "it begins with a byte order mark".to_owned(),
        _ => error.to_string(),
    })
}

/// Returns the id of the event that a rule makes of the message with this id. The rule has a number where the source has
/// several. An id that would be too long is replaced by its hash, which is the same for each delivery of the message.
#[must_use]
pub fn id_of(source: &Word, message: &str, rule: Option<usize>) -> String {
    let rule = rule.map(|number| format!(":{number}")).unwrap_or_default();
    let whole = format!("{source}:{message}{rule}");
    if whole.len() <= SHORT { whole } else { format!("{source}:{:032x}{rule}", xxh3_128(message.as_bytes())) }
}

/// Tells whether a rule reads the body as JSON.
fn points_into(rule: &Rule) -> bool {
    !rule.when.is_empty()
        || rule.nbf.is_some()
        || !rule.payload.is_whole()
        || matches!(rule.reference, Some(ReferenceFrom::Message(_)))
}

/// Returns the id of a message.
fn id(spec: &SourceSpec, message: &Incoming, json: &Value) -> Result<Option<String>, Unmappable> {
    match &spec.id {
        Some(at) => {
            let id = text("`id`", at, json)?;
            if id.is_empty() {
                return Err(Unmappable::EmptyId { at: at.clone() });
            }
            Ok(Some(id))
        }
        None => Ok(message.properties.message_id.clone().filter(|id| !id.is_empty())),
    }
}

/// Returns the text at a place. A whole number counts as its digits.
fn text(key: &str, at: &Pointer, json: &Value) -> Result<String, Unmappable> {
    let found = match at.of(json) {
        None | Some(Value::Null) => return Err(Unmappable::Nothing { key: key.to_owned(), at: at.clone() }),
        Some(Value::String(text)) => return Ok(text.clone()),
        Some(Value::Number(number)) if number.is_i64() || number.is_u64() => return Ok(number.to_string()),
        Some(Value::Number(_)) => "a number that is not whole, or has more than 64 bits",
        Some(Value::Bool(_)) => "a boolean",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
    };
    Err(Unmappable::NoText { key: key.to_owned(), at: at.clone(), found })
}

/// A rule that reads a message.
struct Reading<'m> {
    number: usize,
    json: &'m Value,
    message: &'m Incoming,
}

impl Reading<'_> {
    fn key(&self, key: &str) -> String {
        format!("rule {}: `{key}`", self.number)
    }

    fn reference(&self, from: &ReferenceFrom) -> Result<Reference, Unmappable> {
        match from {
            ReferenceFrom::Constant(reference) => Ok(reference.clone()),
            ReferenceFrom::Message(at) => {
                let key = self.key("reference");
                let text = text(&key, at, self.json)?;
                text.parse().map_err(|why| Unmappable::Refused { key, at: at.clone(), why })
            }
        }
    }

    fn date(&self, at: &Pointer, spec: &SourceSpec) -> Result<Option<Timestamp>, Unmappable> {
        let Some(found) = at.of(self.json) else { return Ok(None) };
        date::read(found, &spec.timezone).map_err(|date::NoDate| {
            let text = found.to_string();
            let cut: String = text.chars().take(SHOWN).collect();
            let more = if cut.len() < text.len() { "…" } else { "" };
            Unmappable::NoDate { key: self.key("nbf"), at: at.clone(), found: format!("{}{more}", plain(&cut)) }
        })
    }

    /// Returns the payload and its MIME type. A part of the message is JSON, and keeps its text.
    fn payload(&self, at: &Pointer, limit: usize) -> Result<(Bytes, Option<String>), Unmappable> {
        let (body, properties) = (&self.message.body, &self.message.properties);
        let (payload, content_type) = if at.is_whole() {
            let content_type = properties.content_type.clone().filter(|text| (1..=SHORT).contains(&text.len()));
            (body.clone(), content_type)
        } else {
            let part = std::str::from_utf8(body).ok().and_then(|text| at.text_of(text));
            let part = part.ok_or_else(|| Unmappable::Nothing { key: self.key("payload"), at: at.clone() })?;
            (body.slice_ref(part.as_bytes()), None)
        };
        if payload.len() > limit {
            let (key, length) = (self.key("payload"), payload.len());
            return Err(Unmappable::TooLarge { key, at: at.clone(), length, limit });
        }
        Ok((payload, content_type))
    }
}
