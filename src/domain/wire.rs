//! Encodes an event as the properties, headers and body of an AMQP message, and decodes it.
//!
//! `docs/wire-format.md` describes the format for programs that publish or consume without hatchery.

#[cfg(feature = "internals")]
pub mod fields;
mod header;
pub mod kept;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;

pub(crate) use super::message::SHORT;
pub use super::message::{Headers, Incoming, Message, Properties, REPLAYS, Value};
use super::{
    event::Event,
    reason::{self, cut_reason},
    register::{CopyVersion, DedupSlot},
    schedule::link::{self, Link},
    time::millis_text,
    ttl::parse_time,
    words::{EventType, Reference},
};

/// Why a delivery cannot be decoded. It goes to dead-letter with this reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Poison {
    /// A header is of the wrong type or out of range.
    #[error("poison: the header `{name}` should be {expected}")]
    Header {
        /// The header's name.
        name: &'static str,
        /// The values that are valid.
        expected: &'static str,
    },
    /// The event is no schedule's, although its id or its header says so.
    #[error("poison: the event is not of the schedule `{0}`, although its id or its header `schedule` says so")]
    Forged(String),
    /// The event is of another type of the file.
    #[error(
        "poison: the event is of the type {0} and came to the queue of another type; look for a binding that topology.yaml does not ask for"
    )]
    Misrouted(EventType),
}

/// Returns the type that a message from the queue of `event_type` is of instead: its routing key names that one, and no property
/// says otherwise. A message that somebody moves in the management UI has the queue's name as its routing key.
#[must_use]
pub fn misrouted<'t, V>(
    event_type: &EventType,
    incoming: &Incoming,
    types: &'t BTreeMap<EventType, V>,
) -> Option<&'t EventType> {
    let (word, _) = incoming.routing_key.split_once('.')?;
    if word == event_type.as_str() || incoming.properties.kind.as_deref() == Some(event_type.as_str()) {
        return None;
    }
    let is_moved = || {
        let kinds = ["processor", "aside", "dead-letter"];
        kinds.iter().any(|kind| incoming.routing_key.ends_with(&format!(".{kind}.{event_type}")))
    };
    types.get_key_value(word).map(|(other, _)| other).filter(|_| !is_moved())
}

/// The largest headers that a copy may take over, in bytes. All properties of a message must fit in one AMQP frame, by
/// default at most 128 KiB. A copy has a few headers more than its original. If they did not fit, the broker would
/// close the connection that published the copy.
const COPYABLE: usize = 96 * 1024;

/// Tells whether a delivery's headers are too large for a copy to carry them beside its own.
#[must_use]
pub fn is_too_large_to_copy(properties: &Properties) -> bool {
    table_size(&properties.headers) > COPYABLE
}

fn table_size(headers: &Headers) -> usize {
    headers.iter().map(|(name, value)| 2 + name.len() + value_size(value)).sum()
}

fn value_size(value: &Value) -> usize {
    match value {
        Value::ShortText(text) => 1 + text.len(),
        Value::Text(bytes) | Value::Bytes(bytes) => 4 + bytes.len(),
        Value::Array(values) => 4 + values.iter().map(|value| 1 + value_size(value)).sum::<usize>(),
        Value::Table(headers) => 4 + table_size(headers),
        _ => 8,
    }
}

/// Returns how often this delivery went back to its quorum queue: after a crash, a lost connection or an
/// acknowledgement timeout, and before RabbitMQ 4.3 also after a deliberate `basic.nack(requeue)`. Returns 0 for a
/// classic queue, which does not count.
#[must_use]
pub fn returns(properties: &Properties) -> u32 {
    let count = properties.headers.get("x-delivery-count").and_then(Value::as_i64).unwrap_or(0);
    u32::try_from(count.max(0)).unwrap_or(u32::MAX)
}

/// Tells whether a message carries its event's id. If it does not, each decoding makes another id, until a copy of the
/// message carries one.
#[must_use]
pub fn has_id(properties: &Properties) -> bool {
    properties.message_id.as_ref().is_some_and(|id| !id.is_empty())
}

/// Tells whether RabbitMQ itself writes this header or acts upon it. A copy that carried such a header would be routed
/// twice (`CC`, `BCC`) or taken for a dead-letter cycle (`x-death`; RabbitMQ 3.13 reads it back). RabbitMQ 4.3 also
/// counts in `x-acquired-count`.
fn is_brokers_own(name: &str) -> bool {
    matches!(name, "CC" | "BCC" | "x-death" | "x-delivery-count" | "x-acquired-count")
        || name.starts_with("x-first-death-")
        || name.starts_with("x-last-death-")
}

