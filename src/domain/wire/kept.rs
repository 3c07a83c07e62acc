//! Encodes a message for the register, which keeps its properties and payload so that people can have it published
//! again.
//!
//! The exchange and routing key are not kept, because they depend on the time that is left until the event is due.
//!
//! The first byte is the version of the format. Then come the properties that are set, each after a letter; lengths and
//! numbers are little-endian. A zero byte ends them, and the payload follows unchanged.

use bytes::{Buf, BufMut, Bytes};
use jiff::Timestamp;

use super::{Headers, Properties, Value, encode as properties_of};
use crate::domain::{
    event::Event,
    register::{CopyVersion, Record, Terms},
};

/// The version of the format, the only one so far.
const FORM: u8 = 1;
/// The deepest nesting of tables and arrays that is decoded. RabbitMQ's own limit is not far from it.
const DEEPEST: u8 = 64;

/// Encodes the message of an event. Returns `None` if its type does not keep a payload of this size; `largest` is in
/// bytes.
#[must_use]
pub fn of(event: &Event, largest: Option<usize>) -> Option<Bytes> {
    let keeps = largest.is_some_and(|largest| event.payload.len() <= largest);
    keeps.then(|| encode(&properties_of(event), &event.payload))
}

/// Returns the record of an event that was published. Its type keeps payloads of up to `largest` bytes.
#[must_use]
pub fn record(event: &Event, due: Timestamp, largest: Option<usize>, terms: Terms) -> Record {
    let CopyVersion { slot, version, .. } = event.stamp.clone();
    let (subject, reason, kept) = (event.subject(), event.reason.clone(), of(event, largest));
    Record { subject, slot, version, due, reason, kept, terms }
}

/// Encodes a message from its properties and its payload.
#[must_use]
pub fn encode(properties: &Properties, body: &[u8]) -> Bytes {
    let mut to = Vec::with_capacity(256 + body.len());
    to.put_u8(FORM);
    let texts = [
        (b't', &properties.content_type),
        (b'e', &properties.content_encoding),
        (b'c', &properties.correlation_id),
        (b'r', &properties.reply_to),
        (b'i', &properties.message_id),
        (b'k', &properties.kind),
        (b'a', &properties.app_id),
        (b'l', &properties.cluster_id),
    ];
    for (letter, text) in texts {
        if let Some(text) = text {
            to.put_u8(letter);
            put_bytes(&mut to, text.as_bytes());
        }
    }
    if let Some(timestamp) = properties.timestamp {
        to.put_u8(b's');
        to.put_u64_le(timestamp);
    }
    if !properties.headers.is_empty() {
        to.put_u8(b'h');
        put_table(&mut to, &properties.headers);
    }
    to.put_u8(0);
    to.put_slice(body);
    to.into()
}

/// Decodes the properties and the payload. Returns `None` if `kept` is not a message in this format.
#[must_use]
pub fn decode(kept: &Bytes) -> Option<(Properties, Bytes)> {
    let mut from = kept.clone();
    (from.try_get_u8().ok()? == FORM).then_some(())?;
    let mut properties = Properties::default();
    loop {
        match from.try_get_u8().ok()? {
            0 => return Some((properties, from)),
            b't' => properties.content_type = Some(text(&mut from)?),
            b'e' => properties.content_encoding = Some(text(&mut from)?),
            b'c' => properties.correlation_id = Some(text(&mut from)?),
            b'r' => properties.reply_to = Some(text(&mut from)?),
            b'i' => properties.message_id = Some(text(&mut from)?),
            b'k' => properties.kind = Some(text(&mut from)?),
            b'a' => properties.app_id = Some(text(&mut from)?),
            b'l' => properties.cluster_id = Some(text(&mut from)?),
            // A priority, which hatchery up to 0.1.0 kept.
            b'p' => drop(from.try_get_u8().ok()?),
            b's' => properties.timestamp = Some(from.try_get_u64_le().ok()?),
            b'h' => properties.headers = table(&mut from, DEEPEST)?,
            _ => return None,
        }
    }
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_length(to, bytes.len());
    to.put_slice(bytes);
}

