//! The URL of the management API, with its credentials.

use std::fmt;

use hatchery::internals::{
    rabbitmq::connection::AmqpUrl,
    secret_url::{SecretUrl, UrlFault},
    tls::Tls,
};

/// The URLs of the management API, one for each node; any node can answer. Shown without passwords.
#[derive(Clone)]
pub struct ManagementUrl {
    pub(super) nodes: Vec<SecretUrl>,
    pub(super) tls: Tls,
}

/// The error for a text that is not a URL of a management API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a management URL: {0}; it looks like http://user:password@host:15672")]
pub struct ManagementUrlError(String);

impl ManagementUrl {
    /// Reads a URL with the scheme `http` or `https`, or several with commas between them. A URL without a user takes
    /// the user and password of the broker's URL. The certificate authorities of the broker's URL are trusted here too.
    /// `/api` at the end is removed, because each call adds it.
    ///
    /// # Errors
    /// When the text is not such a URL. The message does not repeat the text, which may hold a password.
    pub fn new(text: &str, broker: &AmqpUrl) -> Result<Self, ManagementUrlError> {
        let named = |url: SecretUrl| match broker.management().first() {
            Some(other) if url.user().is_empty() => {
                url.with_credentials(other.user(), other.password().unwrap_or_default())
            }
            _ => url,
        };
        let urls = SecretUrl::parse_list(text, &["http", "https"])?;
        let nodes = urls.into_iter().map(|url| named(url.without_query().without_end("/api"))).collect();
        Ok(Self { nodes, tls: broker.tls().clone() })
    }

    /// Returns the URLs for the broker's own hosts and user: port 15672; with TLS 15671, then 15672.
    #[must_use]
    pub fn of(broker: &AmqpUrl) -> Self {
        Self { nodes: broker.management(), tls: broker.tls().clone() }
    }
}

impl From<UrlFault> for ManagementUrlError {
    fn from(fault: UrlFault) -> Self {
        Self(fault.to_string())
    }
}

/// Formats the URL of one node without credentials.
pub(super) fn shown(node: &SecretUrl) -> String {
    node.to_string().trim_end_matches('/').to_owned()
}

impl fmt::Display for ManagementUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{}", if place == 0 { "" } else { "," }, shown(node))?;
        }
        Ok(())
    }
}

impl fmt::Debug for ManagementUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManagementUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn amqp(url: &str) -> AmqpUrl {
        AmqpUrl::new(url).expect("valid")
    }

    #[rstest]
    #[case("http://m:s3cret@host:15672/", "http://host:15672", "m", "s3cret")]
    #[case("https://host/rabbit/?x=1#y", "https://host/rabbit", "app", "p@ss")]
    #[case("http://host:15672/api", "http://host:15672", "app", "p@ss")]
    #[case("http://host/rabbit/api/", "http://host/rabbit", "app", "p@ss")]
    #[case("http://host/api/api", "http://host/api", "app", "p@ss")]
    #[case("http://host/papi", "http://host/papi", "app", "p@ss")]
    fn a_password_is_kept_and_never_shown(
        #[case] text: &str,
        #[case] shown: &str,
        #[case] user: &str,
        #[case] password: &str,
    ) {
        let url = ManagementUrl::new(text, &amqp("amqp://app:p%40ss@broker/prod")).expect("valid");
        let node = &url.nodes[0];
        assert_eq!((url.to_string().as_str(), node.user(), node.password()), (shown, user, Some(password)));
        assert!(!format!("{url:?}").contains(password));
    }

    #[test]
    fn the_default_url_is_at_the_brokers_hosts() {
        let url = ManagementUrl::of(&amqp("amqp://app:pw@broker:5673/prod"));
        assert_eq!((url.to_string().as_str(), url.nodes[0].user()), ("http://broker:15672", "app"));
    }

    #[test]
    fn each_node_of_a_cluster_has_its_url() {
        let broker = amqp("amqp://app:pw@one/v,amqp://other:pw@two/v");
        let url = ManagementUrl::of(&broker);
        assert_eq!(url.to_string(), "http://one:15672,http://two:15672");
        assert_eq!(url.nodes[1].user(), "other");
        let url = ManagementUrl::new("http://one:1, https://m:pw@two:2", &broker).expect("valid");
        assert_eq!(url.to_string(), "http://one:1,https://two:2");
        assert_eq!((url.nodes[0].user(), url.nodes[1].user()), ("app", "m"));
    }

    #[rstest]
    #[case("amqp://m:s3cret@host")]
    #[case("http://m:s3cret@:1/")]
    #[case("m:s3cret@host")]
    #[case("s3cret://host")]
    #[case("http://m:s3cret@a;http://m:s3cret@b")]
    #[case("http://m:s3cret@a,m:s3cret@b:s3cret")]
    fn an_invalid_url_is_refused_without_repeating_it(#[case] text: &str) {
        let error = ManagementUrl::new(text, &amqp("amqp://broker")).expect_err("invalid").to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
}
