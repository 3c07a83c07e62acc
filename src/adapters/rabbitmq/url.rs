//! Where a broker is.

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism};
use url::Url;

use crate::{adapters::tls::Tls, ports::BrokerIdentity};

/// How often both sides show that they are there, in seconds, unless the URL says otherwise. A peer that has gone without a
/// word is noticed after twice that time; RabbitMQ's own default is a minute.
const HEARTBEAT: u16 = 20;

/// Where a broker is: its URL, or one for each node of a cluster. It is shown without its passwords.
#[derive(Clone)]
pub struct AmqpUrl {
    nodes: Arc<[Node]>,
    /// Which node is asked first. Clones share it, so that no two connections begin at the same one.
    next: Arc<AtomicUsize>,
    /// The broker that greeted the newest connection. Clones share it.
    identity: Arc<Mutex<Option<BrokerIdentity>>>,
    /// The node that is asked last, by its place: it took a connection, and then did nothing. None of them at first.
    last: Arc<AtomicUsize>,
    tls: Tls,
}

/// A text that is no AMQP URL ([`ConnectError::Url`](crate::ConnectError::Url)). The message does not repeat it, for it
/// may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an AMQP URL: {0}; it looks like amqp://user:password@host:5672/vhost, and several of them, with commas between \
     them, are the nodes of one cluster"
)]
pub struct AmqpUrlError(String);

impl AmqpUrl {
    /// Reads a URL with the scheme `amqp` or `amqps`, or several with commas between them. All name the same virtual host.
    ///
    /// # Errors
    /// When it is none. The message does not repeat the text, for it may hold a password.
    pub fn new(text: &str) -> Result<Self, AmqpUrlError> {
        let nodes = split(text, &["amqp://", "amqps://"]).into_iter().map(Node::new).collect::<Result<Vec<_>, _>>()?;
        let vhosts = nodes.iter().map(|node| &node.uri.vhost);
        if vhosts.clone().ne(vhosts.skip(1).chain(nodes.first().map(|node| &node.uri.vhost))) {
            return Err(AmqpUrlError("they do not all name the same virtual host".to_owned()));
        }
        // A different one in each process, so that not all of them ask the same node.
        let first = usize::try_from(RandomState::new().build_hasher().finish() >> 33).unwrap_or_default();
        let (next, last) = (Arc::new(AtomicUsize::new(first)), Arc::new(AtomicUsize::new(usize::MAX)));
        Ok(Self { nodes: nodes.into(), next, identity: Arc::default(), last, tls: Tls::default() })
    }

    /// Which certificates are trusted, and which one is shown, where the scheme is `amqps`.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls, ..self }
    }

    /// The virtual host, `/` unless the path says otherwise.
    #[must_use]
    pub fn vhost(&self) -> String {
        self.nodes.first().map_or_else(|| "/".to_owned(), |node| node.uri.vhost.clone())
    }

    /// Where the management API may be: each node's host and user, port 15672; with TLS also 15671, its usual port then.
    #[must_use]
    pub fn management(&self) -> Vec<Url> {
        self.nodes.iter().flat_map(Node::management).collect()
    }

    /// Every node with its place, from another one on each time.
    pub(super) fn turn(&self) -> impl Iterator<Item = (usize, &Node)> {
        let (first, last) = (self.next.fetch_add(1, Ordering::Relaxed), self.last.load(Ordering::Relaxed));
        let count = self.nodes.len();
        let order = (0..count).map(move |turn| (first % count + turn) % count);
        let others = order.clone().filter(move |place| *place != last);
        others.chain(order.filter(move |place| *place == last)).map(|place| (place, &self.nodes[place]))
    }

    /// Asks this node last from now on, until another one takes its place.
    pub(super) fn ask_last(&self, place: usize) {
        self.last.store(place, Ordering::Relaxed);
    }

    pub(in crate::adapters) fn tls(&self) -> &Tls {
        &self.tls
    }

    /// The broker that greeted the newest connection; none before the first one.
    pub(super) fn identity(&self) -> Option<BrokerIdentity> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn greeted_by(&self, identity: BrokerIdentity) {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity);
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.nodes.len() > 1
    }
}

