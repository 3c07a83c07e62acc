//! A message of AMQP 0.9.1: properties, headers and a body.

use std::collections::BTreeMap;

use bytes::Bytes;

/// The header that counts how often a person has replayed an event out of dead-letter. Copies keep it like a foreign one.
pub const REPLAYS: &str = "replays";

/// The longest short string of AMQP, in bytes.
pub(crate) const SHORT: usize = 255;

/// A message to publish.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The exchange to publish to.
    pub exchange: String,
    /// `<type>.<route>`.
    pub routing_key: String,
    /// Properties and headers.
    pub properties: Properties,
    /// The payload.
    pub body: Bytes,
}

/// A message as a queue delivered it.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// The routing key of the delivery.
    pub routing_key: String,
    /// Properties and headers.
    pub properties: Properties,
    /// The payload.
    pub body: Bytes,
}

/// The AMQP 0.9.1 properties that a copy keeps. `delivery_mode` is always 2; `user_id` and `expiration` are never kept, and
/// neither is `priority`: in RabbitMQ 4 it reorders queues, and delays the other messages of a TTL queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties {
    /// `content_type`.
    pub content_type: Option<String>,
    /// `content_encoding`.
    pub content_encoding: Option<String>,
    /// `correlation_id`.
    pub correlation_id: Option<String>,
    /// `reply_to`.
    pub reply_to: Option<String>,
    /// `message_id`: the event's id.
    pub message_id: Option<String>,
    /// `timestamp`, in seconds since 1970.
    pub timestamp: Option<u64>,
    /// `type`: repeats the first word of the routing key, for people, unless another program has set it to something else.
    pub kind: Option<String>,
    /// `app_id`.
    pub app_id: Option<String>,
    /// `cluster_id`.
    pub cluster_id: Option<String>,
    /// The headers by name.
    pub headers: Headers,
}

impl Properties {
    /// Returns a copy of all but the headers.
    #[must_use]
    pub fn without_headers(&self) -> Self {
        Self {
            content_type: self.content_type.clone(),
            content_encoding: self.content_encoding.clone(),
            correlation_id: self.correlation_id.clone(),
            reply_to: self.reply_to.clone(),
            message_id: self.message_id.clone(),
            timestamp: self.timestamp,
            kind: self.kind.clone(),
            app_id: self.app_id.clone(),
            cluster_id: self.cluster_id.clone(),
            headers: Headers::new(),
        }
    }
}

/// Headers by name.
pub type Headers = BTreeMap<String, Value>;

/// A header's value, in the types of AMQP 0.9.1, so that a copy carries a foreign header unchanged. Each variant names
/// its type's letter in the encoding.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `t`
    Bool(bool),
    /// `b`
    I8(i8),
    /// `B`
    U8(u8),
    /// `s`
    I16(i16),
    /// `u`
    U16(u16),
    /// `I`
    I32(i32),
    /// `i`
    U32(u32),
    /// `l`: hatchery writes every number as this.
    I64(i64),
    /// `f`
    F32(f32),
    /// `d`
    F64(f64),
    /// `D`: scale and value.
    Decimal(u8, u32),
    /// A short string.
    ShortText(String),
    /// `S`: a long string, any bytes.
    Text(Vec<u8>),
    /// `A`
    Array(Vec<Value>),
    /// `T`: seconds since 1970.
    Timestamp(u64),
    /// `F`
    Table(Headers),
    /// `x`
    Bytes(Vec<u8>),
    /// `V`
    Void,
}

impl Value {
    /// Returns a long string with this text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }

    /// Returns the text, if this is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::ShortText(text) => Some(text),
            Self::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Returns the whole number, if this is one, in any width.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::I8(n) => Some(n.into()),
            Self::U8(n) => Some(n.into()),
            Self::I16(n) => Some(n.into()),
            Self::U16(n) => Some(n.into()),
            Self::I32(n) => Some(n.into()),
            Self::U32(n) => Some(n.into()),
            Self::I64(n) => Some(n),
            _ => None,
        }
    }
}
