//! The URL of a broker, or those of a cluster's nodes.

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism};
use tokio::time::Instant;

use crate::{
    adapters::{
        secret_url::{SecretUrl, UrlFault, UrlText, decode},
        tls::Tls,
    },
    ports::BrokerIdentity,
};

/// The AMQP heartbeat in seconds, unless the URL sets another one. A peer that vanishes is noticed after twice that
/// time. RabbitMQ's own default is a minute.
const HEARTBEAT: u16 = 20;

/// For this long after a connection to a node was given up, the node is tried last. After that it gets its share of the connections again.
const ASKED_LAST: Duration = Duration::from_mins(1);

/// The URL of a broker, or one URL for each node of a cluster. `Display` and `Debug` show it without passwords.
///
/// A URL that is from a file is read again before each connection: passwords are rotated that way.
#[derive(Clone)]
pub struct AmqpUrl {
    /// Clones share it.
    current: Arc<Mutex<Current>>,
    /// The broker that greeted the newest connection. Clones share it.
    identity: Arc<Mutex<Option<BrokerIdentity>>>,
    /// The place of the node that was left, and when. Such a node accepted a connection, and then executed nothing.
    left: Arc<Mutex<Option<(usize, Instant)>>>,
    tls: Tls,
}

struct Current {
    text: UrlText,
    nodes: Arc<[Arc<Node>]>,
}

/// A text is not an AMQP URL ([`ConnectError::Url`](crate::ConnectError::Url)). The message does not repeat the text,
/// because it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an AMQP URL: {0}; expected amqp://user:password@host:5672/vhost, or one such URL for each node of a cluster, \
     with commas between them"
)]
pub struct AmqpUrlError(String);

impl AmqpUrl {
    /// Parses a URL with the scheme `amqp` or `amqps`, or several with commas between them, which must all name the
    /// same virtual host.
    ///
    /// # Errors
    /// When the text is not such a URL. The message does not repeat the text, because it may hold a password.
    pub fn new(text: &str) -> Result<Self, AmqpUrlError> {
        Self::of(text.into())
    }

    /// Parses a URL like [`new`](Self::new). If it is from a file, the file is read again before each connection.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn of(text: UrlText) -> Result<Self, AmqpUrlError> {
        let nodes = nodes(text.secret())?;
        let current = Arc::new(Mutex::new(Current { text, nodes }));
        Ok(Self { current, identity: Arc::default(), left: Arc::default(), tls: Tls::default() })
    }

    /// Reads the file that the URL is from again.
    ///
    /// # Errors
    /// When the file cannot be used. The URL stays as it was. The message has no password.
    pub(super) fn read_again(&self) -> Result<(), String> {
        let mut current = self.current();
        let Some(text) = current.text.changed().map_err(|error| error.to_string())? else { return Ok(()) };
        let nodes = nodes(text.secret()).map_err(|error| error.to_string())?;
        // The keys in Redis have its name in them.
        if nodes.first().map(|node| &node.uri.vhost) != current.nodes.first().map(|node| &node.uri.vhost) {
            return Err("it names another virtual host, for which this program has to be restarted".to_owned());
        }
        *current = Current { text, nodes };
        Ok(())
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes(&self) -> Arc<[Arc<Node>]> {
        Arc::clone(&self.current().nodes)
    }

    /// Sets the trusted certificates and the client certificate for the scheme `amqps`.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls, ..self }
    }

    /// Returns the virtual host: `/` unless the path names another one.
    #[must_use]
    pub fn vhost(&self) -> String {
        self.nodes().first().map_or_else(|| "/".to_owned(), |node| node.uri.vhost.clone())
    }

    /// Returns the URLs at which the management API may be: each node's host and user, with port 15672. With TLS also
    /// port 15671, which is the usual one then.
    #[must_use]
    pub fn management(&self) -> Vec<SecretUrl> {
        self.nodes().iter().flat_map(|node| node.management()).collect()
    }

    /// Returns every node with its place, starting with a random one. So the processes spread over the nodes, and one
    /// that is refused does not try the same node first each time. A node that was left comes last.
    pub(super) fn turn(&self) -> impl Iterator<Item = (usize, Arc<Node>)> + use<> {
        let nodes = self.nodes();
        let first = usize::try_from(RandomState::new().build_hasher().finish() >> 33).unwrap_or_default();
        let left = *self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let last = left.filter(|(_, since)| since.elapsed() < ASKED_LAST).map(|(place, _)| place);
        let count = nodes.len();
        let order = (0..count).map(move |turn| (first % count + turn) % count);
        let others = order.clone().filter(move |place| Some(*place) != last);
        others
            .chain(order.filter(move |place| Some(*place) == last))
            .map(move |place| (place, Arc::clone(&nodes[place])))
    }

    /// Puts this node last in [`turn`](Self::turn) for [`ASKED_LAST`], or until another node is put last.
    pub(super) fn ask_last(&self, place: usize) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some((place, Instant::now()));
    }

    /// Returns the trusted certificates and the client certificate.
    #[must_use]
    pub fn tls(&self) -> &Tls {
        &self.tls
    }

    /// Returns the identity of the broker that greeted the newest connection; `None` before the first one.
    pub(super) fn identity(&self) -> Option<BrokerIdentity> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn greeted_by(&self, identity: BrokerIdentity) {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity);
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.nodes().len() > 1
    }
}

