//! What each key of a stranger's policy does to a queue.

use hatchery::internals::compile::STREAM;
use serde_json::Value;

use super::compare;

pub(super) const QUORUM: &str = "quorum";

/// The effect of a policy key on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    /// It limits the queue, expires its messages, or changes how it dead-letters. Where an argument and a policy both set a TTL,
    /// length or limit, the smaller one wins, and the policy's `overflow` wins on a quorum queue. So our arguments do not
    /// protect a queue.
    Harm,
    /// The queue's type does not support the key, so RabbitMQ applies no key of the policy to it (`unsupported_policies` in the
    /// type's `capabilities/0`, and `rabbit_policy:matches/3`; measured on 3.10).
    Apart,
    /// The key may be one of a RabbitMQ that is newer than this program.
    Unknown,
}

use Effect::{Apart, Harm, Nothing};

/// Every key that a policy may have in RabbitMQ 3.10, 4.0 and 4.3, plugins included (all `policy_validator` of its source), and
/// its effect on a quorum queue, a classic queue and a stream.
#[rustfmt::skip]
const KEYS: [(&str, Effect, Effect, Effect); 35] = [
    ("alternate-exchange", Nothing, Nothing, Nothing),
    // The plan compares it with `ack-timeout` of the file.
    ("consumer-timeout", Nothing, Nothing, Nothing),
    ("dead-letter-exchange", Harm, Harm, Apart),
    ("dead-letter-routing-key", Harm, Harm, Apart),
    ("dead-letter-strategy", Harm, Apart, Apart),
    ("delayed-retry-max", Nothing, Nothing, Nothing),
    ("delayed-retry-min", Nothing, Nothing, Nothing),
    // A queue of RabbitMQ 4.3 holds returned messages back. A type that keeps its order loses the order, and only the management
    // API counts these messages.
    ("delayed-retry-type", Harm, Nothing, Nothing),
    ("delivery-limit", Harm, Apart, Apart),
    ("expires", Harm, Harm, Apart),
    ("ha-mode", Apart, Nothing, Apart),
    ("ha-params", Apart, Nothing, Apart),
    ("ha-promote-on-failure", Apart, Nothing, Apart),
    ("ha-promote-on-shutdown", Apart, Nothing, Apart),
    ("ha-sync-batch-size", Nothing, Nothing, Nothing),
    ("ha-sync-mode", Apart, Nothing, Apart),
    ("initial-cluster-size", Apart, Apart, Nothing),
    // It may take the last message of the switches away, as may `max-length-bytes`.
    ("max-age", Apart, Apart, Harm),
    ("max-in-memory-bytes", Nothing, Nothing, Apart),
    ("max-in-memory-length", Nothing, Nothing, Apart),
    ("max-length", Harm, Harm, Apart),
    ("max-length-bytes", Harm, Harm, Harm),
    ("message-ttl", Harm, Harm, Apart),
    ("overflow", Harm, Harm, Apart),
    ("queue-leader-locator", Nothing, Nothing, Nothing),
    ("queue-master-locator", Apart, Nothing, Apart),
    ("queue-mode", Apart, Nothing, Apart),
    ("queue-version", Nothing, Nothing, Nothing),
    ("routing-key", Nothing, Nothing, Nothing),
    ("selector-field-max-bytes", Apart, Apart, Nothing),
    ("selector-fields", Apart, Apart, Nothing),
    ("shards-per-node", Nothing, Nothing, Nothing),
    ("stream-filter-size-bytes", Nothing, Nothing, Nothing),
    ("stream-max-segment-size-bytes", Apart, Apart, Nothing),
    ("target-group-size", Nothing, Nothing, Apart),
];

/// Returns what a key with this value does to a queue of this type.
pub(super) fn effect(key: &str, value: &Value, kind: &str) -> Effect {
    let Some(&(_, quorum, classic, stream)) = KEYS.iter().find(|row| row.0 == key) else { return Effect::Unknown };
    match kind {
        _ if key == "delayed-retry-type" && value == "disabled" => Nothing,
        STREAM => stream,
        compare::CLASSIC => classic,
        _ => quorum,
    }
}
