//! Converts between lapin's types and the domain's types, without interpreting any value.

use bytes::Bytes;
use lapin::{
    Acker, BasicProperties, message,
    types::{AMQPValue, DecimalValue, DeliveryTag, FieldTable, ShortString},
};

use crate::{
    domain::wire::{Headers, Incoming, Properties, Value},
    ports::{BrokerError, Delivery, Receipt},
};

/// The delivery mode of persistent messages.
const DELIVERY_MODE: u8 = 2;

/// Converts a name or a property to an AMQP short string. lapin's own conversion panics on a text that is too long.
///
/// # Errors
/// When the text is longer than the 255 bytes that AMQP allows.
pub fn short(text: &str) -> Result<ShortString, BrokerError> {
    ShortString::try_new(text)
        .map_err(|error| BrokerError::Rejected { what: "a name or property".to_owned(), reason: error.to_string() })
}

/// Converts a delivery, and makes its receipt. The body is not copied.
pub(super) fn delivery(
    mut received: message::Delivery,
    receipt: impl FnOnce(DeliveryTag, Acker) -> Box<dyn Receipt>,
) -> Delivery {
    Delivery {
        message: incoming(&mut received),
        priority: *received.properties.priority(),
        redelivered: received.redelivered,
        receipt: receipt(received.delivery_tag, received.acker),
    }
}

/// Takes the message out of a delivery. The body is not copied.
pub fn incoming(delivery: &mut message::Delivery) -> Incoming {
    let body = Bytes::from(std::mem::take(&mut delivery.data));
    Incoming { routing_key: delivery.routing_key.to_string(), properties: read(&delivery.properties), body }
}

fn read(properties: &BasicProperties) -> Properties {
    let text = |value: &Option<ShortString>| value.as_ref().map(ToString::to_string);
    Properties {
        content_type: text(properties.content_type()),
        content_encoding: text(properties.content_encoding()),
        correlation_id: text(properties.correlation_id()),
        reply_to: text(properties.reply_to()),
        message_id: text(properties.message_id()),
        timestamp: *properties.timestamp(),
        kind: text(properties.kind()),
        app_id: text(properties.app_id()),
        cluster_id: text(properties.cluster_id()),
        headers: properties.headers().as_ref().map(read_table).unwrap_or_default(),
    }
}

fn read_table(table: &FieldTable) -> Headers {
    table.inner().iter().map(|(name, value)| (name.to_string(), read_value(value))).collect()
}

fn read_value(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Boolean(b) => Value::Bool(*b),
        AMQPValue::ShortShortInt(n) => Value::I8(*n),
        AMQPValue::ShortShortUInt(n) => Value::U8(*n),
        AMQPValue::ShortInt(n) => Value::I16(*n),
        AMQPValue::ShortUInt(n) => Value::U16(*n),
        AMQPValue::LongInt(n) => Value::I32(*n),
        AMQPValue::LongUInt(n) => Value::U32(*n),
        AMQPValue::LongLongInt(n) => Value::I64(*n),
        AMQPValue::Float(n) => Value::F32(*n),
        AMQPValue::Double(n) => Value::F64(*n),
        AMQPValue::DecimalValue(n) => Value::Decimal(n.scale, n.value),
        AMQPValue::ShortString(text) => Value::ShortText(text.to_string()),
        AMQPValue::LongString(text) => Value::Text(text.as_bytes().to_vec()),
        AMQPValue::FieldArray(values) => Value::Array(values.as_slice().iter().map(read_value).collect()),
        AMQPValue::Timestamp(seconds) => Value::Timestamp(*seconds),
        AMQPValue::FieldTable(table) => Value::Table(read_table(table)),
        AMQPValue::ByteArray(bytes) => Value::Bytes(bytes.as_slice().to_vec()),
        AMQPValue::Void => Value::Void,
    }
}