fn nodes(text: &str) -> Result<Arc<[Arc<Node>]>, AmqpUrlError> {
    let urls = SecretUrl::parse_list(text, &["amqp", "amqps"])?;
    let nodes = urls.into_iter().map(|url| Node::new(url).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let vhosts = nodes.iter().map(|node| &node.uri.vhost);
    if vhosts.clone().ne(vhosts.skip(1).chain(nodes.first().map(|node| &node.uri.vhost))) {
        return Err(AmqpUrlError("the URLs do not all name the same virtual host".to_owned()));
    }
    Ok(nodes.into())
}

/// One node of a broker.
pub(super) struct Node {
    url: SecretUrl,
    /// The URL as lapin needs it. It is not parsed by lapin, which reads an empty path as the virtual host with the
    /// empty name, and an IPv6 address as localhost.
    pub(super) uri: AMQPUri,
}

impl Node {
    fn new(url: SecretUrl) -> Result<Self, AmqpUrlError> {
        let scheme = if url.scheme() == "amqps" { AMQPScheme::AMQPS } else { AMQPScheme::AMQP };
        let (username, password) = match (url.user(), url.password()) {
            ("", None) => ("guest".to_owned(), "guest".to_owned()),
            (user, password) => (user.to_owned(), password.unwrap_or_default().to_owned()),
        };
        // With another separator than a comma a second URL would count as a part of the virtual host's name, and be
        // shown.
        if url.path().contains([':', ',', ';', ' ']) {
            let fault = "percent-encode `:`, `,`, `;` and blanks in a virtual host, and put commas between whole URLs";
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
            // Other clients know further parameters.
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
        for (place, node) in self.nodes().iter().enumerate() {
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
    fn the_management_url_follows_from_the_amqp_url(#[case] url: &str, #[case] expected: &str) {
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
    fn a_text_that_is_not_an_amqp_url_is_refused(#[case] url: &str) {
        assert!(AmqpUrl::new(url).is_err());
    }

    #[test]
    fn a_comma_may_be_in_a_password() {
        let url = AmqpUrl::new(" amqp://app:a,b@one:1/v , amqps://app:,@two/v ").expect("valid");
        let nodes = url.nodes();
        let seen: Vec<_> = nodes.iter().map(|node| (node.address(), &*node.uri.authority.userinfo.password)).collect();
        assert_eq!(seen, [(("one", 1), "a,b"), (("two", 5671), ",")]);
    }

    #[test]
    fn a_file_that_cannot_be_used_leaves_the_url_as_it_was() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("url");
        let write = |text: &str| std::fs::write(&path, text).expect("written");
        write("amqp://app:one@broker/prod\n");
        let url = AmqpUrl::of(UrlText::in_file(&path).expect("a file")).expect("valid");
        let password = || url.nodes()[0].uri.authority.userinfo.password.clone();
        write("amqp://app:two@broker/prod\n");
        assert_eq!((url.clone().read_again(), password()), (Ok(()), "two".to_owned()));
        for (text, why) in [
            ("", "it is empty"),
            ("s3cret", "it does not begin with an expected scheme"),
            ("amqp://app:s3cret@broker/other", "another virtual host"),
        ] {
            write(text);
            let said = url.read_again().expect_err(text);
            assert!(said.contains(why) && !said.contains("s3cret"), "{said}");
        }
        std::fs::remove_file(&path).expect("removed");
        assert!(url.read_again().is_err());
        assert_eq!(password(), "two");
    }

    #[test]
    fn an_address_may_be_an_ipv6_address() {
        let url = AmqpUrl::new("amqp://[::1]:5673").expect("valid");
        assert_eq!(url.turn().next().expect("one").1.address(), ("::1", 5673));
    }

    #[test]
    fn each_node_has_its_turn_to_be_tried_first() {
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
