//! The names of the headers of an event's message.

pub(super) const REFERENCE: &str = "reference";
pub(super) const CREATED_AT: &str = "created_at";
pub(super) const NBF: &str = "nbf";
pub(super) const EXPIRES: &str = "expires";
pub(super) const ATTEMPTS: &str = "attempts";
pub(super) const REASON: &str = "reason";
pub(super) const FIRST_FAILURE: &str = "first_failure";
pub(super) const LAST_FAILURE: &str = "last_failure";
pub(super) const SLOT: &str = "slot";
pub(super) const VERSION: &str = "version";
pub(super) const GENERATION: &str = "generation";
pub(super) const BUSY: &str = "busy";
pub(super) const CRASHES: &str = "crashes";
pub(super) const TRACEPARENT: &str = "traceparent";

/// The headers that [`encode`](super::encode) writes or removes.
pub(super) const ALL: [&str; 14] = [
    REFERENCE,
    CREATED_AT,
    NBF,
    EXPIRES,
    ATTEMPTS,
    REASON,
    FIRST_FAILURE,
    LAST_FAILURE,
    SLOT,
    VERSION,
    GENERATION,
    BUSY,
    CRASHES,
    TRACEPARENT,
];
