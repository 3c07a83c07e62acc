//! Parses the URL of a Redis: one server, the nodes of a Cluster, or the sentinels that know the master.
//!
//! The schemes are those of Lettuce and fred (`redis-sentinel://…#master`, `redis-cluster://…`), with commas between
//! the hosts. Sentinel's own credentials have the names of go-redis. No error repeats a part of a wrong URL.

use std::borrow::Cow;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult};

use crate::adapters::secret_url::{SecretUrl, UrlFault, decode, is_plain};

/// The error for a text that has none of the known forms.
const EXPECTED: &str = "expected redis://[user:password@]host[:port][/database], rediss://… with TLS, unix://…, \
                        redis-cluster://[user:password@]host[:port],host[:port]… or \
                        redis-sentinel://[user:password@]host[:port],host[:port]…[/database]#master";
/// The schemes of URLs with hosts.
const SCHEMES: [&str; 8] =
    ["redis", "rediss", "valkey", "valkeys", "redis-cluster", "rediss-cluster", "redis-sentinel", "rediss-sentinel"];
/// The schemes of URLs with the path of a Unix socket.
const UNIX: [&str; 3] = ["unix", "redis+unix", "valkey+unix"];
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// A host and a port.
pub(super) type Host = (String, u16);

/// The servers that a URL names.
pub(super) enum Address {
    Server(Box<ConnectionInfo>),
    Cluster { nodes: Vec<Host>, access: Access },
    Sentinel { sentinels: Vec<Host>, own: Access, master: String, access: Access },
}

/// How to log in to a server: TLS, credentials and database.
#[derive(Clone, Default)]
pub(super) struct Access {
    pub(super) tls: bool,
    user: Option<String>,
    password: Option<String>,
    database: i64,
}

impl Access {
    /// Returns all that the redis crate needs to connect to this host.
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

    /// Returns the access that a URL gives.
    fn by(url: &SecretUrl, tls: bool, database: i64) -> Self {
        let user = Some(url.user().to_owned()).filter(|user| !user.is_empty());
        Self { tls, user, password: url.password().map(str::to_owned), database }
    }
}

impl Address {
    /// Parses a URL, or says what is wrong with it.
    pub(super) fn parse(url: &str) -> Result<Self, &'static str> {
        let url = url.trim();
        if let Some(path) = UNIX.iter().find_map(|scheme| url.strip_prefix(scheme)?.strip_prefix("://")) {
            let socket = path.split_once('?').map_or(path, |(socket, _)| socket);
            if !socket.starts_with('/') || socket.contains('@') {
                return Err("unix:// must be followed by the path of a socket, and then perhaps ?user=…&pass=…");
            }
            return server(url);
        }
        let urls = SecretUrl::parse_hosts(url, &SCHEMES).map_err(|fault| match fault {
            UrlFault::Scheme(_) => EXPECTED,
            UrlFault::Text(text) => text,
        })?;
        let first = urls.first().ok_or(EXPECTED)?;
        match first.scheme() {
            "redis-cluster" => cluster(&urls, first, false),
            "rediss-cluster" => cluster(&urls, first, true),
            "redis-sentinel" => sentinel(&urls, first, false),
            "rediss-sentinel" => sentinel(&urls, first, true),
            _ if urls.len() > 1 => {
                Err("there are several hosts; the scheme must be redis-cluster:// or redis-sentinel://")
            }
            _ => server(url),
        }
    }

    /// Returns the URL as people may see it. It is built from its parts, so that nothing else can slip through.
    pub(super) fn masked(&self) -> String {
        match self {
            Self::Server(info) => {
                let scheme = match info.addr() {
                    ConnectionAddr::TcpTls { .. } => "rediss",
                    ConnectionAddr::Unix(_) => "unix",
                    _ => "redis",
                };
                let settings = info.redis_settings();
                let shown = info.addr().to_string();
                // Only the path of a socket is checked here; a host was checked when it was parsed.
                let place = if scheme == "unix" && !is_plain(&shown) { "/…" } else { &shown };
                format!("{scheme}://{place}/{}", settings.db())
            }
            Self::Cluster { nodes, access } => {
                let scheme = if access.tls { "rediss-cluster" } else { "redis-cluster" };
                format!("{scheme}://{}", shown(nodes))
            }
            Self::Sentinel { sentinels, master, access, .. } => {
                let scheme = if access.tls { "rediss-sentinel" } else { "redis-sentinel" };
                format!("{scheme}://{}/{}#{master}", shown(sentinels), access.database)
            }
        }
    }
}

/// Formats a host as in a URL.
pub(super) fn show((host, port): &Host) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn shown(hosts: &[Host]) -> String {
    hosts.iter().map(show).collect::<Vec<_>>().join(",")
}

