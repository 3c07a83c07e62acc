//! Warns if the broker waits less long for an acknowledgement than the file says: it would take the delivery from a
//! worker whose handler still runs. The `consumer_timeout` of the node itself is in no answer of the management API, so
//! it is not compared.

use std::time::Duration;

use hatchery::internals::{compile::Queue, ttl::Ttl};
use serde_json::Value;

use super::{Action, Address, Change, Kind, shadow::Shadow, view::View};
use crate::names;

/// Returns the warning about a queue, if there is one.
pub(super) fn change(view: &View<'_>, queue: &Queue, shadows: &[Shadow<'_>]) -> Option<Change> {
    let desired = view.desired;
    if !names::is_consumed(&desired.owner, &queue.name) {
        return None;
    }
    let argument = view.queue(&queue.name).and_then(|live| live.arguments.get("x-consumer-timeout"));
    let argument =
        argument.and_then(Value::as_u64).map(|millis| (Duration::from_millis(millis), "its argument".into()));
    let policies = shadows.iter().filter_map(|shadow| Some((shadow.consumer_timeout()?, shadow.name())));
    let (shortest, why) = argument.into_iter().chain(policies).min()?;
    if shortest >= desired.ack_timeout {
        return None;
    }
    let say = |duration| Ttl::new(duration).map_or_else(|_| format!("{duration:?}"), |ttl| ttl.to_string());
    let reason = format!(
        "RabbitMQ waits {} for an acknowledgement, by {why}; ack-timeout is {}",
        say(shortest),
        say(desired.ack_timeout)
    );
    Some(Change::note(Action::Shadowing, Address::new(Kind::Queue, &queue.name), reason))
}
