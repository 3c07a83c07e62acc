//! Where a broker is.

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism};
use tokio::time::Instant;

use crate::{
    adapters::{
        secret_url::{SecretUrl, UrlFault, decode},
        tls::Tls,
    },
    ports::BrokerIdentity,
};

/// How often both sides show that they are there, in seconds, unless the URL says otherwise. A peer that has gone without a
/// word is noticed after twice that time; RabbitMQ's own default is a minute.
const HEARTBEAT: u16 = 20;

/// How long a node that was left is asked last. After that it has its share of the connections again.
const ASKED_LAST: Duration = Duration::from_mins(1);

/// Where a broker is: its URL, or one for each node of a cluster. It is shown without its passwords.
#[derive(Clone)]
pub struct AmqpUrl {
    nodes: Arc<[Node]>,
    /// The broker that greeted the newest connection. Clones share it.
    identity: Arc<Mutex<Option<BrokerIdentity>>>,
    /// The node that was left, by its place, and when: it took a connection, and then did nothing.
    left: Arc<Mutex<Option<(usize, Instant)>>>,
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
        let urls = SecretUrl::parse_list(text, &["amqp", "amqps"])?;
        let nodes = urls.into_iter().map(Node::new).collect::<Result<Vec<_>, _>>()?;
        let vhosts = nodes.iter().map(|node| &node.uri.vhost);
        if vhosts.clone().ne(vhosts.skip(1).chain(nodes.first().map(|node| &node.uri.vhost))) {
            return Err(AmqpUrlError("they do not all name the same virtual host".to_owned()));
        }
        Ok(Self { nodes: nodes.into(), identity: Arc::default(), left: Arc::default(), tls: Tls::default() })
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
    pub fn management(&self) -> Vec<SecretUrl> {
        self.nodes.iter().flat_map(Node::management).collect()
    }

    /// Every node with its place, from any one on: not all processes ask the same node first, nor does one that is sent away again and again.
    pub(super) fn turn(&self) -> impl Iterator<Item = (usize, &Node)> {
        let first = usize::try_from(RandomState::new().build_hasher().finish() >> 33).unwrap_or_default();
        let left = *self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let last = left.filter(|(_, since)| since.elapsed() < ASKED_LAST).map(|(place, _)| place);
        let count = self.nodes.len();
        let order = (0..count).map(move |turn| (first % count + turn) % count);
        let others = order.clone().filter(move |place| Some(*place) != last);
        others.chain(order.filter(move |place| Some(*place) == last)).map(|place| (place, &self.nodes[place]))
    }

    /// Asks this node last for [`ASKED_LAST`], or until another one takes its place.
    pub(super) fn ask_last(&self, place: usize) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some((place, Instant::now()));
    }

    /// Which certificates are trusted, and the client's own.
    #[must_use]
    pub fn tls(&self) -> &Tls {
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
    url: SecretUrl,
    /// The URL as lapin needs it, but for what lapin gets wrong: an empty path is the default virtual host here, and an IPv6
    /// address is one.
    pub(super) uri: AMQPUri,
}

impl Node {
    fn new(url: SecretUrl) -> Result<Self, AmqpUrlError> {
        let scheme = if url.scheme() == "amqps" { AMQPScheme::AMQPS } else { AMQPScheme::AMQP };
        let (username, password) = match (url.user(), url.password()) {
            ("", None) => ("guest".to_owned(), "guest".to_owned()),
            (user, password) => (user.to_owned(), password.unwrap_or_default().to_owned()),
        };
        // A second URL behind another separator than a comma would be taken for a part of the name, and shown.
        if url.path().contains([':', ',', ';', ' ']) {
            let fault =
                "percent-encode what a virtual host has of `:`, `,`, `;` or blanks, and put commas between whole URLs";
            return Err(AmqpUrlError(fault.to_owned()));
        }
        let vhost = match url.path().strip_prefix('/') {
            None | Some("") => "/".to_owned(),
            Some(path) => decode(path)?.into_owned(),
        };
        let port = url.port().unwrap_or(if scheme == AMQPScheme::AMQP { 5672 } else { 5671 });
        let authority =
            AMQPAuthority { userinfo: AMQPUserInfo { username, password }, host: url.host().to_owned(), port };
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

    fn management(&self) -> Vec<SecretUrl> {
        let (scheme, ports) = if self.is_tls() { ("https", &[15671, 15672][..]) } else { ("http", &[15672][..]) };
        let user = self.uri.authority.userinfo.clone();
        let at = |port: &u16| Some(self.url.at(scheme, *port)?.with_credentials(&user.username, &user.password));
        ports.iter().filter_map(at).collect()
    }
}

fn query(url: &SecretUrl) -> Result<AMQPQueryString, AmqpUrlError> {
    let mut query = AMQPQueryString { heartbeat: Some(HEARTBEAT), ..AMQPQueryString::default() };
    for (key, value) in url.bare().query_pairs() {
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

impl From<UrlFault> for AmqpUrlError {
    fn from(fault: UrlFault) -> Self {
        Self(fault.to_string())
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
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
    use std::collections::BTreeSet;

    use rstest::rstest;

    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let url = AmqpUrl::new("amqp://app:s3cret@broker:5672/prod?auth=x,amqp://app:s3cret@b/prod").expect("valid");
        assert_eq!(url.to_string(), "amqp://broker:5672/prod,amqp://b/prod");
        assert!(!format!("{url:?}").contains("s3cret"));
        for text in [
            "amqp://app:s3cret@:5672/",
            "amqp://app:s3cret@a/x,amqp://app:s3cret@b/y",
            "amqp://a:s3cret%ff@b",
            "amqp://app:s3cret@a/x,app:s3cretb/y",
            "amqp://app:s3cret@a/x s3cret",
        ] {
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
        let shown = |url: &SecretUrl| {
            let (rest, user, password) = (url.to_string(), url.user(), url.password().unwrap_or_default());
            rest.replacen("://", &format!("://{user}:{password}@"), 1)
        };
        assert_eq!(urls.iter().map(shown).collect::<Vec<_>>().join(" "), expected);
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
    fn connections_begin_at_each_node() {
        let url = AmqpUrl::new("amqp://a,amqp://b,amqp://c").expect("valid");
        let first = || url.turn().next().expect("one").1.address().0.to_owned();
        assert_eq!(url.turn().count(), 3);
        let begun: BTreeSet<String> = (0..100).map(|_| first()).collect();
        assert_eq!(begun.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_was_left_is_asked_last_for_a_minute() {
        let url = AmqpUrl::new("amqp://a,amqp://b,amqp://c").expect("valid");
        let left = url.clone().turn().next().expect("one").0;
        url.ask_last(left);
        for _ in 0..6 {
            let order: Vec<_> = url.turn().map(|(place, _)| place).collect();
            assert_eq!((order.len(), order[2]), (3, left), "{order:?}");
        }
        tokio::time::advance(ASKED_LAST).await;
        let first = || url.turn().next().expect("one").0;
        assert!((0..100).any(|_| first() == left), "it has its turn again");
    }
}
