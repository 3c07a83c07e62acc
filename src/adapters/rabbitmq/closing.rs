//! Closing connections and channels.

use std::time::Duration;

use lapin::{Connection, types::ShortString};

/// How long a connection may take to close. lapin writes nothing, not even that, while the broker blocks publishers.
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Closes a connection, in bounded time: the broker takes a lost client for one that has closed.
pub(super) async fn close(connection: &Connection) {
    let closing = connection.close(200, ShortString::from("done"));
    match tokio::time::timeout(CLOSE_LIMIT, closing).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "closing a connection"),
        Err(_) => tracing::debug!("a connection does not close"),
    }
}
