//! What a handler in another language is told about an event, next to its payload.

use hatchery::internals::{event::Event, register::Slot, time::millis_text, wire::cut_reason};

/// One field of an event, by both of its names.
pub(super) struct Field {
    /// In the environment of a program.
    pub(super) variable: &'static str,
    /// Among the headers of a request.
    pub(super) header: &'static str,
    /// As text; absent where the event does not say.
    pub(super) value: Option<String>,
}

/// All fields, those that are absent too.
pub(super) fn fields(event: &Event, fence: Option<i64>) -> [Field; 12] {
    let competes = !matches!(event.stamp.slot, Slot::Event(_));
    [
        ("EVENT_ID", "event-id", Some(event.id.clone())),
        ("EVENT_TYPE", "event-type", Some(event.event_type.to_string())),
        ("EVENT_REFERENCE", "event-reference", event.reference.as_ref().map(ToString::to_string)),
        ("EVENT_NBF", "event-nbf", event.nbf.map(millis_text)),
        ("EVENT_ATTEMPTS", "event-attempts", Some(event.attempts.to_string())),
        // A stranger's may be longer than any header should be.
        ("EVENT_REASON", "event-reason", event.reason.as_deref().map(|reason| cut_reason(reason).to_owned())),
        ("EVENT_VERSION", "event-version", competes.then(|| event.stamp.version.to_string())),
        ("EVENT_FENCE", "event-fence", fence.map(|fence| fence.to_string())),
        ("EVENT_CREATED_AT", "event-created-at", Some(millis_text(event.created_at))),
        ("EVENT_CONTENT_TYPE", "content-type", event.content_type.clone()),
        ("EVENT_CORRELATION_ID", "event-correlation-id", event.correlation_id.clone()),
        ("EVENT_TRACEPARENT", "traceparent", event.traceparent.clone()),
    ]
    .map(|(variable, header, value)| Field { variable, header, value })
}
