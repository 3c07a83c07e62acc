//! Where a Redis is: one server, the nodes of a Cluster, or the sentinels that know where the master is; all in one URL.
//!
//! The schemes are those that Lettuce and fred have (`redis-sentinel://…#master`, `redis-cluster://…`), with commas
//! between the hosts; Sentinel's own credentials are called as in go-redis. Nothing of a wrong URL is ever repeated.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult};

/// What is expected where nothing more can be said.
const EXPECTED: &str = "expected redis://[user:password@]host[:port][/database], rediss://… with TLS, unix://…, \
                        redis-cluster://[user:password@]host[:port],host[:port]… or \
                        redis-sentinel://[user:password@]host[:port],host[:port]…[/database]#master";
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// A host and a port.
pub(super) type Host = (String, u16);

/// What a URL leads to.
pub(super) enum Address {
    Server(Box<ConnectionInfo>),
    Cluster { nodes: Vec<Host>, access: Access },
    Sentinel { sentinels: Vec<Host>, own: Access, master: String, access: Access },
}

/// How a server lets us in.
#[derive(Clone, Default)]
pub(super) struct Access {
    pub(super) tls: bool,
    user: Option<String>,
    password: Option<String>,
    database: i64,
}

impl Access {
    /// All that it takes to connect to this host.
    pub(super) fn to(&self, (host, port): &Host) -> RedisResult<ConnectionInfo> {
        let (host, port) = (host.clone(), *port);
        let address = if self.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let mut settings = RedisConnectionInfo::default().set_db(self.database);
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        Ok(address.into_connection_info()?.set_redis_settings(settings))
    }

    fn masked(&self) -> String {
        secret(self.user.as_deref(), self.password.is_some())
    }
}

fn secret(user: Option<&str>, has_password: bool) -> String {
    match (user, has_password) {
        (None, false) => String::new(),
        (user, false) => format!("{}@", user.unwrap_or_default()),
        (user, true) => format!("{}:***@", user.unwrap_or_default()),
    }
}

impl Address {
    /// Reads a URL, or says what is wrong with it.
    pub(super) fn parse(url: &str) -> Result<Self, &'static str> {
        match url.split_once("://") {
            Some(("redis-cluster", rest)) => cluster(rest, false),
            Some(("rediss-cluster", rest)) => cluster(rest, true),
            Some(("redis-sentinel", rest)) => sentinel(rest, false),
            Some(("rediss-sentinel", rest)) => sentinel(rest, true),
            Some((_, rest)) => {
                let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
                if authority.rsplit('@').next().is_some_and(|hosts| hosts.contains(',')) {
                    return Err("there are several hosts; redis-cluster:// or redis-sentinel:// says of which kind");
                }
                // What the crate says about a text that it cannot read may quote it.
                url.into_connection_info().map(|info| Self::Server(Box::new(info))).map_err(|_| EXPECTED)
            }
            None => Err(EXPECTED),
        }
    }

    /// As people may see it. It is put together from its parts, so what is not named here cannot slip through.
    pub(super) fn masked(&self) -> String {
        match self {
            Self::Server(info) => {
                let scheme = match info.addr() {
                    ConnectionAddr::TcpTls { .. } => "rediss",
                    ConnectionAddr::Unix(_) => "unix",
                    _ => "redis",
                };
                let settings = info.redis_settings();
                let secret = secret(settings.username(), settings.password().is_some());
                format!("{scheme}://{secret}{}/{}", info.addr(), settings.db())
            }
            Self::Cluster { nodes, access } => {
                let scheme = if access.tls { "rediss-cluster" } else { "redis-cluster" };
                format!("{scheme}://{}{}", access.masked(), shown(nodes))
            }
            Self::Sentinel { sentinels, master, access, .. } => {
                let scheme = if access.tls { "rediss-sentinel" } else { "redis-sentinel" };
                format!("{scheme}://{}{}/{}#{master}", access.masked(), shown(sentinels), access.database)
            }
        }
    }
}

/// One host as in a URL.
pub(super) fn show((host, port): &Host) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn shown(hosts: &[Host]) -> String {
    hosts.iter().map(show).collect::<Vec<_>>().join(",")
}

fn cluster(rest: &str, tls: bool) -> Result<Address, &'static str> {
    let parts = Parts::of(rest, PORT)?;
    if !matches!(parts.path, "" | "0") {
        return Err("a Redis Cluster has the database 0 alone");
    }
    if parts.fragment.is_some() || !parts.query.is_empty() {
        return Err("redis-cluster:// takes hosts, a user and a password, and nothing behind them");
    }
    let access = Access { tls, user: parts.user, password: parts.password, database: 0 };
    Ok(Address::Cluster { nodes: parts.hosts, access })
}

fn sentinel(rest: &str, tls: bool) -> Result<Address, &'static str> {
    let parts = Parts::of(rest, SENTINEL_PORT)?;
    let database = match parts.path {
        "" => 0,
        path => path.parse::<u16>().map_err(|_| "the database is not a number")?.into(),
    };
    let (mut own, mut master) = (Access { tls, ..Access::default() }, parts.fragment.map(Cow::Borrowed));
    for (key, value) in parts.query {
        match key {
            "sentinel_username" => own.user = Some(value.into_owned()),
            "sentinel_password" => own.password = Some(value.into_owned()),
            "master_name" if master.is_none() => master = Some(value),
            "master_name" => return Err("the master is named twice, behind # and as master_name"),
            _ => return Err("behind ? there may be sentinel_username, sentinel_password and master_name"),
        }
    }
    let master = master.ok_or("the name that the sentinels have for the master is missing; it stands behind #")?;
    // Sentinel's own rule. It also keeps the rest of a password from being taken for a name, and shown.
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if master.is_empty() || !master.chars().all(fits) {
        return Err("the master's name has letters, digits, and . - _");
    }
    let access = Access { tls, user: parts.user, password: parts.password, database };
    Ok(Address::Sentinel { sentinels: parts.hosts, own, master: master.into_owned(), access })
}