/// The largest whole number that Lua in Redis and every client represent exactly: Lua's numbers are doubles.
const EXACT: i64 = 1 << 53;

/// Decodes a delivery from the queue of `event_type`. The queue decides the type, not the routing key: a message that
/// somebody moves in the management UI has the queue's name as its routing key. `fresh_id` makes the id of an event
/// that came without one, and its copies carry that id.
///
/// # Errors
/// When the delivery is not an event: see [`Poison`].
pub fn decode(
    event_type: &EventType,
    incoming: Incoming,
    now: Timestamp,
    fresh_id: impl FnOnce() -> String,
) -> Result<Event, Box<(Poison, Incoming)>> {
    match read(event_type, &incoming, now, fresh_id) {
        Ok(event) => {
            let properties = kept_with(incoming.properties, &incoming.routing_key);
            Ok(Event { payload: incoming.body, properties, ..event })
        }
        Err(poison) => Err(Box::new((poison, incoming))),
    }
}

/// Decodes a message that its caller keeps.
///
/// # Errors
/// When the message is not an event.
#[cfg(any(test, feature = "internals"))]
pub fn decode_kept(
    event_type: &EventType,
    incoming: &Incoming,
    now: Timestamp,
    fresh_id: impl FnOnce() -> String,
) -> Result<Event, Poison> {
    let event = read(event_type, incoming, now, fresh_id)?;
    // Headers of RabbitMQ are the largest, and a copy has none of them.
    let kept = incoming.properties.headers.iter().filter(|(name, _)| is_kept(name));
    let headers = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    let properties = Properties { headers, ..incoming.properties.without_headers() };
    let properties = kept_with(properties, &incoming.routing_key);
    Ok(Event { payload: incoming.body.clone(), properties, ..event })
}

/// Returns the date of a message, if it has a valid one.
#[cfg(feature = "internals")]
pub fn nbf(incoming: &Incoming) -> Option<Timestamp> {
    Reader(&incoming.properties.headers).time(header::NBF).ok()?
}

/// Returns the properties that an event keeps for its copies beside its own fields, which [`encode`] writes again. The property `type`
/// is one of these if it names the event's type, perhaps by a former name; any other is its publisher's.
fn kept_with(mut properties: Properties, routing_key: &str) -> Properties {
    properties.headers.retain(|name, _| is_kept(name));
    let named = routing_key.split('.').next();
    properties.kind = properties.kind.filter(|kind| !kind.is_empty() && Some(kind.as_str()) != named);
    properties
}

/// Returns a new event with what it takes over from a message that was saved: all that a copy would, but for the fields of the event.
#[must_use]
pub fn restored(event: Event, properties: Properties) -> Event {
    let headers = Reader(&properties.headers);
    let created_at = headers.time(header::CREATED_AT).ok().flatten().or_else(|| seconds(properties.timestamp));
    let traceparent = headers.text(header::TRACEPARENT, "text").ok().flatten().map(str::to_owned);
    let properties = kept_with(properties, event.event_type.as_str());
    Event {
        created_at: created_at.unwrap_or(event.created_at),
        content_type: properties.content_type.clone(),
        correlation_id: properties.correlation_id.clone(),
        traceparent,
        properties,
        ..event
    }
}

fn is_kept(header: &str) -> bool {
    !is_brokers_own(header) && !header::ALL.contains(&header)
}

/// Returns the properties that a copy keeps: all but the headers that RabbitMQ itself writes or acts upon.
#[must_use]
pub fn foreign(mut properties: Properties) -> Properties {
    properties.headers.retain(|name, _| !is_brokers_own(name));
    properties
}

