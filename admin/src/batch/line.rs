//! Reads a line of a batch: one event as JSON, or a change of events that wait.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use hatchery::{
    NewEvent,
    internals::{wire::kept, words::may_be_url},
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{
    change::{self, Change},
    error::{LineError, misplaced},
};
use crate::notation::{Span, Time, Until};

/// An event to publish.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventLine<'a> {
    /// Its type.
    r#type: String,
    /// The object that it is about, 1 to 255 bytes.
    reference: Option<String>,
    /// The payload as JSON, sent as exactly the text that stands there.
    #[serde(default, borrow, deserialize_with = "present")]
    #[schemars(with = "Option<serde_json::Value>")]
    payload: Option<&'a RawValue>,
    /// The payload as bytes in base64, instead of `payload`.
    payload_base64: Option<String>,
    /// The earliest time of the run, such as `2026-06-01T09:00:00Z`.
    nbf: Option<Time>,
    /// The shortest time until the run, such as `10m`, instead of `nbf`.
    delay: Option<Span>,
    /// How long after the publish, or when, an event that has not started expires.
    expires: Option<Until>,
    /// The event's id, 1 to 255 bytes; a new UUIDv7 if there is none.
    id: Option<String>,
    /// An id that is passed on to the handler.
    correlation_id: Option<String>,
    /// The properties and headers of a letter, as `dead-letter discard` writes them.
    properties: Option<String>,
    /// The notes that `dead-letter discard` writes beside an event.
    #[serde(rename = "discarded")]
    #[schemars(with = "Option<serde_json::Value>")]
    _discarded: Option<IgnoredAny>,
}

/// Reads a payload of `null` as a payload, not as an absent field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The request of a line.
#[derive(Debug)]
pub enum Request {
    /// To publish an event.
    Publish(Box<NewEvent>),
    /// To change waiting events.
    Change(Change),
}

/// Reads a line.
///
/// # Errors
/// When it is neither an event nor a change.
pub fn read(line: &[u8]) -> Result<Request, LineError> {
    let text = text(line)?;
    if change::is_change(text) {
        return change::read(text).map(Request::Change);
    }
    event_of(text).map(|event| Request::Publish(Box::new(event)))
}

/// Reads the one event of a request.
///
/// # Errors
/// When it is no event.
pub fn event(json: &[u8]) -> Result<NewEvent, LineError> {
    event_of(text(json)?)
}

fn text(line: &[u8]) -> Result<&str, LineError> {
    let text = std::str::from_utf8(line).map_err(|error| LineError::NotText(error.valid_up_to()))?;
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('{') { Ok(text) } else { Err(LineError::NotAnObject) }
}

