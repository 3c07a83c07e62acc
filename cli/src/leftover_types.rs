//! Tells about types that were removed from the file while Redis still knows events of them.

use hatchery::{EventType, internals::time::millis_text};
use hatchery_admin::{LeftoverType, LeftoverTypes};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    exit::{Ended, Exit},
    output::Output,
};

/// A type that is no longer in the file and still has events.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LeftType {
    /// The name of the type.
    #[serde(rename = "type")]
    event_type: String,
    /// How many events of it wait; `null` if Redis does not tell.
    events: Option<u64>,
    /// Whether there may be more.
    or_more: bool,
    /// When the next one is due.
    next_due: Option<String>,
}

/// Warns about each type, and advises what to write into the file.
pub(crate) fn warn(left: &LeftoverTypes, output: Output) {
    for (event_type, LeftoverType { events, or_more, next_due, .. }) in &left.known {
        let more = if *or_more { " or more" } else { "" };
        let (s, verb) = if *events == 1 { ("", "waits") } else { ("s", "wait") };
        let due = next_due.map(|due| format!(", the next one until {}", millis_text(due))).unwrap_or_default();
        output.warn(&format!(
            "`{event_type}` is no longer in the file, and {events}{more} event{s} of it {verb}{due}; \
             no worker of this file takes them"
        ));
        output.help(&format!(
            "if the type was renamed, write `renamed-from: {event_type}` under its new name; else put it back into the file \
             until its events have run or are cancelled"
        ));
    }
    if let Some((left, why)) = &left.unknown {
        let names: Vec<String> = left.iter().map(|event_type| format!("`{event_type}`")).collect();
        let names = names.join(", ");
        output.warn(&format!("{names} left the file, and whether events of {names} wait is unknown: {why}"));
    }
}

/// Returns the error if `--prune` would remove the queue of a type that still has events.
pub(crate) fn refusal(event_type: &EventType) -> Ended {
    let message = format!(
        "`{event_type}` cannot be pruned while events of it wait, see above; nothing was written. `topology apply` \
         without --prune leaves its queues as they are"
    );
    Ended::new(Exit::Blocked, message)
}

/// Returns the types for the JSON document of a plan.
pub(crate) fn view(left: &LeftoverTypes) -> Vec<LeftType> {
    let known = left.known.iter().map(|(event_type, behind)| LeftType {
        event_type: event_type.to_string(),
        events: Some(behind.events),
        or_more: behind.or_more,
        next_due: behind.next_due.map(millis_text),
    });
    let unknown = left.unknown.iter().flat_map(|(left, _)| left).map(|event_type| LeftType {
        event_type: event_type.to_string(),
        events: None,
        or_more: true,
        next_due: None,
    });
    known.chain(unknown).collect()
}