fn read(
    event_type: &EventType,
    incoming: &Incoming,
    now: Timestamp,
    fresh_id: impl FnOnce() -> String,
) -> Result<Event, Poison> {
    let properties = &incoming.properties;
    let headers = Reader(&properties.headers);

    let reference: Option<Reference> =
        headers.parsed(header::REFERENCE, "1 to 255 bytes of text without control characters")?;
    let id = match &properties.message_id {
        Some(id) if !id.is_empty() => id.clone(),
        _ => fresh_id(),
    };
    // A generation above `EXACT` is lowered to it. If it were poison instead, the next copy of an event at the limit
    // could not be read.
    let generation = headers.number(header::GENERATION, 0..=i64::MAX)?.map_or(0, |generation| generation.min(EXACT));
    // The register gives out only positive versions, so any other counts as absent.
    let version = headers.number(header::VERSION, i64::MIN..=i64::MAX)?.filter(|version| *version > 0);
    let slot: Option<DedupSlot> = headers.parsed(header::SLOT, "i, f, d, d:<ms>, q:<ms> or e:<id>")?;
    let stamp = match (slot, version) {
        // Events compete for a reference, so an event without one competes with nothing.
        (Some(slot), Some(version)) if reference.is_some() && !matches!(slot, DedupSlot::Event(_)) => {
            CopyVersion { slot, version: version.min(EXACT), generation }
        }
        _ => CopyVersion::uncontested(&id, generation),
    };
    let created_at = match headers.time(header::CREATED_AT)? {
        Some(created_at) => created_at,
        None => seconds(properties.timestamp).unwrap_or(now),
    };
    let busy = headers.small(header::BUSY)?;
    let reason = headers.text(header::REASON, "text")?.and_then(|text| reason::own(busy, text));
    Ok(Event {
        id,
        event_type: event_type.clone(),
        reference,
        created_at,
        nbf: headers.time(header::NBF)?,
        expires: headers.time(header::EXPIRES)?,
        attempts: headers.small(header::ATTEMPTS)?,
        busy,
        crashes: headers.small(header::CRASHES)?,
        by_hand: is_by_hand(event_type, incoming) || reason.is_some_and(reason::is_of_a_dead_letter),
        reason: reason.map(str::to_owned),
        first_failure: headers.text(header::FIRST_FAILURE, "text")?.map(str::to_owned),
        last_failure: headers.text(header::LAST_FAILURE, "text")?.map(str::to_owned),
        stamp,
        content_type: properties.content_type.clone(),
        correlation_id: properties.correlation_id.clone(),
        traceparent: headers.text(header::TRACEPARENT, "text")?.map(str::to_owned),
        payload: Bytes::new(),
        properties: Properties::default(),
        schedule: headers.link()?.map(Arc::new),
    })
}

/// Tells whether a person sent this delivery, because it came by a route that no copy takes by itself. Its routing key
/// is that of a dead letter; or it is the queue's name, as when the management UI moves a message; or RabbitMQ itself
/// had dead-lettered the message before, as rejected or over the delivery limit.
fn is_by_hand(event_type: &EventType, incoming: &Incoming) -> bool {
    let key = incoming.routing_key.as_str();
    let straight = || key.strip_suffix(event_type.as_str()).is_some_and(|before| before.ends_with(".processor."));
    let Some(Value::Array(deaths)) = incoming.properties.headers.get("x-death") else {
        return key.ends_with(".dead-letter") || straight();
    };
    let was_given_up = |death: &Value| match death {
        Value::Table(death) => {
            matches!(death.get("reason").and_then(Value::as_str), Some("rejected" | "delivery_limit"))
        }
        _ => false,
    };
    key.ends_with(".dead-letter") || straight() || deaths.iter().any(was_given_up)
}

fn seconds(timestamp: Option<u64>) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(timestamp?).ok()?).ok()
}

struct Reader<'a>(&'a Headers);

impl<'a> Reader<'a> {
    /// Returns a header's value. A void header counts as absent.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !matches!(value, Value::Void))
    }

    fn text(&self, name: &'static str, expected: &'static str) -> Result<Option<&'a str>, Poison> {
        self.get(name).map(|value| value.as_str().ok_or(Poison::Header { name, expected })).transpose()
    }

    fn parsed<T: std::str::FromStr>(&self, name: &'static str, expected: &'static str) -> Result<Option<T>, Poison> {
        self.text(name, expected)?.map(|text| text.parse().map_err(|_| Poison::Header { name, expected })).transpose()
    }

    fn time(&self, name: &'static str) -> Result<Option<Timestamp>, Poison> {
        let expected = "a time like 2026-06-01T09:00:00.000Z, not after 9999-12-30T22:00:00Z";
        let text = self.text(name, expected)?;
        text.map(|text| parse_time(text).map_err(|_| Poison::Header { name, expected })).transpose()
    }

    fn number(&self, name: &'static str, range: std::ops::RangeInclusive<i64>) -> Result<Option<i64>, Poison> {
        let expected = "a whole number, not negative and not too large";
        self.get(name)
            .map(|value| value.as_i64().filter(|n| range.contains(n)).ok_or(Poison::Header { name, expected }))
            .transpose()
    }

    fn link(&self) -> Result<Option<Link>, Poison> {
        let (name, expected) = (link::HEADER, "the place of the event in its schedule, as `topology apply` writes it");
        let text = self.text(name, expected)?;
        text.map(|text| Link::parse(text).map_err(|_| Poison::Header { name, expected })).transpose()
    }

    fn small(&self, name: &'static str) -> Result<u32, Poison> {
        let number = self.number(name, 0..=u32::MAX.into())?.unwrap_or(0);
        Ok(u32::try_from(number).unwrap_or(u32::MAX))
    }
}