/// Reads an event. Its fields take the same values as the arguments of `topology publish`. A JSON payload is sent as
/// exactly the text in the line.
fn event_of(text: &str) -> Result<NewEvent, LineError> {
    let line: EventLine<'_> = serde_json::from_str(text)?;
    if may_be_url(&line.r#type) {
        return Err(LineError::Misplaced("type"));
    }
    misplaced([("reference", &line.reference), ("id", &line.id), ("correlation_id", &line.correlation_id)])?;
    let (payload, content_type) = match (line.payload, line.payload_base64) {
        (Some(_), Some(_)) => return Err(LineError::Both("payload", "payload_base64")),
        (Some(json), None) => (Bytes::copy_from_slice(json.get().as_bytes()), "application/json"),
        (None, Some(base64)) => (Bytes::from(BASE64_STANDARD.decode(base64)?), "application/octet-stream"),
        (None, None) => (Bytes::new(), "application/octet-stream"),
    };
    let mut event = NewEvent::new(line.r#type, payload).content_type(content_type);
    event = match (line.nbf, line.delay) {
        (Some(_), Some(_)) => return Err(LineError::Both("nbf", "delay")),
        (Some(Time(nbf)), None) => event.at(nbf),
        (None, Some(Span(delay))) => event.delay(delay),
        (None, None) => event,
    };
    if let Some(expires) = line.expires {
        event = expires.of(event);
    }
    if let Some(reference) = line.reference {
        event = event.reference(reference);
    }
    if let Some(id) = line.id {
        event = event.id(id);
    }
    if let Some(correlation_id) = line.correlation_id {
        event = event.correlation_id(correlation_id);
    }
    if let Some(properties) = line.properties {
        let saved = BASE64_STANDARD.decode(properties).ok().and_then(|saved| kept::decode(&saved.into()));
        event = event.saved(saved.ok_or(LineError::Properties)?.0);
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        r#"{"type":"mail","payload":{"b": 1.0,  "a":12345678901234567890, "u":"\u00e4"}}"#,
        r#"{"b": 1.0,  "a":12345678901234567890, "u":"\u00e4"}"#
    )]
    #[case(r#"{"type":"mail","payload": null}"#, "null")]
    #[case(r#"{"type":"mail","payload": "text" }"#, r#""text""#)]
    #[case(r#"{"type":"mail","payload_base64":"AP8="}"#, "\0\u{ff}")]
    #[case(r#"{"type":"mail","payload_base64":""}"#, "")]
    #[case(r#"{"type":"mail"}"#, "")]
    #[case(r#"{"type":"mail","discarded":{"id":"a"},"payload":1}"#, "1")]
    fn a_payload_is_sent_as_the_text_in_the_line(#[case] line: &str, #[case] payload: &str) {
        let expected: Vec<u8> = if payload == "\0\u{ff}" { vec![0, 255] } else { payload.as_bytes().to_vec() };
        assert_eq!(event(line.as_bytes()).expect("valid").payload(), &expected[..]);
    }

    #[rstest]
    #[case(b"", "not a JSON object")]
    #[case(b"not json", "not a JSON object")]
    #[case(b"[]", "not a JSON object")]
    #[case(b"{\"type\":", "EOF while parsing a value at column 8")]
    #[case(b"{\"payload\":1}", "missing field `type`")]
    #[case(b"{\"type\":\"mail\",\"paylod\":1}", "unknown field `paylod`")]
    #[case(b"{\"type\":\"mail\",\"type\":\"mail\"}", "duplicate field `type`")]
    #[case(b"{\"type\":\"mail\",\"payload\":1,\"payload_base64\":\"\"}", "exclude each other")]
    #[case(b"{\"type\":\"mail\",\"payload_base64\":\"%\"}", "payload_base64")]
    #[case(b"{\"type\":\"mail\",\"properties\":\"AP8=\"}", "properties: not what")]
    #[case(b"{\"type\":\"mail\",\"nbf\":\"tomorrow\"}", "write it like 2026-06-01T09:00:00Z")]
    #[case(b"{\"type\":\"mail\",\"delay\":\"5\"}", "write a number and a unit")]
    #[case(b"{\"type\":\"mail\",\"expires\":\"5\"}", "neither a duration, like 10m, nor a time")]
    #[case(b"{\"type\":\"mail\",\"expires\":600}", "invalid type")]
    #[case(b"{\"type\":\"mail\",\"delay\":\"5s\",\"nbf\":\"2026-06-01T00:00:00Z\"}", "exclude each other")]
    #[case(b"{\"type\":\"ma\xff\"}", "not UTF-8 at byte 11")]
    fn the_error_of_a_bad_line_names_its_mistake(#[case] line: &[u8], #[case] why: &str) {
        let error = read(line).expect_err("invalid").to_string();
        assert!(error.contains(why), "{error}");
    }

    #[rstest]
    #[case(r#"{"type":"amqp://u:s3cret@h"}"#)]
    #[case(r#"{"type":"u:s3cret@h"}"#)]
    #[case(r#"{"type":"mail","u:s3cret@h":1}"#)]
    #[case(r#"{"type":"mail","reference":"amqp://u:s3cret@h"}"#)]
    #[case(r#"{"type":"mail","reference":"amqp://u:s3/cret-s3cret@h"}"#)]
    #[case(r#"{"type":"mail","id":"amqp://u:s3cret@h"}"#)]
    #[case(r#"{"type":"mail","correlation_id":"redis://:s3cret@h"}"#)]
    #[case(r#"{"type":"mail","nbf":"u:s3cret@h"}"#)]
    #[case(r#"{"type":"mail","delay":"amqp:/u:s3cret@h"}"#)]
    #[case(r#"{"type":"mail","expires":"u:s3cret@h"}"#)]
    #[case(r#"{"type":"mail","delay":"amqp://u:my s3cret@h"}"#)]
    #[case(r#"{"type":"mail","payload_base64":"u:s3cret@h"}"#)]
    #[case(r#"{"type":"mail","payload":u:s3cret@h}"#)]
    #[case("amqp://u:s3cret@h")]
    #[case("\"amqp://u:s3cret@h\"")]
    fn a_line_with_a_password_in_the_wrong_place_is_refused_and_not_repeated(#[case] line: &str) {
        let error = read(line.as_bytes()).expect_err("invalid").to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }

    #[rstest]
    #[case("ssh://git@github.com/x")]
    #[case("https://ada@example.org/x")]
    #[case("https://example.org/@ada")]
    #[case("mailto:ada@example.org")]
    fn a_user_without_a_password_is_data(#[case] text: &str) {
        let line = serde_json::json!({ "type": "mail", "reference": text, "id": text, "correlation_id": text });
        read(line.to_string().as_bytes()).expect("valid");
    }
}
