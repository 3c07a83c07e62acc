//! Letters as JSON and as text.

use std::borrow::Cow;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::internals::{
    time::millis_text,
    wire::{Headers, Value as Amqp},
    words::plain,
};
use hatchery_admin::dead_letters::{Letter, LetterQueue, Standing};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A letter, without its headers and payload.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LetterView {
    /// The queue that it is in.
    pub(super) queue: String,
    /// The type of the event; `source-` and its name for a message of a source.
    #[serde(rename = "type")]
    pub(super) event_type: String,
    /// The id of the event.
    pub(super) id: Option<String>,
    /// The reference of the event.
    pub(super) reference: Option<String>,
    /// `open`, `obsolete`, `unreadable`, `unregistered`, `unknown` or `message` (of a source, and no event).
    pub(super) state: &'static str,
    /// Why it is obsolete or unreadable.
    pub(super) why: Option<String>,
    /// Why the event was given up, in words.
    pub(super) failure: String,
    /// The header `reason`.
    pub(super) reason: Option<String>,
    /// When the event failed first.
    pub(super) first_failed_at: Option<String>,
    /// When the event failed last.
    pub(super) failed_at: Option<String>,
    /// Failed attempts.
    pub(super) attempts: i64,
    /// How often it was replayed.
    pub(super) replays: i64,
    /// The routing key of the message.
    pub(super) routing_key: String,
    /// The size of the payload in bytes.
    pub(super) size: usize,
}

/// Returns a letter as JSON, without its headers and payload.
pub(super) fn view(letter: &Letter, standing: &Standing, queue: &LetterQueue) -> LetterView {
    let why = match standing {
        Standing::Obsolete(why) | Standing::Unreadable(why) => Some(why.clone()),
        _ => None,
    };
    LetterView {
        queue: queue.name.clone(),
        event_type: letter.event_type().into_owned(),
        id: letter.id().map(str::to_owned),
        reference: letter.reference().map(str::to_owned),
        state: standing.word(),
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
pub(super) fn headers(headers: &Headers) -> Map<String, Value> {
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

/// Returns a time for people.
pub(super) fn time(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// Returns a count with its noun.
pub(super) fn letters(count: u64) -> String {
    if count == 1 { "1 letter".to_owned() } else { format!("{count} letters") }
}

/// Cuts a text of a stranger to this width, on one line. An ellipsis marks the cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    let text: Cow<'_, str> = plain(text);
    if text.width() <= width {
        return text.into_owned();
    }
    let mut taken = 1;
    let fits = |character: &char| {
        taken += character.width().unwrap_or(0);
        taken <= width
    };
    text.chars().take_while(fits).chain(['…']).collect()
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

    #[test]
    fn a_text_is_cut_and_cannot_act_on_the_terminal() {
        assert_eq!(cut("connection refused", 12), "connection …");
        assert_eq!(cut("ok", 12), "ok");
        assert!(!cut("a\u{1b}[2J\nb", 80).contains(['\u{1b}', '\n']));
    }
}
