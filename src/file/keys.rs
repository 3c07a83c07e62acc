//! The name of each key of the file with the type of its value, and the words that some keys take.
//!
//! To add a key, add its name here and its row in [`super::levels`], and read it in [`super::assemble`].

use std::time::Duration;

use super::{
    field::{Field, Words, field},
    section::{Name, Named, Rules, Section, Timer},
};
use crate::domain::{
    breaker::Errors,
    life_cycle::Told,
    schedule::rule::{CatchUp, Mode, OnScheduleFailure, Overlap},
    source::{Condition, Pointer, ReferenceFrom, Unmatched},
    spec::{Delayed, Immediate, OnExpiry, QueueType},
};

/// A bound that several levels share.
pub(super) const MILLI: Duration = Duration::from_millis(1);
/// RabbitMQ's prefetch count has 16 bits.
pub(super) const MOST_PREFETCH: u64 = 65_535;

// The name of each key, and the type of its value.
pub(super) const VERSION: Field<u64> = field("version");
pub(super) const NAME: Field<str> = field("name");
pub(super) const QUEUE_TYPE: Field<QueueType> = field("queue-type");
pub(super) const HATCHERIES: Field<[Timer]> = field("hatcheries");
pub(super) const LADDER: Field<Section> = field("ladder");
pub(super) const REDIS: Field<Section> = field("redis");
pub(super) const ACK_TIMEOUT: Field<Duration> = field("ack-timeout");
pub(super) const MAX_PAYLOAD: Field<u64> = field("max-payload");
pub(super) const DEFAULTS: Field<Section> = field("defaults");
pub(super) const TYPES: Field<[Named]> = field("types");
pub(super) const ADOPT: Field<[Name]> = field("adopt");
pub(super) const PAUSED: Field<str> = field("paused");
pub(super) const RENAMED_FROM: Field<[Name]> = field("renamed-from");
pub(super) const RESOLUTION: Field<Duration> = field("resolution");
pub(super) const HORIZON: Field<Duration> = field("horizon");
pub(super) const PREFIX: Field<str> = field("prefix");
pub(super) const SHARDS: Field<u64> = field("shards");
pub(super) const DEDUP_RETENTION: Field<Duration> = field("dedup-retention");
pub(super) const BACKLOG_RETENTION: Field<Duration> = field("backlog-retention");
pub(super) const PREFETCH: Field<u64> = field("prefetch");
pub(super) const CONCURRENCY: Field<u64> = field("concurrency");
pub(super) const HANDLER_TIMEOUT: Field<Duration> = field("handler-timeout");
pub(super) const DRAIN_TIMEOUT: Field<Duration> = field("drain-timeout");
pub(super) const COALESCE: Field<Section> = field("coalesce");
pub(super) const RETRY: Field<Section> = field("retry");
pub(super) const ON_FAILURE: Field<FailureWord> = field("on-failure");
pub(super) const ON_EXPIRY: Field<OnExpiry> = field("on-expiry");
pub(super) const CRASH_LIMIT: Field<u64> = field("crash-limit");
pub(super) const EXCLUSIVE: Field<bool> = field("exclusive");
pub(super) const LEASE: Field<Duration> = field("lease");
pub(super) const REGISTER: Field<RegisterWord> = field("register");
pub(super) const KEEP_PAYLOAD: Field<u64> = field("keep-payload");
pub(super) const IN_PLACE: Field<Section> = field("in-place");
pub(super) const IMMEDIATE: Field<Immediate> = field("immediate");
pub(super) const DELAYED: Field<Delayed> = field("delayed");
pub(super) const WINDOW: Field<Duration> = field("window");
pub(super) const MAX_WAIT: Field<Duration> = field("max-wait");
pub(super) const DELAYS: Field<[Timer]> = field("delays");
pub(super) const MAX_ATTEMPTS: Field<u64> = field("max-attempts");
pub(super) const JITTER: Field<u64> = field("jitter");
pub(super) const TRIES: Field<u64> = field("tries");
pub(super) const DELAY: Field<Duration> = field("delay");
pub(super) const BREAKER: Field<Section> = field("breaker");
pub(super) const ERRORS: Field<Errors> = field("errors");
pub(super) const COOLDOWN: Field<Duration> = field("cooldown");
pub(super) const PROBES: Field<u64> = field("probes");
pub(super) const MINIMUM: Field<u64> = field("minimum");
pub(super) const NOTIFY: Field<Section> = field("notify");
pub(super) const LIFE_CYCLE: Field<Section> = field("life-cycle");
pub(super) const TOLD: Field<Told> = field("events");
pub(super) const KEEP: Field<Duration> = field("keep");
pub(super) const MAX_SIZE: Field<u64> = field("max-size");
pub(super) const SCHEDULES: Field<[Named]> = field("schedules");
pub(super) const CRON: Field<str> = field("cron");
pub(super) const EVERY: Field<Duration> = field("every");
pub(super) const MODE: Field<Mode> = field("mode");
pub(super) const SPREAD: Field<Duration> = field("jitter");
pub(super) const REFERENCE_TEXT: Field<str> = field("reference");
pub(super) const TEMPLATE: Field<serde_json::Value> = field("payload");
pub(super) const OVERLAP: Field<Overlap> = field("overlap");
pub(super) const CATCH_UP: Field<CatchUp> = field("catch-up");
pub(super) const ON_SCHEDULE_FAILURE: Field<OnScheduleFailure> = field("on-failure");
pub(super) const SOURCES: Field<[Named]> = field("sources");
pub(super) const QUEUE: Field<str> = field("queue");
pub(super) const DECLARE: Field<bool> = field("declare");
pub(super) const ORDERED: Field<bool> = field("ordered");
pub(super) const TIMEZONE: Field<jiff::tz::TimeZone> = field("timezone");
pub(super) const ID: Field<Pointer> = field("id");
pub(super) const UNMATCHED: Field<Unmatched> = field("unmatched");
pub(super) const EVENTS: Field<Rules> = field("events");
pub(super) const WHEN: Field<[Condition]> = field("when");
pub(super) const RULE_TYPE: Field<str> = field("type");
pub(super) const REFERENCE: Field<ReferenceFrom> = field("reference");
pub(super) const NBF: Field<Pointer> = field("nbf");
pub(super) const PAYLOAD: Field<Pointer> = field("payload");

/// The words of `on-failure`. Unlike the domain's type, they do not hold the keys of `in-place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureWord {
    Retry,
    InPlace,
    Block,
    Drop,
}

/// The words of `register`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterWord {
    On,
    Off,
}

macro_rules! words {
    ($($type:ident: $($word:literal $value:ident),+;)+) => {$(
        impl Words for $type {
            const WORDS: &'static [&'static str] = &[$($word),+];
            const VALUES: &'static [Self] = &[$(Self::$value),+];
        }
    )+};
}

words! {
    QueueType: "quorum" Quorum, "classic" Classic;
    FailureWord: "retry" Retry, "in-place" InPlace, "block" Block, "drop" Drop;
    OnExpiry: "dead-letter" DeadLetter, "discard" Discard;
    RegisterWord: "on" On, "off" Off;
    Told: "all" All, "failures" Failures, "off" Off;
    Immediate: "off" Off, "latest" Latest, "first" First;
    Delayed: "off" Off, "latest" Latest, "each-time" EachTime;
    Mode: "fixed" Fixed, "sequential" Sequential;
    Overlap: "queue" Queue, "skip" Skip;
    CatchUp: "none" None, "last" Last, "all" All;
    OnScheduleFailure: "continue" Continue, "pause" Pause;
    Unmatched: "dead-letter" DeadLetter, "drop" Drop;
}