/// One node of a broker.
pub(super) struct Node {
    url: Url,
    /// What lapin makes of it, but for what it gets wrong: an empty path is the default virtual host here, and an IPv6
    /// address is one.
    pub(super) uri: AMQPUri,
}

impl Node {
    fn new(text: &str) -> Result<Self, AmqpUrlError> {
        let url = Url::parse(text).map_err(|error| AmqpUrlError(error.to_string()))?;
        let scheme = match url.scheme() {
            "amqp" => AMQPScheme::AMQP,
            "amqps" => AMQPScheme::AMQPS,
            other => return Err(AmqpUrlError(format!("the scheme is `{other}`"))),
        };
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(AmqpUrlError("it has no host".to_owned()));
        }
        if host.contains(',') {
            return Err(AmqpUrlError("each node of a cluster needs its whole URL".to_owned()));
        }
        let (username, password) = match (url.username(), url.password()) {
            ("", None) => ("guest".to_owned(), "guest".to_owned()),
            (username, password) => (plain(username)?, plain(password.unwrap_or_default())?),
        };
        let vhost = match url.path().strip_prefix('/') {
            None | Some("") => "/".to_owned(),
            Some(path) => plain(path)?,
        };
        let port = url.port().unwrap_or(if scheme == AMQPScheme::AMQP { 5672 } else { 5671 });
        let authority = AMQPAuthority { userinfo: AMQPUserInfo { username, password }, host, port };
        let query = query(&url)?;
        Ok(Self { uri: AMQPUri { scheme, authority, vhost, query }, url })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.uri.scheme == AMQPScheme::AMQPS
    }

    /// The host and the port.
    pub(super) fn address(&self) -> (&str, u16) {
        (&self.uri.authority.host, self.uri.authority.port)
    }

    fn management(&self) -> Vec<Url> {
        let (from, to, ports) =
            if self.is_tls() { ("amqps", "https", &[15671, 15672][..]) } else { ("amqp", "http", &[15672][..]) };
        let mut url = self.url.clone();
        url.set_path("/");
        url.set_query(None);
        // `Url` lets a scheme change only between schemes that it knows, so the text is rewritten.
        let mut url = Url::parse(&url.as_str().replacen(from, to, 1)).unwrap_or(url);
        if url.username().is_empty() {
            // These are refused for URLs without a host alone, and this one has a host.
            let _ = url.set_username("guest");
            let _ = url.set_password(Some("guest"));
        }
        let with_port = |port: &u16| {
            let mut url = url.clone();
            let _ = url.set_port(Some(*port));
            url
        };
        ports.iter().map(with_port).collect()
    }
}

/// Several URLs with commas between them. A comma may be part of a password too, but no scheme can follow it there.
pub(in crate::adapters) fn split<'a>(text: &'a str, schemes: &[&str]) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut rest = text.trim();
    let next = |text: &str| {
        let mut commas = text.match_indices(',').map(|(at, _)| at);
        commas.find(|at| schemes.iter().any(|scheme| text[at + 1..].trim_start().starts_with(scheme)))
    };
    while let Some(comma) = next(rest) {
        parts.push(rest[..comma].trim());
        rest = rest[comma + 1..].trim();
    }
    parts.push(rest);
    parts
}

fn query(url: &Url) -> Result<AMQPQueryString, AmqpUrlError> {
    let mut query = AMQPQueryString { heartbeat: Some(HEARTBEAT), ..AMQPQueryString::default() };
    for (key, value) in url.query_pairs() {
        let wrong = |_| AmqpUrlError(format!("the value of `{key}` is not understood"));
        match &*key {
            "heartbeat" => query.heartbeat = Some(value.parse().map_err(wrong)?),
            "frame_max" => query.frame_max = Some(value.parse().map_err(wrong)?),
            "channel_max" => query.channel_max = Some(value.parse().map_err(wrong)?),
            "auth_mechanism" => {
                let mechanism = value.parse::<SASLMechanism>();
                query.auth_mechanism = Some(mechanism.map_err(|_| AmqpUrlError(format!("no such `{key}`")))?);
            }
            // Others' clients know more of them.
            _ => {}
        }
    }
    Ok(query)
}

