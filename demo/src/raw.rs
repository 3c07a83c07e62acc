//! Messages as another program might publish them, with headers that make no sense.

use lapin::types::{AMQPValue, FieldTable, LongString};
use uuid::Uuid;

use crate::{
    account::{Fate, Published},
    sample::cksum,
};

/// A message to publish, and the event that the account expects.
pub(crate) struct Raw {
    pub(crate) routing_key: &'static str,
    pub(crate) headers: FieldTable,
    pub(crate) payload: &'static str,
    pub(crate) event: Published,
}

/// Returns the messages. A message with a wrong header must be dead-lettered with the reason; a valid one must be
/// handled.
pub(crate) fn messages() -> Vec<Raw> {
    let text = |text: &str| AMQPValue::LongString(LongString::from(text));
    let broken = |name: &'static str, value| raw("a broken header", vec![(name, value)], Fate::DeadLettered);
    vec![
        broken("attempts", text("twice")),
        broken("nbf", text("next Monday")),
        broken("slot", text("window seat")),
        broken("version", text("latest")),
        broken("reference", AMQPValue::LongLongInt(1042)),
        broken("created_at", AMQPValue::Boolean(true)),
        raw("only a key and a body", Vec::new(), Fate::Handled),
        // The register never gave out this version. It must not make later events of this employee stale.
        raw(
            "a version that the register never gave out",
            vec![
                ("reference", text("1001")),
                ("slot", text("i")),
                ("version", AMQPValue::LongLongInt(i64::MAX)),
                ("department", text("Research")),
            ],
            Fate::Handled,
        ),
    ]
}

fn raw(what: &str, headers: Vec<(&'static str, AMQPValue)>, fate: Fate) -> Raw {
    let payload = r#"{"employee":"1001","change":"parking-space"}"#;
    let mut table = FieldTable::default();
    let mut label = format!("raw message, {what}");
    for (name, value) in headers {
        if fate == Fate::DeadLettered {
            label = format!("{label}: {name}");
        }
        table.insert(name.into(), value);
    }
    let checksum = cksum(payload.as_bytes());
    let poison = fate == Fate::DeadLettered;
    let id = Uuid::now_v7().to_string();
    let event = Published { id, label, slot: None, fate, checksum, raw: true, poison };
    Raw { routing_key: "hr-import.now", headers: table, payload, event }
}
