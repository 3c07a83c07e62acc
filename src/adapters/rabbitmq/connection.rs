//! One connection to the broker, and what its errors mean.

use std::{fmt, io::ErrorKind as Io, time::Duration};

use lapin::{
    Connection, ConnectionProperties, ErrorKind,
    protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError},
};
use url::Url;

use crate::ports::BrokerError;

/// How long to wait for a connection. lapin itself has no limit for the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a broker is. It is shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct AmqpUrl(Url);

/// A text that is no AMQP URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an AMQP URL: {0}; it looks like amqp://user:password@host:5672/vhost")]
pub struct AmqpUrlError(String);

impl AmqpUrl {
    /// Reads a URL with the scheme `amqp` or `amqps`.
    ///
    /// # Errors
    /// When it is none. The message does not repeat the text, for it may hold a password.
    pub fn new(text: &str) -> Result<Self, AmqpUrlError> {
        let url = Url::parse(text).map_err(|error| AmqpUrlError(error.to_string()))?;
        if !matches!(url.scheme(), "amqp" | "amqps") {
            return Err(AmqpUrlError(format!("the scheme is `{}`", url.scheme())));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(AmqpUrlError("it has no host".to_owned()));
        }
        Ok(Self(url))
    }

    /// Opens a connection that shows up under this name in the management UI.
    ///
    /// # Errors
    /// When the broker is away or refuses the credentials or the virtual host.
    pub async fn connect(&self, name: &str) -> Result<Connection, BrokerError> {
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        match tokio::time::timeout(CONNECT_TIMEOUT, Connection::connect(self.0.as_str(), properties)).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(self.not_connected(&error)),
            Err(_) => Err(self.unreachable(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()))),
        }
    }

    /// Before there is a connection the broker's own words are about this client: its credentials, its virtual host.
    fn not_connected(&self, error: &lapin::Error) -> BrokerError {
        match error.kind() {
            ErrorKind::ProtocolError(amqp)
                if !matches!(
                    amqp.kind(),
                    AMQPErrorKind::Hard(AMQPHardError::CONNECTIONFORCED | AMQPHardError::INTERNALERROR)
                ) =>
            {
                BrokerError::Refused { url: self.to_string(), reason: amqp.get_message().to_string() }
            }
            _ => self.error(error, "the connection"),
        }
    }

    /// What an error of lapin's means, for a call about this object.
    #[must_use]
    pub fn error(&self, error: &lapin::Error, object: &str) -> BrokerError {
        let url = self.to_string();
        match error.kind() {
            ErrorKind::ProtocolError(amqp) => {
                let reason = amqp.get_message().to_string();
                match amqp.kind() {
                    AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
                        BrokerError::Missing { object: missing(&reason, object) }
                    }
                    AMQPErrorKind::Soft(AMQPSoftError::RESOURCELOCKED) => {
                        BrokerError::Locked { object: object.to_owned() }
                    }
                    AMQPErrorKind::Soft(_) => BrokerError::Rejected { what: object.to_owned(), reason },
                    // It ends the connection, and with it the calls of everybody who shares it and has done nothing.
                    AMQPErrorKind::Hard(_) => BrokerError::Unreachable { url, reason },
                }
            }
            ErrorKind::IOError(io) if io.kind() == Io::ConnectionAborted => {
                // RabbitMQ closes the socket on wrong credentials when the client cannot be told otherwise.
                BrokerError::Unreachable { url, reason: "the connection was closed; are the credentials right?".into() }
            }
            _ => BrokerError::Unreachable { url, reason: error.to_string() },
        }
    }

    /// The broker cannot be reached.
    #[must_use]
    pub fn unreachable(&self, reason: String) -> BrokerError {
        BrokerError::Unreachable { url: self.to_string(), reason }
    }

    /// The URL of the management API: this host and user, port 15672.
    #[must_use]
    pub fn management(&self) -> Url {
        let mut url = self.0.clone();
        let scheme = if self.0.scheme() == "amqps" { "https" } else { "http" };
        url.set_path("/");
        // `Url` lets a scheme change only between schemes that it knows, so the text is rewritten.
        let text = url.as_str().replacen(self.0.scheme(), scheme, 1);
        let mut url = Url::parse(&text).unwrap_or(url);
        // A port is refused for URLs without a host alone, and this one has a host.
        let _ = url.set_port(Some(15672));
        if url.username().is_empty() {
            let _ = url.set_username("guest");
            let _ = url.set_password(Some("guest"));
        }
        url
    }

    /// The virtual host, `/` unless the path says otherwise.
    #[must_use]
    pub fn vhost(&self) -> String {
        match self.0.path().strip_prefix('/') {
            None | Some("") => "/".to_owned(),
            Some(path) => percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned(),
        }
    }
}

/// The broker says `NOT_FOUND - no queue 'x' in vhost '/'`: the object is in quotes.
fn missing(reason: &str, object: &str) -> String {
    let mut parts = reason.split('\'');
    let kind = parts.next().and_then(|text| text.rsplit("no ").next()).map(str::trim);
    match (kind, parts.next()) {
        (Some(kind @ ("queue" | "exchange")), Some(name)) => format!("the {kind} {name}"),
        _ => object.to_owned(),
    }
}

impl fmt::Display for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.0.clone();
        if url.password().is_some() {
            // Refused for URLs without a host alone, and this one has a host.
            let _ = url.set_password(Some("***"));
        }
        url.set_query(None);
        f.write_str(url.as_str())
    }
}

impl fmt::Debug for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AmqpUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let url = AmqpUrl::new("amqp://app:s3cret@broker:5672/prod?auth=x").expect("valid");
        assert_eq!(url.to_string(), "amqp://app:***@broker:5672/prod");
        assert!(!format!("{url:?}").contains("s3cret"));
        let error = AmqpUrl::new("amqp://app:s3cret@:5672/").expect_err("no host").to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }

    #[rstest]
    #[case("amqp://h", "/")]
    #[case("amqp://h/", "/")]
    #[case("amqp://h/%2f", "/")]
    #[case("amqp://h/a+b", "a+b")]
    #[case("amqp://h/prod", "prod")]
    fn the_virtual_host_is_the_path(#[case] url: &str, #[case] vhost: &str) {
        assert_eq!(AmqpUrl::new(url).expect("valid").vhost(), vhost);
    }

    #[rstest]
    #[case("amqp://app:pw@broker:5673/x", "http://app:pw@broker:15672/")]
    #[case("amqps://broker", "https://guest:guest@broker:15672/")]
    fn the_management_url_follows(#[case] url: &str, #[case] expected: &str) {
        assert_eq!(AmqpUrl::new(url).expect("valid").management().as_str(), expected);
    }

    #[rstest]
    #[case("http://h")]
    #[case("broker:5672")]
    #[case("")]
    fn what_is_no_amqp_url_is_refused(#[case] url: &str) {
        assert!(AmqpUrl::new(url).is_err());
    }

    #[test]
    fn the_missing_object_is_named() {
        let reason = "NOT_FOUND - no queue 'billing.processor.mail' in vhost '/'";
        assert_eq!(missing(reason, "?"), "the queue billing.processor.mail");
    }
}
