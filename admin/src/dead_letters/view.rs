//! Letters as JSON, for the command line and the server of the API.

use std::{borrow::Cow, collections::BTreeSet};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::internals::{
    time::millis_text,
    wire::{Headers, Value as Amqp},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{letter::Letter, queues::LetterQueue, standing::Standing};

/// A letter, without its headers and payload.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct LetterView {
    /// The queue that it is in.
    pub queue: String,
    /// The type of the event; `source-` and its name for a message of a source.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The id of the event.
    pub id: Option<String>,
    /// The reference of the event.
    pub reference: Option<String>,
    /// `open`, `obsolete`, `unreadable`, `unregistered`, `unknown` or `message` (of a source, and no event).
    pub state: Cow<'static, str>,
    /// Why it is obsolete or unreadable.
    pub why: Option<String>,
    /// Why the event was given up, in words.
    pub failure: String,
    /// The header `reason`.
    pub reason: Option<String>,
    /// When the event failed first.
    pub first_failed_at: Option<String>,
    /// When the event failed last.
    pub failed_at: Option<String>,
    /// Failed attempts.
    pub attempts: i64,
    /// How often it was replayed.
    pub replays: i64,
    /// The routing key of the message.
    pub routing_key: String,
    /// The size of the payload in bytes.
    pub size: usize,
}

/// Returns a letter as JSON, without its headers and payload.
#[must_use]
pub fn view(letter: &Letter, standing: &Standing, queue: &LetterQueue) -> LetterView {
    let why = match standing {
        Standing::Obsolete(why) | Standing::Unreadable(why) => Some(why.clone()),
        _ => None,
    };
    LetterView {
        queue: queue.name.clone(),
        event_type: letter.event_type().into_owned(),
        id: letter.id().map(str::to_owned),
        reference: letter.reference().map(str::to_owned),
        state: standing.word().into(),
        why,
        failure: letter.cause(),
        reason: letter.reason().map(str::to_owned),
        first_failed_at: letter.first_failed_at().map(millis_text),
        failed_at: letter.failed_at().map(millis_text),
        attempts: letter.attempts(),
        replays: letter.replays(),
        routing_key: letter.message.routing_key.clone(),
        size: letter.message.body.len(),
    }
}

/// Returns headers as JSON. Bytes that are no text are in base64.
fn headers(headers: &Headers) -> Map<String, Value> {
    headers.iter().map(|(name, value)| (name.clone(), header(value))).collect()
}

fn header(value: &Amqp) -> Value {
    match value {
        Amqp::Bool(flag) => json!(flag),
        Amqp::F32(number) => json!(number),
        Amqp::F64(number) => json!(number),
        Amqp::Decimal(scale, number) => json!(format!("{number}e-{scale}")),
        Amqp::Timestamp(seconds) => match i64::try_from(*seconds).ok().and_then(|at| Timestamp::from_second(at).ok()) {
            Some(time) => json!(millis_text(time)),
            None => json!(seconds),
        },
        Amqp::Array(values) => values.iter().map(header).collect(),
        Amqp::Table(table) => headers(table).into(),
        Amqp::Bytes(bytes) => json!(BASE64_STANDARD.encode(bytes)),
        Amqp::Text(bytes) => match value.as_str() {
            Some(text) => json!(text),
            None => json!(BASE64_STANDARD.encode(bytes)),
        },
        Amqp::Void => Value::Null,
        other => other.as_str().map(Value::from).or_else(|| other.as_i64().map(Value::from)).unwrap_or_default(),
    }
}

/// A letter with its headers and payload.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Whole {
    #[serde(flatten)]
    pub letter: LetterView,
    /// The content type of the payload.
    pub content_type: Option<String>,
    /// The id that is passed on to handlers.
    pub correlation_id: Option<String>,
    /// The headers. Bytes that are no text are in base64.
    pub headers: Map<String, Value>,
    /// The payload, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The payload in base64, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Whether the payload has more bytes than are shown.
    pub payload_cut: bool,
}

/// Returns a letter with its headers and payload as JSON.
#[must_use]
pub fn whole(letter: &Letter, standing: &Standing, queue: &LetterQueue, limit: usize) -> Whole {
    let (properties, body) = (&letter.message.properties, bounded(letter, limit));
    let text = std::str::from_utf8(body).ok();
    Whole {
        letter: view(letter, standing, queue),
        content_type: properties.content_type.clone(),
        correlation_id: properties.correlation_id.clone(),
        headers: headers(&properties.headers),
        payload: text.map(str::to_owned),
        payload_base64: text.is_none().then(|| BASE64_STANDARD.encode(body)),
        payload_cut: body.len() < letter.message.body.len(),
    }
}

/// Returns at most so many bytes of the payload. A text is cut between two characters.
fn bounded(letter: &Letter, limit: usize) -> &[u8] {
    let body = &letter.message.body;
    let cut = &body[..body.len().min(limit)];
    match std::str::from_utf8(cut) {
        Err(error) if error.error_len().is_none() && cut.len() < body.len() => &cut[..error.valid_up_to()],
        _ => cut,
    }
}

/// A queue that was read.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct QueueView {
    /// Its name.
    pub queue: String,
    /// The number of letters that were read.
    pub letters: u64,
    /// The number of letters that another consumer holds.
    pub held_by_others: u64,
    /// The number of its consumers.
    pub consumers: u32,
}

/// Letters whose events failed for the same reason.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct GroupView {
    /// The reason.
    pub failure: String,
    /// The number of letters.
    pub count: u64,
    /// How many of them are obsolete.
    pub obsolete: u64,
    /// The time of the earliest failure.
    pub first_failed_at: Option<String>,
    /// The time of the latest failure.
    pub failed_at: Option<String>,
    /// The types of the letters.
    pub types: BTreeSet<String>,
    /// The id of one of them.
    pub example: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_has_a_form_in_json() {
        let table = Headers::from([("k".to_owned(), Amqp::I8(-1))]);
        let all = Headers::from([
            ("array".to_owned(), Amqp::Array(vec![Amqp::Void, Amqp::Table(table)])),
            ("bytes".to_owned(), Amqp::Text(vec![0, 159])),
            ("decimal".to_owned(), Amqp::Decimal(2, 314)),
            ("text".to_owned(), Amqp::text("why")),
            ("time".to_owned(), Amqp::Timestamp(1_780_000_000)),
        ]);
        let expected = json!({
            "array": [null, { "k": -1 }], "bytes": "AJ8=", "decimal": "314e-2", "text": "why",
            "time": "2026-05-28T20:26:40.000Z",
        });
        assert_eq!(Value::from(headers(&all)), expected);
    }
}