fn plain(text: &str) -> Result<String, AmqpUrlError> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| AmqpUrlError("what it encodes with % is no UTF-8".to_owned()))
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.url.clone();
        if url.password().is_some() {
            // Refused for URLs without a host alone, and this one has a host.
            let _ = url.set_password(Some("***"));
        }
        url.set_query(None);
        url.set_fragment(None);
        f.write_str(url.as_str())
    }
}

impl fmt::Display for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{node}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
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
        let url = AmqpUrl::new("amqp://app:s3cret@broker:5672/prod?auth=x,amqp://app:s3cret@b/prod").expect("valid");
        assert_eq!(url.to_string(), "amqp://app:***@broker:5672/prod,amqp://app:***@b/prod");
        assert!(!format!("{url:?}").contains("s3cret"));
        for text in ["amqp://app:s3cret@:5672/", "amqp://app:s3cret@a/x,amqp://app:s3cret@b/y", "amqp://a:s3cret%ff@b"]
        {
            let error = AmqpUrl::new(text).expect_err("invalid").to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[rstest]
    #[case("amqp://h", "/")]
    #[case("amqp://h/", "/")]
    #[case("amqp://h/%2f", "/")]
    #[case("amqp://h/a+b", "a+b")]
    #[case("amqp://h/prod", "prod")]
    #[case("amqp://h/prod,amqps://i/prod", "prod")]
    fn the_virtual_host_is_the_path(#[case] url: &str, #[case] vhost: &str) {
        let url = AmqpUrl::new(url).expect("valid");
        assert_eq!(url.vhost(), vhost);
        assert!(url.turn().all(|(_, node)| node.uri.vhost == vhost));
    }

    #[rstest]
    #[case("amqp://app:pw@broker:5673/x", "http://app:pw@broker:15672/")]
    #[case("amqps://broker?heartbeat=5", "https://guest:guest@broker:15671/ https://guest:guest@broker:15672/")]
    #[case("amqp://a,amqp://b", "http://guest:guest@a:15672/ http://guest:guest@b:15672/")]
    fn the_management_url_follows(#[case] url: &str, #[case] expected: &str) {
        let urls = AmqpUrl::new(url).expect("valid").management();
        assert_eq!(urls.iter().map(Url::as_str).collect::<Vec<_>>().join(" "), expected);
    }

    #[rstest]
    #[case("http://h")]
    #[case("broker:5672")]
    #[case("")]
    #[case("amqp://a,")]
    #[case("amqp://a,b:5672/v")]
    #[case("amqp://a/x,amqp://b/y")]
    #[case("amqp://a/x,amqp://b/x,amqp://c/y")]
    #[case("amqp://a?heartbeat=often")]
    #[case("amqp://a?auth_mechanism=magic")]
    fn what_is_no_amqp_url_is_refused(#[case] url: &str) {
        assert!(AmqpUrl::new(url).is_err());
    }

    #[test]
    fn a_comma_may_be_in_a_password() {
        let url = AmqpUrl::new(" amqp://app:a,b@one:1/v , amqps://app:,@two/v ").expect("valid");
        let mut seen: Vec<_> =
            url.turn().map(|(_, node)| (node.address(), &*node.uri.authority.userinfo.password)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [(("one", 1), "a,b"), (("two", 5671), ",")]);
    }

    #[test]
    fn an_address_may_be_of_ipv6() {
        let url = AmqpUrl::new("amqp://[::1]:5673").expect("valid");
        assert_eq!(url.turn().next().expect("one").1.address(), ("::1", 5673));
    }

    #[test]
    fn each_connection_begins_at_another_node() {
        let url = AmqpUrl::new("amqp://a,amqp://b,amqp://c").expect("valid");
        let mut first: Vec<_> =
            (0..3).map(|_| url.clone().turn().next().expect("one").1.address().0.to_owned()).collect();
        assert_eq!(url.turn().count(), 3);
        first.sort_unstable();
        assert_eq!(first, ["a", "b", "c"]);
    }

    #[test]
    fn a_node_that_was_left_is_asked_last() {
        let url = AmqpUrl::new("amqp://a,amqp://b,amqp://c").expect("valid");
        let left = url.clone().turn().next().expect("one").0;
        url.ask_last(left);
        for _ in 0..6 {
            let order: Vec<_> = url.turn().map(|(place, _)| place).collect();
            assert_eq!((order.len(), order[2]), (3, left), "{order:?}");
        }
    }
}