fn server(url: &str) -> Result<Address, &'static str> {
    // The redis crate's error may quote the text, so it is dropped.
    url.into_connection_info().map(|info| Address::Server(Box::new(info))).map_err(|_| EXPECTED)
}

fn hosts(urls: &[SecretUrl], port: u16) -> Vec<Host> {
    urls.iter().map(|url| (url.host().to_owned(), url.port().unwrap_or(port))).collect()
}

fn cluster(urls: &[SecretUrl], url: &SecretUrl, tls: bool) -> Result<Address, &'static str> {
    if !matches!(url.path(), "" | "/" | "/0") {
        return Err("a Redis Cluster has only database 0");
    }
    if url.fragment().is_some() || url.query().is_some() {
        return Err("redis-cluster:// takes hosts, a user and a password, and nothing behind the hosts");
    }
    Ok(Address::Cluster { nodes: hosts(urls, PORT), access: Access::by(url, tls, 0) })
}

fn sentinel(urls: &[SecretUrl], url: &SecretUrl, tls: bool) -> Result<Address, &'static str> {
    let database = match url.path() {
        "" | "/" => 0,
        path => path[1..].parse::<u16>().map_err(|_| "the database is not a number")?.into(),
    };
    let (mut own, mut master) = (Access { tls, ..Access::default() }, url.fragment().map(Cow::Borrowed));
    for pair in url.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value).map_err(|_| "its percent-encoded bytes are not UTF-8")?;
        match key {
            "sentinel_username" => own.user = Some(value.into_owned()),
            "sentinel_password" => own.password = Some(value.into_owned()),
            "master_name" if master.is_none() => master = Some(value),
            "master_name" => return Err("the master is named twice, behind # and as master_name"),
            _ => return Err("the only parameters are sentinel_username, sentinel_password and master_name"),
        }
    }
    let master = master.ok_or("the master's name is missing; put the name that the sentinels have for it behind #")?;
    // Sentinel has this rule too. Without it, the rest of a password could count as a name, and be shown.
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if master.is_empty() || !master.chars().all(fits) {
        return Err("the master's name may only have letters, digits, and . - _");
    }
    let (sentinels, access) = (hosts(urls, SENTINEL_PORT), Access::by(url, tls, database));
    Ok(Address::Sentinel { sentinels, own, master: master.into_owned(), access })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("redis://127.0.0.1", "redis://127.0.0.1:6379/0")]
    #[case("redis://:secret@redis.internal:7000/3", "redis://redis.internal:7000/3")]
    #[case("rediss://hatchery:sec%2Fret@redis.internal", "rediss://redis.internal:6379/0")]
    #[case("unix:///run/redis.sock?db=1&user=me&pass=secret", "unix:///run/redis.sock/1")]
    #[case("unix:///run/redis.sock?user=me&pass=sec@ret", "unix:///run/redis.sock/0")]
    #[case("redis://secret@redis.internal", "redis://redis.internal:6379/0")]
    #[case("unix:///run/a%2Csecret?pass=secret", "unix:///…/0")]
    #[case("redis-cluster://h1", "redis-cluster://h1:6379")]
    #[case("rediss-cluster://app:sec%40ret@h1:7000,[::1]:7001,h3/0", "rediss-cluster://h1:7000,[::1]:7001,h3:6379")]
    #[case("redis-sentinel://s1,s2:26380#mymaster", "redis-sentinel://s1:26379,s2:26380/0#mymaster")]
    #[case("redis-sentinel://s1?master_name=m", "redis-sentinel://s1:26379/0#m")]
    #[case(
        "rediss-sentinel://:secret@s1/2?sentinel_username=watch&sentinel_password=sec%26ret#m",
        "rediss-sentinel://s1:26379/2#m"
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
    #[case("redis://:sec ret@redis.internal:port", "port")]
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
    #[case("redis-sentinel://user#secret:2@h1/0#m", "`@`")]
    #[case("redis-sentinel://h1/0#sec,ret", "letters")]
    #[case("redis://u:12/secret@h1", "`@`")]
    #[case("redis://:secret@h1;redis://:secret@h2", "`@`")]
    #[case("unix://u:secret@/run/redis.sock", "socket")]
    #[case("secret://h1", "expected")]
    #[case("redis-sentinel://h1?secret=secret#m", "sentinel_username")]
    #[case("redis-sentinel://h1?master_name=m#m", "twice")]
    fn an_error_says_what_is_wrong_and_quotes_nothing(#[case] url: &str, #[case] says: &str) {
        let Err(said) = Address::parse(url) else { panic!("an address") };
        assert!(said.contains(says), "{said}");
        // A static text quotes nothing.
        let _: &'static str = said;
    }
}