/// Converts the properties of a message to publish.
///
/// # Errors
/// When a text is longer than the 255 bytes that AMQP allows.
pub fn write(properties: &Properties) -> Result<BasicProperties, BrokerError> {
    let mut written =
        BasicProperties::default().with_delivery_mode(DELIVERY_MODE).with_headers(write_table(&properties.headers)?);
    macro_rules! texts {
        ($($field:ident $with:ident),*) => {
            $(if let Some(text) = &properties.$field {
                written = written.$with(short(text)?);
            })*
        };
    }
    texts!(
        content_type with_content_type, content_encoding with_content_encoding, correlation_id with_correlation_id,
        reply_to with_reply_to, message_id with_message_id, kind with_type, app_id with_app_id,
        cluster_id with_cluster_id
    );
    if let Some(timestamp) = properties.timestamp {
        written = written.with_timestamp(timestamp);
    }
    Ok(written)
}

fn write_table(headers: &Headers) -> Result<FieldTable, BrokerError> {
    let mut table = FieldTable::default();
    for (name, value) in headers {
        table.insert(short(name)?, write_value(value)?);
    }
    Ok(table)
}

fn write_value(value: &Value) -> Result<AMQPValue, BrokerError> {
    Ok(match value {
        Value::Bool(b) => AMQPValue::Boolean(*b),
        Value::I8(n) => AMQPValue::ShortShortInt(*n),
        Value::U8(n) => AMQPValue::ShortShortUInt(*n),
        Value::I16(n) => AMQPValue::ShortInt(*n),
        Value::U16(n) => AMQPValue::ShortUInt(*n),
        Value::I32(n) => AMQPValue::LongInt(*n),
        Value::U32(n) => AMQPValue::LongUInt(*n),
        Value::I64(n) => AMQPValue::LongLongInt(*n),
        Value::F32(n) => AMQPValue::Float(*n),
        Value::F64(n) => AMQPValue::Double(*n),
        Value::Decimal(scale, value) => AMQPValue::DecimalValue(DecimalValue { scale: *scale, value: *value }),
        Value::ShortText(text) => AMQPValue::ShortString(short(text)?),
        Value::Text(bytes) => AMQPValue::LongString(bytes.clone().into()),
        Value::Array(values) => {
            AMQPValue::FieldArray(values.iter().map(write_value).collect::<Result<Vec<_>, _>>()?.into())
        }
        Value::Timestamp(seconds) => AMQPValue::Timestamp(*seconds),
        Value::Table(headers) => AMQPValue::FieldTable(write_table(headers)?),
        Value::Bytes(bytes) => AMQPValue::ByteArray(bytes.clone().into()),
        Value::Void => AMQPValue::Void,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_message_is_copied_as_it_came() {
        let values = [
            Value::Bool(true),
            Value::I8(-1),
            Value::U8(255),
            Value::I16(-2),
            Value::U16(65_535),
            Value::I32(-3),
            Value::U32(u32::MAX),
            Value::I64(i64::MIN),
            Value::F32(1.5),
            Value::F64(-2.5),
            Value::Decimal(2, 12_345),
            Value::ShortText("short".into()),
            Value::Text(vec![0, 159, 146, 150]),
            Value::Array(vec![Value::Void, Value::I32(7)]),
            Value::Timestamp(1_780_000_000),
            Value::Table([("k".to_owned(), Value::Bool(false))].into()),
            Value::Bytes(vec![0, 255]),
            Value::Void,
        ];
        let headers: Headers = (0..).zip(values).map(|(n, value): (u8, _)| (format!("h{n}"), value)).collect();
        let text = |text: &str| Some(text.to_owned());
        let properties = Properties {
            content_type: text("application/json"),
            content_encoding: text("gzip"),
            correlation_id: text("c"),
            reply_to: text("r"),
            message_id: text("m"),
            timestamp: Some(1),
            kind: text("mail"),
            app_id: text("a"),
            cluster_id: text("x"),
            headers,
        };
        let written = write(&properties).expect("every text is short");
        assert_eq!(*written.delivery_mode(), Some(2));
        assert_eq!(read(&written), properties);
    }

    #[test]
    fn a_copy_does_not_expire_and_has_no_priority() {
        let foreign = BasicProperties::default().with_expiration("50".into()).with_user_id("guest".into());
        let written = write(&read(&foreign.with_priority(9))).expect("every text is short");
        assert_eq!((written.expiration(), written.user_id(), written.priority()), (&None, &None, &None));
    }

    #[test]
    fn a_text_that_is_too_long_is_an_error_and_no_panic() {
        let properties = Properties { correlation_id: Some("x".repeat(256)), ..Properties::default() };
        assert!(write(&properties).is_err());
    }
}