/// Writes a length in 32 bits. The limit of a message is far below, so no length is cut.
fn put_length(to: &mut Vec<u8>, length: usize) {
    to.put_u32_le(u32::try_from(length).unwrap_or(u32::MAX));
}

fn put_table(to: &mut Vec<u8>, table: &Headers) {
    put_length(to, table.len());
    for (name, value) in table {
        put_bytes(to, name.as_bytes());
        put_value(to, value);
    }
}

/// Writes a value after its type's letter in AMQP.
fn put_value(to: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Bool(value) => to.put_slice(&[b't', u8::from(*value)]),
        Value::I8(value) => to.put_slice(&[b'b', value.to_le_bytes()[0]]),
        Value::U8(value) => to.put_slice(&[b'B', *value]),
        Value::I16(value) => put(to, b's', &value.to_le_bytes()),
        Value::U16(value) => put(to, b'u', &value.to_le_bytes()),
        Value::I32(value) => put(to, b'I', &value.to_le_bytes()),
        Value::U32(value) => put(to, b'i', &value.to_le_bytes()),
        Value::I64(value) => put(to, b'l', &value.to_le_bytes()),
        Value::F32(value) => put(to, b'f', &value.to_le_bytes()),
        Value::F64(value) => put(to, b'd', &value.to_le_bytes()),
        Value::Decimal(scale, value) => {
            to.put_slice(&[b'D', *scale]);
            to.put_u32_le(*value);
        }
        Value::ShortText(text) => {
            to.put_u8(b'z');
            put_bytes(to, text.as_bytes());
        }
        Value::Text(bytes) => {
            to.put_u8(b'S');
            put_bytes(to, bytes);
        }
        Value::Array(list) => {
            to.put_u8(b'A');
            put_length(to, list.len());
            for value in list {
                put_value(to, value);
            }
        }
        Value::Timestamp(value) => put(to, b'T', &value.to_le_bytes()),
        Value::Table(table) => {
            to.put_u8(b'F');
            put_table(to, table);
        }
        Value::Bytes(bytes) => {
            to.put_u8(b'x');
            put_bytes(to, bytes);
        }
        Value::Void => to.put_u8(b'V'),
    }
}

fn put(to: &mut Vec<u8>, letter: u8, number: &[u8]) {
    to.put_u8(letter);
    to.put_slice(number);
}

fn length(from: &mut Bytes) -> Option<usize> {
    usize::try_from(from.try_get_u32_le().ok()?).ok()
}

fn bytes(from: &mut Bytes) -> Option<Bytes> {
    let length = length(from)?;
    (length <= from.len()).then(|| from.split_to(length))
}

fn text(from: &mut Bytes) -> Option<String> {
    String::from_utf8(bytes(from)?.into()).ok()
}

fn table(from: &mut Bytes, deepest: u8) -> Option<Headers> {
    (0..length(from)?).map(|_| Some((text(from)?, value(from, deepest)?))).collect()
}

