//! An event in JSON.

use hatchery::Known;
use serde_json::{Value, json};

/// What is known of it.
pub(super) fn view(event: &Known) -> Value {
    json!({
        "type": event.event_type.as_str(),
        "reference": event.reference.as_ref().map(ToString::to_string),
        "id": event.id,
        "slot": event.slot.to_string(),
        "state": event.state.as_str(),
        "running": event.running,
        "due": event.due.map(|due| due.to_string()),
        "attempts": event.attempts,
        "reason": event.reason,
        "version": event.copy.as_ref().map(|copy| copy.version).filter(|version| *version > 0),
        "generation": event.copy.as_ref().map(|copy| copy.generation),
    })
}
