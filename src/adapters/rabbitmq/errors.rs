//! Translates lapin's errors.

use lapin::{
    ErrorKind,
    protocol::{AMQPErrorKind, AMQPSoftError},
};

use super::{suspects, url::AmqpUrl};
use crate::{adapters::tls, ports::BrokerError};

/// How RabbitMQ's refusal ends if a stream is consumed with a priority.
const STREAM: &str = " of queue type rabbit_stream_queue";

impl AmqpUrl {
    /// Translates lapin's error for a call about `object`.
    #[must_use]
    pub fn error(&self, error: &lapin::Error, object: &str) -> BrokerError {
        let url = self.to_string();
        match error.kind() {
            ErrorKind::ProtocolError(amqp) => {
                let reason = amqp.get_message().to_string();
                match amqp.kind() {
                    AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) if says_down(&reason) => {
                        BrokerError::Unreachable { url, reason }
                    }
                    AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
                        BrokerError::Missing { object: missing(&reason, object) }
                    }
                    AMQPErrorKind::Soft(AMQPSoftError::RESOURCELOCKED) => {
                        BrokerError::Locked { object: object.to_owned() }
                    }
                    AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) if reason.ends_with(STREAM) => {
                        BrokerError::Stream { object: object.to_owned() }
                    }
                    AMQPErrorKind::Soft(_) => BrokerError::Rejected { what: object.to_owned(), reason },
                    // A hard error closes the connection, and fails the calls of others on it that did nothing wrong.
                    AMQPErrorKind::Hard(_) => {
                        let perhaps = match suspects::unreadable(error) {
                            Some(_) => {
                                ", because it was too busy to start a queue, or at a message that cannot be read \
                                          (docs/operations/untranslatable.md)"
                            }
                            None => "",
                        };
                        BrokerError::Unreachable { url, reason: format!("it closed the connection: {reason}{perhaps}") }
                    }
                }
            }
            _ => BrokerError::Unreachable { url, reason: reason(error) },
        }
    }
}

/// Returns the reason of an error of the connection or of TLS.
pub(super) fn reason(error: &lapin::Error) -> String {
    let ErrorKind::IOError(io) = error.kind() else { return error.to_string() };
    tls::explain(&**io).unwrap_or_else(|| error.to_string())
}

/// Whether a reply says that the node of a queue is down. A classic queue is on one node. While that node is down, the
/// other nodes answer as if the queue were missing, and only the text differs.
pub(super) fn says_down(reply: &str) -> bool {
    reply.contains("home node") && reply.contains("is down or inaccessible")
}

/// Returns the missing object that a reply such as `NOT_FOUND - no queue 'x' in vhost '/'` names, or else `object`.
fn missing(reason: &str, object: &str) -> String {
    let mut parts = reason.split('\'');
    let kind = parts.next().and_then(|text| text.rsplit("no ").next()).map(str::trim);
    match (kind, parts.next()) {
        (Some(kind @ ("queue" | "exchange")), Some(name)) => format!("the {kind} {name}"),
        _ => object.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use lapin::protocol::AMQPError;

    use super::*;

    #[test]
    fn the_missing_object_is_named() {
        let reason = "NOT_FOUND - no queue 'billing.processor.mail' in vhost '/'";
        assert_eq!(missing(reason, "?"), "the queue billing.processor.mail");
    }

    #[test]
    fn a_queue_whose_node_is_down_is_not_missing() {
        let down = "NOT_FOUND - home node 'rabbit@b' of durable queue 'billing.processor.mail' in vhost '/' is down or inaccessible";
        let url = AmqpUrl::new("amqp://broker").expect("a URL");
        let said = |reason: &str| {
            let error = AMQPError::new(AMQPSoftError::NOTFOUND.into(), reason.into());
            url.error(&ErrorKind::ProtocolError(error).into(), "the queue billing.processor.mail")
        };
        assert!(matches!(said(down), BrokerError::Unreachable { .. }));
        assert!(matches!(said("NOT_FOUND - no queue 'q' in vhost '/'"), BrokerError::Missing { .. }));
    }
}
