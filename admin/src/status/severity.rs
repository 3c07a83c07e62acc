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

    /// Returns the finding's place in the runbook, which is its kind but for two.
    pub(super) fn anchor(&self) -> String {
        let json = serde_json::to_value(self).unwrap_or_default();
        let anchor = match json["kind"].as_str().unwrap_or_default() {
            "source-no-consumer" => "source-without-a-consumer",
            "source-missing" => "source-without-a-queue",
            kind => kind,
        };
        anchor.to_owned()
    }
}
