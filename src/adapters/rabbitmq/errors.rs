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
                                ", because it was too busy to start a queue, or most nodes of a stream are down, or at a message \
                                 that cannot be read (docs/operations/untranslatable.md)"
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

/// Whether a reply `NOT_FOUND` is about an object that exists. While the node of a classic queue is down, the other nodes answer
/// with this code, and so does a node that has just joined a cluster for a stream. A reply about a missing object says `no`.
pub(super) fn says_down(reply: &str) -> bool {
    !reply.starts_with("NOT_FOUND - no ")
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
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_missing_object_is_named() {
        let reason = "NOT_FOUND - no queue 'billing.processor.mail' in vhost '/'";
        assert_eq!(missing(reason, "?"), "the queue billing.processor.mail");
    }

    #[rstest]
    #[case::node_down("NOT_FOUND - home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or inaccessible")]
    #[case::timeout("NOT_FOUND - failed to perform operation on queue 'q' in vhost '/' due to timeout")]
    #[case::node_just_joined(
        "NOT_FOUND - failed to perform operation on queue 'q' in vhost '/': its master replica <13088.1.0> may be stopping or being demoted"
    )]
    fn a_queue_whose_node_does_not_answer_is_not_missing(#[case] down: &str) {
        let url = AmqpUrl::new("amqp://broker").expect("a URL");
        let said = |reason: &str| {
            let error = AMQPError::new(AMQPSoftError::NOTFOUND.into(), reason.into());
            url.error(&ErrorKind::ProtocolError(error).into(), "the queue billing.processor.mail")
        };
        assert!(matches!(said(down), BrokerError::Unreachable { .. }));
        assert!(matches!(said("NOT_FOUND - no queue 'q' in vhost '/'"), BrokerError::Missing { .. }));
    }
}