/// Encodes an event's properties: those that its message carried, overwritten with the event's own fields.
#[must_use]
pub fn encode(event: &Event) -> Properties {
    let mut properties = event.properties.clone();
    properties.message_id = Some(event.id.clone());
    properties.kind.get_or_insert_with(|| event.event_type.to_string());
    properties.timestamp = u64::try_from(event.created_at.as_second()).ok();
    properties.content_type.clone_from(&event.content_type);
    properties.correlation_id.clone_from(&event.correlation_id);

    let mut set = |name: &str, value: Option<Value>| match value {
        Some(value) => drop(properties.headers.insert(name.to_owned(), value)),
        None => drop(properties.headers.remove(name)),
    };
    let competes = !matches!(event.stamp.slot, DedupSlot::Event(_));
    set(header::REFERENCE, event.reference.as_ref().map(|reference| Value::text(reference.as_str())));
    set(header::CREATED_AT, Some(Value::text(&millis_text(event.created_at))));
    set(header::NBF, event.nbf.map(|nbf| Value::text(&millis_text(nbf))));
    set(header::EXPIRES, event.expires.map(|expires| Value::text(&millis_text(expires))));
    set(header::ATTEMPTS, Some(Value::I64(event.attempts.into())));
    set(header::BUSY, (event.busy > 0).then(|| Value::I64(event.busy.into())));
    set(header::CRASHES, (event.crashes > 0).then(|| Value::I64(event.crashes.into())));
    let for_people = |text: &Option<String>| text.as_deref().map(|text| Value::text(cut_reason(text)));
    set(header::REASON, for_people(&reason::waiting(event.busy, event.reason.as_deref())));
    set(header::FIRST_FAILURE, for_people(&event.first_failure));
    set(header::LAST_FAILURE, for_people(&event.last_failure));
    set(header::SLOT, Some(Value::text(&event.stamp.slot.to_string())));
    set(header::VERSION, competes.then_some(Value::I64(event.stamp.version)));
    set(header::GENERATION, Some(Value::I64(event.stamp.generation)));
    set(header::TRACEPARENT, event.traceparent.as_deref().map(Value::text));
    properties
}

/// Returns the properties with which a message goes to dead-letter for this reason: its own, an id, the reason, and the
/// reason as its failure. If the message's own failure header is not a text, that may be the defect, so it stays for people to see.
#[must_use]
pub fn encode_buried(
    properties: Properties,
    reason: &str,
    now: Timestamp,
    fresh_id: impl FnOnce() -> String,
) -> Properties {
    let mut properties = foreign(properties);
    properties.message_id.get_or_insert_with(fresh_id);
    let headers = &mut properties.headers;
    headers.insert(header::REASON.to_owned(), Value::text(cut_reason(reason)));
    let failure = Value::text(cut_reason(&format!("{} {reason}", millis_text(now))));
    if Reader(headers).get(header::FIRST_FAILURE).is_none() {
        headers.insert(header::FIRST_FAILURE.to_owned(), failure.clone());
    }
    if Reader(headers).get(header::LAST_FAILURE).is_none_or(|last| last.as_str().is_some()) {
        headers.insert(header::LAST_FAILURE.to_owned(), failure);
    }
    properties
}

/// Returns the properties of a dead letter without what [`encode_buried`] added for people, so that the message can go back
/// to where it came from. It keeps its id.
#[must_use]
#[cfg(any(test, feature = "internals"))]
pub fn unburied(properties: Properties) -> Properties {
    let mut properties = foreign(properties);
    for name in [header::REASON, header::FIRST_FAILURE, header::LAST_FAILURE] {
        properties.headers.remove(name);
    }
    properties
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
