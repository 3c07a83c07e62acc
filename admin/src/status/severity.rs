//! How bad a finding is, and its place in the runbook.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::finding::{Finding, OpenBreaker};
use crate::names;

/// The runbook, as `status` names it.
pub(super) const RUNBOOK: &str = "docs/runbook.md";

/// Runs before the last ones of this number do not count, so that a type is well soon after its handler is mended.
pub(super) const ENOUGH: u64 = 10;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Somebody should look at it.
    Look,
    /// Events are stuck, or may be lost.
    Stuck,
}

impl Finding {
    /// Whether this stranger may be a worker without the library that does not say whose it is.
    pub(super) fn may_be_a_worker(&self) -> bool {
        matches!(self, Self::Stranger { queues, keeps_out, .. } if keeps_out.is_empty()
            && queues.iter().all(|queue| names::consumed_type(queue).is_some()))
    }

    pub(super) fn severity(&self) -> Severity {
        match self {
            // The other workers run the events.
            Self::HandlerUnavailable { workers, of, .. } if *workers < *of => Severity::Look,
            Self::Shadowed { shadowing, .. } if shadowing.unknown => Severity::Look,
            // No event passes the stream.
            Self::Shadowed { shadowing, .. } if shadowing.is_of_life_cycle() => Severity::Look,
            // Perhaps one event fails again and again.
            Self::Failing { types, .. } if types.iter().all(|failing| failing.ended < ENOUGH) => Severity::Look,
            Self::Stranger { .. } if self.may_be_a_worker() => Severity::Look,
            // It waits for an event, or for one that runs.
            Self::BreakerOpen { breakers } if breakers.iter().all(OpenBreaker::is_half_open) => Severity::Look,
            Self::WrongObjects { .. }
            | Self::BrokerAlarm { .. }
            | Self::Shadowed { .. }
            | Self::NotApplied { .. }
            | Self::SwitchesUnread { .. }
            | Self::Wedged { .. }
            | Self::Unrouted { .. }
            | Self::NoConsumer { .. }
            | Self::SourceNoConsumer { .. }
            | Self::SourceMissing { .. }
            | Self::Stranger { .. }
            | Self::NotAcknowledging { .. }
            | Self::Blocked { .. }
            | Self::HandlerUnavailable { .. }
            | Self::Failing { .. }
            | Self::Overdue { .. }
            | Self::BreakerOpen { .. }
            | Self::ScheduleLate { .. }
            | Self::RedisAway { .. }
            | Self::RedisTakesNoWrites { .. }
            | Self::RedisTaken { .. } => Severity::Stuck,
            Self::Misrouting { .. }
            | Self::RedisEmptied { .. }
            | Self::RedisEvicts { .. }
            | Self::NotRecorded { .. }
            | Self::ClockWrong { .. }
            | Self::ManagementAway { .. }
            | Self::ScheduleNotApplied { .. }
            | Self::SchedulePaused { .. }
            | Self::Drift { .. }
            | Self::DeadLetters { .. } => Severity::Look,
        }
    }

    /// Returns the finding's place in the runbook.
    pub(super) const fn anchor(&self) -> &'static str {
        match self {
            Self::WrongObjects { .. } => "wrong-objects",
            Self::BrokerAlarm { .. } => "broker-alarm",
            Self::Shadowed { .. } => "shadowed",
            Self::NotApplied { .. } => "not-applied",
            Self::SwitchesUnread { .. } => "switches-unread",
            Self::Wedged { .. } => "wedged",
            Self::Unrouted { .. } => "unrouted",
            Self::NoConsumer { .. } => "no-consumer",
            Self::SourceNoConsumer { .. } => "source-without-a-consumer",
            Self::SourceMissing { .. } => "source-without-a-queue",
            Self::Stranger { .. } => "stranger",
            Self::NotAcknowledging { .. } => "not-acknowledging",
            Self::Blocked { .. } => "blocked",
            Self::HandlerUnavailable { .. } => "handler-unavailable",
            Self::BreakerOpen { .. } => "breaker-open",
            Self::Failing { .. } => "failing",
            Self::Overdue { .. } => "overdue",
            Self::RedisAway { .. } => "redis-away",
            Self::RedisTakesNoWrites { .. } => "redis-takes-no-writes",
            Self::RedisTaken { .. } => "redis-taken",
            Self::Misrouting { .. } => "misrouting",
            Self::RedisEmptied { .. } => "redis-emptied",
            Self::RedisEvicts { .. } => "redis-evicts",
            Self::NotRecorded { .. } => "not-recorded",
            Self::ClockWrong { .. } => "clock-wrong",
            Self::ManagementAway { .. } => "management-away",
            Self::ScheduleLate { .. } => "schedule-late",
            Self::ScheduleNotApplied { .. } => "schedule-not-applied",
            Self::SchedulePaused { .. } => "schedule-paused",
            Self::Drift { .. } => "drift",
            Self::DeadLetters { .. } => "dead-letters",
        }
    }
}
