//! Sends a message until the broker confirms it: the one way of publishers, workers and people's commands.

use std::time::Duration;

use backon::Retryable;
use tokio::time::{Instant, timeout_at};

use super::published::PublishError;
use crate::{
    domain::wire::Message,
    outage::{BrokerOutage, backoff},
    ports::{Broker, BrokerError, Confirming},
};

/// A sent message that waits for its confirm, or the error of sending.
pub(super) type Given = Result<Confirming, BrokerError>;

/// Publishes until the broker confirms, at most until the limit. `message` builds the message anew for each try, and returns
/// `None` once it is too late.
pub(crate) async fn send(
    broker: &dyn Broker,
    outage: &BrokerOutage,
    within: Duration,
    message: impl FnMut() -> Option<Message>,
) -> Result<(), PublishError> {
    confirm(broker, outage, Instant::now() + within, None, message).await
}

/// Waits for the confirm of a message that was `given`, if one was, and publishes until the broker confirms, at most until the deadline.
pub(super) async fn confirm(
    broker: &dyn Broker,
    outage: &BrokerOutage,
    deadline: Instant,
    given: Option<Given>,
    message: impl FnMut() -> Option<Message>,
) -> Result<(), PublishError> {
    let sent = until_confirmed(broker, outage, given, BrokerError::is_transient, message);
    match timeout_at(deadline, sent).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) | Err(_) => Err(PublishError::Timeout),
        Ok(Err(error)) => Err(error.into()),
    }
}

/// Publishes until the broker confirms, until there is no message any more, or until an error that is not worth a repetition. A missing copy
/// would lose the event. Of two that arrive, the register drops one; without the register both run. Returns whether the broker
/// has confirmed one.
pub(crate) async fn until_confirmed(
    broker: &dyn Broker,
    outage: &BrokerOutage,
    mut given: Option<Given>,
    is_repeated: impl Fn(&BrokerError) -> bool,
    mut message: impl FnMut() -> Option<Message>,
) -> Result<bool, BrokerError> {
    let publish = || {
        let given = given.take();
        let message = if given.is_none() { message() } else { None };
        async move {
            match (given, message) {
                (Some(given), _) => given?.await?,
                (None, Some(message)) => broker.publish(message).await?,
                (None, None) => return Ok(false),
            }
            Ok(true)
        }
    };
    let is_confirmed = publish.retry(backoff()).when(is_repeated).notify(|error, _| outage.begins(error)).await?;
    if is_confirmed {
        outage.ends();
    }
    Ok(is_confirmed)
}
