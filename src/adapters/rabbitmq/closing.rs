//! Closes connections within a time limit.

use std::time::Duration;

use lapin::{Connection, types::ShortString};

/// How long a connection may take to close. While the broker blocks publishers lapin writes nothing, not even the close; and one close in
/// 200 never returned (lapin 4.12.3, RabbitMQ 4.0, busy machine).
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Closes a connection, or gives up after two seconds: the broker treats a lost client like one that has closed.
pub async fn close(connection: &Connection) {
    let closing = connection.close(200, ShortString::from("done"));
    match tokio::time::timeout(CLOSE_LIMIT, closing).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "closing a connection"),
        Err(_) => tracing::debug!("a connection was not closed in time"),
    }
}
