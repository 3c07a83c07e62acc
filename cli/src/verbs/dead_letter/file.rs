//! The file of discarded letters, which `topology publish --batch` takes.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{Mutex, PoisonError},
};

use anyhow::Context as _;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::internals::time::millis_text;
use hatchery_admin::dead_letters::Letter;
use serde_json::{Map, Value, json, value::RawValue};

/// A file that letters are written to. It is continued if it exists.
pub(super) struct LetterFile(Mutex<File>);

impl LetterFile {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        // Payloads may be secret, so others cannot read a new file.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        Ok(Self(Mutex::new(file.with_context(|| format!("cannot write {}", path.display()))?)))
    }

    /// Writes letters, and returns once they are on the disk.
    pub(super) fn write(&self, letters: &[Letter]) -> io::Result<()> {
        let mut lines = Vec::new();
        for letter in letters {
            lines.extend(line(letter)?);
            lines.push(b'\n');
        }
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&lines)?;
        file.sync_data()
    }
}

/// Returns the line of a letter. It has no id, because the register would drop another event of this id; the id is
/// among the notes in `discarded`, which `publish --batch` ignores.
fn line(letter: &Letter) -> io::Result<Vec<u8>> {
    let properties = &letter.message.properties;
    let mut fields = Map::new();
    fields.insert("type".to_owned(), letter.event_type().into_owned().into());
    if let Some(reference) = letter.reference() {
        fields.insert("reference".to_owned(), reference.into());
    }
    if let Some(nbf) = properties.headers.get("nbf").and_then(|nbf| nbf.as_str()) {
        fields.insert("nbf".to_owned(), nbf.into());
    }
    if let Some(correlation_id) = &properties.correlation_id {
        fields.insert("correlation_id".to_owned(), correlation_id.as_str().into());
    }
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
        line.extend_from_slice(&json);
        line.push(b'}');
    }
    Ok(line)
}

/// Returns a JSON payload on one line. Newlines in JSON stand only between its parts, so spaces mean the same.
fn json_of(letter: &Letter) -> Option<Vec<u8>> {
    let (body, properties) = (&letter.message.body, &letter.message.properties);
    let is_json = properties.content_type.as_deref() == Some("application/json");
    if !is_json || serde_json::from_slice::<&RawValue>(body).is_err() {
        return None;
    }
    Some(body.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect())
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
        internals::wire::{Headers, Incoming, Properties, Value as Amqp},
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
    fn a_json_payload_keeps_its_text_on_one_line() {
        let line = written(&letter("application/json", b"{\"n\":\n12345678901234567890, \"s\": 1.0}"));
        assert!(line.ends_with(r#","payload":{"n": 12345678901234567890, "s": 1.0}}"#), "{line}");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(
            (line["type"].as_str(), line["reference"].as_str(), line.get("id")),
            (Some("mail"), Some("1234"), None)
        );
        assert_eq!(line["discarded"]["id"], "a");
    }

    #[test]
    fn any_other_payload_is_in_base64() {
        for letter in [letter("application/json", b"{"), letter("text/plain", b"1"), letter("image/png", &[0, 255])] {
            let line: Value = serde_json::from_str(&written(&letter)).expect("JSON");
            assert_eq!(line["payload_base64"], BASE64_STANDARD.encode(&letter.message.body));
        }
    }
}
