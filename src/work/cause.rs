//! Why a type does not run as usual.

use std::sync::Arc;

use crate::domain::switches::Pause;

/// Why a type or a source does not run as usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Redis does not answer.
    Register,
    /// Redis answers pings again. Whether it answers a claim shows with the first event.
    RegisterIsBack,
    /// The handler is unavailable, for this reason.
    Handler(String),
    /// An event waits to run alone.
    Isolation,
    /// The circuit breaker is open: there were too many errors. Or its state is not known.
    Breaker,
    /// Somebody has paused the type or source.
    Paused(Arc<Pause>),
    /// The switches cannot be read, for this reason: the type or source may be paused.
    SwitchesUnread(Arc<str>),
}
