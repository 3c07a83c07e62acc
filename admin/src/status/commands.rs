//! The command that helps against what was found, or that shows more.

use super::{
    finding::{Cure, Finding},
    words::type_of,
};
use crate::{plan::Shadowing, text::quoted};

impl Finding {
    /// Returns the command that helps, or that shows more.
    pub(super) fn command(&self) -> String {
        match self {
            Self::WrongObjects { .. } => "topology apply --migrate".to_owned(),
            Self::BrokerAlarm { .. } => "rabbitmq-diagnostics alarms".to_owned(),
            Self::Shadowed { cure: Cure::Raise(command), .. } | Self::Overdue { command, .. } => command.clone(),
            Self::Shadowed { cure: Cure::Wait, .. } => "topology status --watch".to_owned(),
            Self::Shadowed { shadowing: Shadowing { operator, unknown: true, .. }, vhost, .. } => {
                let what = if *operator { "list_operator_policies" } else { "list_policies" };
                format!("rabbitmqctl {what} -p {}", quoted(vhost))
            }
            Self::Shadowed { shadowing: Shadowing { policy, operator, .. }, vhost, cure: Cure::Clear } => {
                let what = if *operator { "clear_operator_policy" } else { "clear_policy" };
                format!("rabbitmqctl {what} -p {} {}", quoted(vhost), quoted(policy))
            }
            Self::NotApplied { .. } | Self::SwitchesUnread { .. } | Self::ScheduleNotApplied { .. } => {
                "topology apply".to_owned()
            }
            Self::BreakerOpen { breakers } => match breakers.iter().find(|breaker| breaker.waits_for_a_person) {
                Some(breaker) => format!("topology breaker close {}", breaker.event_type),
                None => "topology breaker list".to_owned(),
            },
            Self::ScheduleLate { schedules, .. } | Self::SchedulePaused { schedules, .. } => {
                format!("topology schedule show {}", schedules.first().map_or("SCHEDULE", String::as_str))
            }
            Self::Misrouting { prunable: true, .. } => "topology plan --prune".to_owned(),
            Self::Wedged { .. } | Self::RedisTaken { .. } | Self::Drift { .. } | Self::Misrouting { .. } => {
                "topology plan".to_owned()
            }
            Self::Unrouted { .. } => "topology dead-letter list --unrouted".to_owned(),
            Self::NoConsumer { types, .. } if types.is_empty() => "topology plan".to_owned(),
            Self::NoConsumer { types, .. } => format!("topology work --type {} --exec COMMAND", types.join(",")),
            Self::SourceNoConsumer { has_left: true, .. } | Self::NotRecorded { .. } => "topology plan".to_owned(),
            Self::SourceNoConsumer { source, .. } => format!("topology work --source {source}"),
            Self::SourceMissing { queues, .. } => {
                format!("rabbitmqctl list_queues name | grep -F {}", quoted(queues.first().map_or("", String::as_str)))
            }
            Self::Stranger { .. } if self.may_be_a_worker() => {
                "rabbitmqctl list_connections name user_provided_name peer_host".to_owned()
            }
            Self::NotAcknowledging { worker: true, .. } => {
                "rabbitmqctl list_connections name user_provided_name peer_host".to_owned()
            }
            Self::NotAcknowledging { .. } | Self::Stranger { .. } => {
                "rabbitmqctl list_connections name pid; rabbitmqctl close_connection PID idle".to_owned()
            }
            Self::HandlerUnavailable { show, .. } | Self::Blocked { show, .. } | Self::Failing { show, .. } => {
                show.clone()
            }
            Self::RedisAway { .. } => "redis-cli -u \"$REDIS_URL\" ping".to_owned(),
            Self::RedisTakesNoWrites { state, why, .. } => {
                let section = match *state {
                    "out-of-memory" => "memory",
                    _ if why.contains("MISCONF") => "persistence",
                    _ => "replication",
                };
                format!("redis-cli -u \"$REDIS_URL\" info {section}")
            }
            Self::RedisEmptied { .. } => "redis-cli -u \"$REDIS_URL\" info keyspace".to_owned(),
            Self::RedisEvicts { .. } => "redis-cli -u \"$REDIS_URL\" config set maxmemory-policy noeviction".to_owned(),
            Self::ClockWrong { .. } => "date +%s; redis-cli -u \"$REDIS_URL\" time".to_owned(),
            Self::ManagementAway { .. } => "curl -sS \"$RABBITMQ_MANAGEMENT_URL/api/overview\"".to_owned(),
            Self::DeadLetters { queues } => match queues.as_slice() {
                [one] => format!("topology dead-letter list --type {}", type_of(&one.queue)),
                _ => "topology dead-letter list".to_owned(),
            },
        }
    }
}
