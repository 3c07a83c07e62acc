//! What those who listen to changes are told.

use axum::body::Bytes;
use serde_json::Value;
use tokio::sync::{Notify, watch};

/// What is told: an event of the stream, and what it says without its time.
pub(crate) struct Told {
    pub(crate) event: Bytes,
    pub(crate) says: Value,
}

/// The last status, for those who listen.
pub(crate) struct Changes {
    pub(crate) told: watch::Sender<Option<Told>>,
    pub(crate) someone: Notify,
}

impl Changes {
    pub(crate) fn new() -> Self {
        Self { told: watch::Sender::new(None), someone: Notify::new() }
    }
}
