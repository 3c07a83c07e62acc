//! The fields of an event that a program or a service gets, next to the payload.

use hatchery::internals::{event::Event, reason::cut_reason, register::DedupSlot, time::millis_text};

/// A field of an event, with its names.
pub(crate) struct Field {
    /// The name of the environment variable of a program.
    pub(crate) variable: &'static str,
    /// The name of the header of a request.
    pub(crate) header: &'static str,
    /// Its value as text; `None` if the event does not have it.
    pub(crate) value: Option<String>,
}

/// Returns all fields, those without a value included.
pub(crate) fn fields(event: &Event, fence: Option<i64>) -> [Field; 14] {
    let competes = !matches!(event.stamp.slot, DedupSlot::Event(_));
    [
        ("EVENT_ID", "event-id", Some(event.id.clone())),
        ("EVENT_TYPE", "event-type", Some(event.event_type.to_string())),
        ("EVENT_REFERENCE", "event-reference", event.reference.as_ref().map(ToString::to_string)),
        ("EVENT_NBF", "event-nbf", event.nbf.map(millis_text)),
        ("EVENT_ATTEMPTS", "event-attempts", Some(event.attempts.to_string())),
        // A reason written by another publisher may be longer than a header should be.
        ("EVENT_REASON", "event-reason", event.reason.as_deref().map(|reason| cut_reason(reason).to_owned())),
        ("EVENT_VERSION", "event-version", competes.then(|| event.stamp.version.to_string())),
        ("EVENT_FENCE", "event-fence", fence.map(|fence| fence.to_string())),
        ("EVENT_CREATED_AT", "event-created-at", Some(millis_text(event.created_at))),
        ("EVENT_CONTENT_TYPE", "content-type", event.content_type.clone()),
        ("EVENT_CORRELATION_ID", "event-correlation-id", event.correlation_id.clone()),
        ("EVENT_SCHEDULE", "event-schedule", event.schedule.as_ref().map(|link| link.schedule.to_string())),
        // The instant without the jitter, by which a handler knows for which day it runs.
        ("EVENT_SLOT", "event-slot", event.schedule.as_ref().and_then(|link| link.slot()).map(|at| at.to_string())),
        ("EVENT_TRACEPARENT", "traceparent", event.traceparent.clone()),
    ]
    .map(|(variable, header, value)| Field { variable, header, value })
}
