//! A discarded letter as a line that `topology publish --batch` takes.

use std::{fmt::Write as _, io};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::internals::{
    time::millis_text,
    ttl::parse_time,
    wire::{self, Properties, kept},
    words::Reference,
};
use ring::digest::{SHA256, digest as hash};
use serde_json::{Map, Value, json, value::RawValue};

use super::letter::Letter;

/// Returns the line of a letter: what `publish --batch` needs to publish an equal message. It has no id, because the register would drop
/// another event of this id; the id is among the notes in `discarded`, which `publish --batch` ignores.
///
/// # Errors
/// Never: a letter is always JSON.
pub fn line(letter: &Letter) -> io::Result<Vec<u8>> {
    let properties = &letter.message.properties;
    let mut fields = Map::new();
    fields.insert("type".to_owned(), letter.event_type().into_owned().into());
    // `publish --batch` would refuse the line for a value that no event has.
    if let Some(reference) = letter.reference().filter(|reference| reference.parse::<Reference>().is_ok()) {
        fields.insert("reference".to_owned(), reference.into());
    }
    let nbf = properties.headers.get("nbf").and_then(|nbf| nbf.as_str());
    if let Some(nbf) = nbf.filter(|nbf| parse_time(nbf).is_ok()) {
        fields.insert("nbf".to_owned(), nbf.into());
    }
    // JSON has no place for the types of headers, nor for bytes that are no text.
    let saved = Properties { message_id: None, ..wire::foreign(properties.clone()) };
    fields.insert("properties".to_owned(), BASE64_STANDARD.encode(kept::encode(&saved, b"")).into());
    fields.insert("discarded".to_owned(), notes(letter));
    let json = json_of(letter);
    if json.is_none() {
        fields.insert("payload_base64".to_owned(), BASE64_STANDARD.encode(&letter.message.body).into());
    }
    let mut line = serde_json::to_vec(&fields)?;
    if let Some(json) = json {
        // The payload is written as its own text, in which numbers and spaces stay as they are.
        line.pop();
        line.extend_from_slice(b",\"payload\":");
        line.extend_from_slice(json);
        line.push(b'}');
    }
    Ok(line)
}

/// Returns the SHA-256 of a line in 64 hexadecimal digits. The line of a letter stays the same, however often the letter was looked at.
#[must_use]
pub fn digest(line: &[u8]) -> String {
    hash(&SHA256, line).as_ref().iter().fold(String::with_capacity(64), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// Returns a JSON payload that a line can have as its own text. With line breaks, or with spaces around it, it would be another text.
fn json_of(letter: &Letter) -> Option<&[u8]> {
    let (body, properties) = (&letter.message.body[..], &letter.message.properties);
    let is_json = properties.content_type.as_deref() == Some("application/json");
    let is_whole = || serde_json::from_slice::<&RawValue>(body).is_ok_and(|json| json.get().len() == body.len());
    (is_json && !body.iter().any(|byte| matches!(byte, b'\n' | b'\r')) && is_whole()).then_some(body)
}

fn notes(letter: &Letter) -> Value {
    json!({
        "id": letter.id(),
        "failure": letter.cause(),
        "failed_at": letter.failed_at().map(millis_text),
        "attempts": letter.attempts(),
        "replays": letter.replays(),
        "content_type": letter.message.properties.content_type,
    })
}

#[cfg(test)]
mod tests {
    use hatchery::{
        bytes::Bytes,
        internals::wire::{Headers, Incoming, Value as Amqp},
    };

    use super::*;

    fn letter(content_type: &str, body: &'static [u8]) -> Letter {
        let headers = Headers::from([("reference".to_owned(), Amqp::text("1234"))]);
        let properties = Properties {
            content_type: Some(content_type.to_owned()),
            message_id: Some("a".to_owned()),
            headers,
            ..Properties::default()
        };
        let message = Incoming { routing_key: "mail.dead-letter".into(), properties, body: Bytes::from_static(body) };
        Letter { known_type: "mail".parse().ok(), source: None, message }
    }

    fn written(letter: &Letter) -> String {
        String::from_utf8(line(letter).expect("written")).expect("a text")
    }

    #[test]
    fn a_json_payload_keeps_its_text() {
        let line = written(&letter("application/json", b"{\"n\":  12345678901234567890, \"s\": 1.0}"));
        assert!(line.ends_with(r#","payload":{"n":  12345678901234567890, "s": 1.0}}"#), "{line}");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(
            (line["type"].as_str(), line["reference"].as_str(), line.get("id")),
            (Some("mail"), Some("1234"), None)
        );
        assert_eq!(line["discarded"]["id"], "a");
    }

    #[test]
    fn a_look_changes_no_digest() {
        let mut seen = letter("application/json", b"1");
        let first = digest(&line(&seen).expect("written"));
        seen.message.properties.headers.insert("x-delivery-count".to_owned(), Amqp::I64(3));
        assert_eq!(digest(&line(&seen).expect("written")), first);
        let other = digest(&line(&letter("application/json", b"2")).expect("written"));
        assert!(first != other && first.len() == 64, "{first} {other}");
    }

    #[test]
    fn a_value_that_publish_would_refuse_is_left_out() {
        let mut letter = letter("application/json", b"1");
        for (name, value) in [("reference", "12\n34"), ("nbf", "soon")] {
            letter.message.properties.headers.insert(name.to_owned(), Amqp::text(value));
        }
        let line: Value = serde_json::from_str(&written(&letter)).expect("JSON");
        assert_eq!((line.get("reference"), line.get("nbf")), (None, None), "{line}");
    }

    #[test]
    fn any_other_payload_is_in_base64() {
        for (kind, body) in [
            ("application/json", &b"{"[..]),
            ("application/json", b"[1,\n2]"),
            ("application/json", b" 1"),
            ("application/json", b"1\t"),
            ("text/plain", b"1"),
            ("image/png", &[0, 255]),
        ] {
            let letter = letter(kind, body);
            let line: Value = serde_json::from_str(&written(&letter)).expect("JSON");
            assert_eq!(line["payload_base64"], BASE64_STANDARD.encode(&letter.message.body));
        }
    }
}