fn value(from: &mut Bytes, deepest: u8) -> Option<Value> {
    let inner = deepest.checked_sub(1)?;
    Some(match from.try_get_u8().ok()? {
        b't' => Value::Bool(from.try_get_u8().ok()? != 0),
        b'b' => Value::I8(from.try_get_i8().ok()?),
        b'B' => Value::U8(from.try_get_u8().ok()?),
        b's' => Value::I16(from.try_get_i16_le().ok()?),
        b'u' => Value::U16(from.try_get_u16_le().ok()?),
        b'I' => Value::I32(from.try_get_i32_le().ok()?),
        b'i' => Value::U32(from.try_get_u32_le().ok()?),
        b'l' => Value::I64(from.try_get_i64_le().ok()?),
        b'f' => Value::F32(from.try_get_f32_le().ok()?),
        b'd' => Value::F64(from.try_get_f64_le().ok()?),
        b'D' => Value::Decimal(from.try_get_u8().ok()?, from.try_get_u32_le().ok()?),
        b'z' => Value::ShortText(text(from)?),
        b'S' => Value::Text(bytes(from)?.into()),
        b'A' => Value::Array((0..length(from)?).map(|_| value(from, inner)).collect::<Option<_>>()?),
        b'T' => Value::Timestamp(from.try_get_u64_le().ok()?),
        b'F' => Value::Table(table(from, inner)?),
        b'x' => Value::Bytes(bytes(from)?.into()),
        b'V' => Value::Void,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let number = prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            any::<i8>().prop_map(Value::I8),
            any::<u8>().prop_map(Value::U8),
            any::<i16>().prop_map(Value::I16),
            any::<u16>().prop_map(Value::U16),
            any::<i32>().prop_map(Value::I32),
            any::<u32>().prop_map(Value::U32),
            any::<i64>().prop_map(Value::I64),
            any::<f32>().prop_map(Value::F32),
            any::<f64>().prop_map(Value::F64),
            any::<(u8, u32)>().prop_map(|(scale, value)| Value::Decimal(scale, value)),
            any::<u64>().prop_map(Value::Timestamp),
        ];
        let text = prop_oneof![
            ".{0,9}".prop_map(Value::ShortText),
            any::<Vec<u8>>().prop_map(Value::Text),
            any::<Vec<u8>>().prop_map(Value::Bytes),
            Just(Value::Void),
        ];
        prop_oneof![number, text].prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::btree_map(".{0,5}", inner, 0..4).prop_map(Value::Table),
            ]
        })
    }

    fn any_properties() -> impl Strategy<Value = Properties> {
        let text = || prop::option::of(".{0,9}");
        (
            (text(), text(), text(), text(), text(), text(), text(), text()),
            prop::option::of(any::<u64>()),
            prop::collection::btree_map(".{0,5}", any_value(), 0..4),
        )
            .prop_map(|(texts, timestamp, headers)| {
                let (content_type, content_encoding, correlation_id, reply_to, message_id, kind, app_id, cluster_id) =
                    texts;
                Properties {
                    content_type,
                    content_encoding,
                    correlation_id,
                    reply_to,
                    message_id,
                    timestamp,
                    kind,
                    app_id,
                    cluster_id,
                    headers,
                }
            })
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_kept(properties in any_properties(), body: Vec<u8>) {
            let kept = encode(&properties, &body);
            // Compared as texts, because NaN is not equal to itself.
            let (read, payload) = decode(&kept).expect("a message");
            prop_assert_eq!(format!("{read:?}"), format!("{properties:?}"));
            prop_assert_eq!(&payload[..], &body);
        }

        #[test]
        fn a_damaged_message_is_decoded_as_none(bytes: Vec<u8>, properties in any_properties(), part in 0.0..1.0_f64) {
            let _ = decode(&Bytes::from(bytes));
            let kept = encode(&properties, &[]);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a part")]
            let length = (kept.len() as f64 * part) as usize;
            prop_assert_eq!(decode(&kept.slice(..length)), None);
        }
    }

    #[test]
    fn a_priority_that_an_older_version_kept_is_passed_over() {
        let kept = [&[FORM, b'p', 9, 0], &b"{}"[..]].concat();
        assert_eq!(decode(&kept.into()), Some((Properties::default(), "{}".into())));
    }

    #[test]
    fn arrays_that_are_nested_too_deep_are_refused() {
        let mut kept = vec![FORM, b'h', 1, 0, 0, 0, 0, 0, 0, 0];
        for _ in 0..100_000 {
            kept.extend_from_slice(&[b'A', 1, 0, 0, 0]);
        }
        assert_eq!(decode(&kept.into()), None);
    }
}