/// A URL with several hosts, without its scheme.
struct Parts<'a> {
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<Host>,
    path: &'a str,
    query: Vec<(&'a str, Cow<'a, str>)>,
    fragment: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(rest: &'a str, port: u16) -> Result<Self, &'static str> {
        let (rest, fragment) = rest.split_once('#').map_or((rest, None), |(rest, fragment)| (rest, Some(fragment)));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (access, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = access.split_once(':').map_or((access, None), |(user, word)| (user, Some(word)));
        let decoded = |text| decode(text).map(Cow::into_owned);
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((key, decode(value)?))
        });
        Ok(Self {
            user: Some(decoded(user)?).filter(|user| !user.is_empty()),
            password: password.map(decoded).transpose()?,
            hosts: hosts.split(',').map(|host| read_host(host, port)).collect::<Result<_, _>>()?,
            path,
            query: pairs.collect::<Result<_, &'static str>>()?,
            fragment,
        })
    }
}

fn decode(text: &str) -> Result<Cow<'_, str>, &'static str> {
    percent_decode_str(text).decode_utf8().map_err(|_| "what is percent-encoded in it is not UTF-8")
}

fn read_host(text: &str, default: u16) -> Result<Host, &'static str> {
    // An address of version 6 stands in brackets.
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, ""))) => (host, None),
        Some(Some((host, rest))) => (host, Some(rest.strip_prefix(':').ok_or("a host is not closed by ]")?)),
        Some(None) => return Err("a host is not closed by ]"),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || !host.chars().all(fits) {
        return Err("a host is missing, or is none; what has a meaning in URLs is percent-encoded in a password");
    }
    let port = match port {
        None => default,
        Some(port) => port.parse().map_err(|_| "a port is not a number between 0 and 65535")?,
    };
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("redis://127.0.0.1", "redis://127.0.0.1:6379/0")]
    #[case("redis://:secret@redis.internal:7000/3", "redis://:***@redis.internal:7000/3")]
    #[case("rediss://hatchery:sec%2Fret@redis.internal", "rediss://hatchery:***@redis.internal:6379/0")]
    #[case("unix:///run/redis.sock?db=1&user=me&pass=secret", "unix://me:***@/run/redis.sock/1")]
    #[case("redis-cluster://h1", "redis-cluster://h1:6379")]
    #[case(
        "rediss-cluster://app:sec%40ret@h1:7000,[::1]:7001,h3/0",
        "rediss-cluster://app:***@h1:7000,[::1]:7001,h3:6379"
    )]
    #[case("redis-sentinel://s1,s2:26380#mymaster", "redis-sentinel://s1:26379,s2:26380/0#mymaster")]
    #[case("redis-sentinel://s1?master_name=m", "redis-sentinel://s1:26379/0#m")]
    #[case(
        "rediss-sentinel://:secret@s1/2?sentinel_username=watch&sentinel_password=sec%26ret#m",
        "rediss-sentinel://:***@s1:26379/2#m"
    )]
    fn an_address_is_shown_without_its_passwords(#[case] url: &str, #[case] shown: &str) {
        let address = Address::parse(url).expect("an address");
        assert_eq!(address.masked(), shown);
    }

    #[test]
    fn the_servers_and_the_sentinels_have_their_own_passwords() {
        let url = "redis-sentinel://app:a%2Fb+c@s1/2?sentinel_username=watch&sentinel_password=d%26e+f#m";
        let Ok(Address::Sentinel { own, access, .. }) = Address::parse(url) else { panic!("no address") };
        assert_eq!(
            (access.user.as_deref(), access.password.as_deref(), access.database),
            (Some("app"), Some("a/b+c"), 2)
        );
        assert_eq!((own.user.as_deref(), own.password.as_deref(), own.database), (Some("watch"), Some("d&e+f"), 0));
    }

    #[rstest]
    #[case("", "expected")]
    #[case("127.0.0.1:6379", "expected")]
    #[case("http://:secret@redis.internal", "expected")]
    #[case("redis://:secret@redis.internal/secret", "expected")]
    #[case("redis://:sec ret@redis.internal:port", "expected")]
    #[case("redis://:secret@h1,h2", "several hosts")]
    #[case("redis-cluster://", "host")]
    #[case("redis-cluster://:secret@h1,,h2", "host")]
    #[case("redis-cluster://:sec/ret@h1", "host")]
    #[case("redis-cluster://user:sec/ret@h1", "port")]
    #[case("redis-cluster://h1:99999", "port")]
    #[case("redis-cluster://:secret@h1/1", "database 0")]
    #[case("redis-cluster://h1?secret=secret", "nothing behind")]
    #[case("redis-cluster://:%ff@h1", "UTF-8")]
    #[case("redis-cluster://[::1", "]")]
    #[case("redis-sentinel://:secret@h1", "behind #")]
    #[case("redis-sentinel://h1/secret#m", "not a number")]
    #[case("redis-sentinel://user#secret:2@h1/0#m", "letters")]
    #[case("redis-sentinel://h1?secret=secret#m", "sentinel_username")]
    #[case("redis-sentinel://h1?master_name=m#m", "twice")]
    fn what_is_wrong_is_said_and_not_quoted(#[case] url: &str, #[case] says: &str) {
        let Err(said) = Address::parse(url) else { panic!("an address") };
        assert!(said.contains(says), "{said}");
        // What is said is known beforehand.
        let _: &'static str = said;
    }
}
