//! Where the management API is, and who asks.

use std::fmt;

use url::Url;

use crate::adapters::{
    rabbitmq::{connection::AmqpUrl, url::split},
    tls::Tls,
};

/// Where the management API is: at one of these, of which any is as good. It is shown without its password.
#[derive(Clone)]
pub struct ManagementUrl {
    pub(super) nodes: Vec<Node>,
    pub(super) tls: Tls,
}

/// One place to ask.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) base: Url,
    pub(super) user: String,
    pub(super) password: String,
}

/// A text that is no URL of a management API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a management URL: {0}; it looks like http://user:password@host:15672")]
pub struct ManagementUrlError(String);

impl ManagementUrl {
    /// Reads a URL with the scheme `http` or `https`, or several with commas between them. Where one names no user, the
    /// broker's is taken. What the broker's URL trusts is trusted here too.
    ///
    /// # Errors
    /// When it is none. The message does not repeat the text, for it may hold a password.
    pub fn new(text: &str, broker: &AmqpUrl) -> Result<Self, ManagementUrlError> {
        let node = |text: &str| {
            let url = Url::parse(text).map_err(|error| ManagementUrlError(error.to_string()))?;
            if !matches!(url.scheme(), "http" | "https") {
                return Err(ManagementUrlError(format!("the scheme is `{}`", url.scheme())));
            }
            let from = match url.username() {
                "" => broker.management().into_iter().next().unwrap_or_else(|| url.clone()),
                _ => url.clone(),
            };
            Ok(Node::split(url, &from))
        };
        let nodes = split(text, &["http://", "https://"]).into_iter().map(node).collect::<Result<_, _>>()?;
        Ok(Self { nodes, tls: broker.tls().clone() })
    }

    /// The broker's own hosts and user, port 15672, or 15671 with TLS.
    #[must_use]
    pub fn of(broker: &AmqpUrl) -> Self {
        let nodes = broker.management().into_iter().map(|url| Node::split(url.clone(), &url)).collect();
        Self { nodes, tls: broker.tls().clone() }
    }
}

impl Node {
    fn split(mut base: Url, from: &Url) -> Self {
        let plain = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) = (plain(from.username()), plain(from.password().unwrap_or_default()));
        // Refused for URLs without a host alone, and http has one.
        let _ = base.set_username("");
        let _ = base.set_password(None);
        base.set_query(None);
        base.set_fragment(None);
        Self { base, user, password }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.base.as_str().trim_end_matches('/'))
    }
}

impl fmt::Display for ManagementUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{node}", if place == 0 { "" } else { "," })?;
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
    fn a_password_is_kept_and_never_shown(
        #[case] text: &str,
        #[case] shown: &str,
        #[case] user: &str,
        #[case] password: &str,
    ) {
        let url = ManagementUrl::new(text, &amqp("amqp://app:p%40ss@broker/prod")).expect("valid");
        let node = &url.nodes[0];
        assert_eq!((url.to_string().as_str(), node.user.as_str(), node.password.as_str()), (shown, user, password));
        assert!(!format!("{url:?}").contains(password));
    }

    #[test]
    fn without_a_url_it_is_where_the_broker_is() {
        let url = ManagementUrl::of(&amqp("amqp://app:pw@broker:5673/prod"));
        assert_eq!((url.to_string().as_str(), url.nodes[0].user.as_str()), ("http://broker:15672", "app"));
    }

    #[test]
    fn each_node_of_a_cluster_may_be_asked() {
        let broker = amqp("amqp://app:pw@one/v,amqp://other:pw@two/v");
        let url = ManagementUrl::of(&broker);
        assert_eq!(url.to_string(), "http://one:15672,http://two:15672");
        assert_eq!(url.nodes[1].user, "other");
        let url = ManagementUrl::new("http://one:1, https://m:pw@two:2", &broker).expect("valid");
        assert_eq!(url.to_string(), "http://one:1,https://two:2");
        assert_eq!((url.nodes[0].user.as_str(), url.nodes[1].user.as_str()), ("app", "m"));
    }

    #[rstest]
    #[case("amqp://m:s3cret@host")]
    #[case("http://m:s3cret@:1/")]
    #[case("m:s3cret@host")]
    fn what_is_no_such_url_is_refused_without_repeating_it(#[case] text: &str) {
        let error = ManagementUrl::new(text, &amqp("amqp://broker")).expect_err("invalid").to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
}
