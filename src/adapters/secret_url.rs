//! URLs that may have a password. Every URL that a user gives to this program is parsed here.
//!
//! A typing mistake in such a text (a `/` in a password, a `;` between two URLs) puts the password where a host, a port
//! or a path is expected. So the credentials are taken out before anything else parses the text, a text that may have
//! credentials in another place is refused, and no error repeats a refused text.

use std::{borrow::Cow, fmt, io, path::PathBuf};

use percent_encoding::percent_decode_str;
use url::{Host, ParseError, Url};

use super::bounded_file::{self, SMALL};

/// The text of a URL as the user gave it, and the file that it is from. The text may hold a password in any place, so it has
/// neither `Debug` nor `Display`.
#[derive(Clone)]
pub struct UrlText {
    text: String,
    file: Option<PathBuf>,
}

impl UrlText {
    /// Reads the URL in a file. Editors and `echo` end a file with a newline.
    ///
    /// # Errors
    /// When the file cannot be read, is larger than 1 MiB, or is not UTF-8.
    pub fn in_file(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        Ok(Self { text: bounded_file::read_text(&path, SMALL)?.trim().to_owned(), file: Some(path) })
    }

    /// Returns the text with its password, to be parsed.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.text
    }

    /// Reads the file again. `None` if the text is the same, or is from no file. A pipe is read only once.
    ///
    /// # Errors
    /// When the file cannot be read, or is empty.
    pub fn changed(&self) -> io::Result<Option<Self>> {
        let Some(path) = self.file.as_ref().filter(|path| bounded_file::may_change(path)) else { return Ok(None) };
        let now = Self::in_file(path)?;
        if now.text.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty"));
        }
        Ok((now.text != self.text).then_some(now))
    }
}

impl From<String> for UrlText {
    fn from(text: String) -> Self {
        Self { text, file: None }
    }
}

impl From<&str> for UrlText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// A URL whose credentials cannot be printed. `Display` and `Debug` show its scheme, host, port and path.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl {
    /// The URL without credentials and fragment.
    bare: Url,
    user: String,
    password: Option<String>,
    fragment: Option<String>,
}

/// Why a text is not a valid URL. It repeats nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlFault {
    /// The scheme is not an expected one. Its name is here if it is a well-known scheme.
    Scheme(Option<&'static str>),
    /// Anything else.
    Text(&'static str),
}

impl fmt::Display for UrlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme(Some(other)) => write!(f, "the scheme is `{other}`"),
            Self::Scheme(None) => f.write_str("it does not begin with an expected scheme"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Well-known schemes. A message may name them, because they are no part of a password.
const KNOWN: [&str; 8] = ["amqp", "amqps", "http", "https", "redis", "rediss", "ftp", "ws"];

const AT: UrlFault = UrlFault::Text(
    "there is an `@` after the host and the port; percent-encode `/`, `?`, `#` and `@` (`%40`) in a user name, a \
     password or a path, and put commas between several URLs",
);
const BREAK: UrlFault = UrlFault::Text(
    "there is a line break, a tab or a blank in it; put commas between several URLs, and percent-encode a \
     blank (`%20`)",
);
const HOST: UrlFault =
    UrlFault::Text("a host is missing, or has characters other than letters, digits, `.`, `-` and `_`");
const NODES: UrlFault = UrlFault::Text("each node of a cluster needs its whole URL");
const UTF_8: UrlFault = UrlFault::Text("its percent-encoded bytes are not UTF-8");

impl SecretUrl {
    /// Parses one URL with one of these schemes.
    pub fn parse(text: &str, schemes: &[&'static str]) -> Result<Self, UrlFault> {
        let pieces = Pieces::of(text, schemes)?;
        if pieces.hosts.contains(',') { Err(NODES) } else { pieces.with_host(pieces.hosts) }
    }

    /// Parses several whole URLs with commas between them.
    pub fn parse_list(text: &str, schemes: &[&'static str]) -> Result<Vec<Self>, UrlFault> {
        split(text, schemes).into_iter().map(|text| Self::parse(text, schemes)).collect()
    }

    /// Parses a URL that has several hosts with commas between them. Returns one URL for each host.
    pub fn parse_hosts(text: &str, schemes: &[&'static str]) -> Result<Vec<Self>, UrlFault> {
        let pieces = Pieces::of(text, schemes)?;
        pieces.hosts.split(',').map(|host| pieces.with_host(host)).collect()
    }

    #[must_use]
    pub fn scheme(&self) -> &str {
        self.bare.scheme()
    }

    /// Returns the host; an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.bare.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.bare.port()
    }

    /// Returns the path as it stands in the text, percent-encoded.
    #[must_use]
    pub fn path(&self) -> &str {
        self.bare.path()
    }

    /// Returns the query as it stands in the text. It may be secret.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.bare.query()
    }

    /// Returns the fragment as it stands in the text. It may be secret.
    #[must_use]
    pub fn fragment(&self) -> Option<&str> {
        self.fragment.as_deref()
    }

    /// Returns the user name; empty if none is given.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Whether the URL has a user name or a password.
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        !self.user.is_empty() || self.password.is_some()
    }

    /// Returns the scheme, the host and the port, if it is not that of the scheme.
    #[must_use]
    pub fn origin(&self) -> String {
        self.bare.origin().ascii_serialization()
    }

    /// Returns the URL without credentials and fragment, as it is requested. Its query may be secret.
    #[must_use]
    pub fn bare(&self) -> &Url {
        &self.bare
    }

    /// Returns the URL without its query.
    #[must_use]
    pub fn without_query(mut self) -> Self {
        self.bare.set_query(None);
        self
    }

    /// Returns the URL without `end` at the end of its path, if its path ends so.
    #[must_use]
    pub fn without_end(mut self, end: &str) -> Self {
        let path = self.path().trim_end_matches('/').strip_suffix(end).map(str::to_owned);
        if let Some(path) = path {
            self.bare.set_path(&path);
        }
        self
    }

    /// Returns the URL with these credentials.
    #[must_use]
    pub fn with_credentials(self, user: &str, password: &str) -> Self {
        Self { user: user.to_owned(), password: Some(password.to_owned()), ..self }
    }

    /// Returns the root URL of the same host, with the same credentials, and another scheme and port.
    #[must_use]
    pub fn at(&self, scheme: &str, port: u16) -> Option<Self> {
        let host = self.bare.host_str()?;
        let bare = Url::parse(&format!("{scheme}://{host}:{port}/")).ok()?;
        Some(Self { bare, fragment: None, ..self.clone() })
    }
}

/// Shows the path only if it consists of names and slashes. Any other path may be misplaced credentials.
impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.bare.host_str().unwrap_or_default())?;
        if let Some(port) = self.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(if is_plain(self.path()) { self.path() } else { "/…" })
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretUrl({self})")
    }
}

/// Whether a path, once decoded, consists of names and slashes.
#[must_use]
pub fn is_plain(path: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '~' | '+');
    decode(path).is_ok_and(|path| path.chars().all(fits))
}

pub fn decode(text: &str) -> Result<Cow<'_, str>, UrlFault> {
    percent_decode_str(text).decode_utf8().map_err(|_| UTF_8)
}

/// The parts of a URL's text, cut out before anything else parses the text.
struct Pieces<'a> {
    scheme: &'static str,
    credentials: Option<&'a str>,
    hosts: &'a str,
    behind: &'a str,
}

impl<'a> Pieces<'a> {
    fn of(text: &'a str, schemes: &[&'static str]) -> Result<Self, UrlFault> {
        let text = text.trim();
        let (named, rest) = text.split_once("://").ok_or(UrlFault::Scheme(None))?;
        let among =
            |schemes: &[&'static str]| schemes.iter().find(|scheme| named.eq_ignore_ascii_case(scheme)).copied();
        let Some(scheme) = among(schemes) else { return Err(UrlFault::Scheme(among(&KNOWN))) };
        // In a URL of HTTP a backslash counts as a slash.
        let ends = |c: char| matches!(c, '/' | '?' | '#') || (c == '\\' && scheme.starts_with("http"));
        let (authority, behind) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        // The text before such an `@` may be the rest of a password.
        if behind.contains('@') {
            return Err(AT);
        }
        // `Url` would leave out the first three, and encode a blank.
        if text.contains(['\n', '\r', '\t']) || behind.contains(' ') {
            return Err(BREAK);
        }
        Ok(Self { scheme, credentials, hosts, behind })
    }

    fn with_host(&self, host: &str) -> Result<SecretUrl, UrlFault> {
        if host.is_empty() {
            return Err(HOST);
        }
        let Self { scheme, credentials, behind, .. } = self;
        let mut bare = Url::parse(&format!("{scheme}://{host}{behind}")).map_err(|error| match error {
            ParseError::InvalidPort => UrlFault::Text("a port is not a number between 0 and 65535"),
            ParseError::InvalidIpv6Address => UrlFault::Text("there is no IPv6 address between `[` and `]`"),
            _ => HOST,
        })?;
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        match bare.host() {
            Some(Host::Domain(name)) if !name.is_empty() && name.chars().all(fits) => {}
            Some(Host::Ipv4(_) | Host::Ipv6(_)) => {}
            _ => return Err(HOST),
        }
        // These may be credentials that are percent-encoded as a whole.
        let path = decode(bare.path())?;
        if path.split_once(':').is_some_and(|(_, rest)| rest.contains('@')) {
            return Err(AT);
        }
        let fragment = bare.fragment().map(str::to_owned);
        bare.set_fragment(None);
        let (user, password) = match credentials.map(|both| both.split_once(':').ok_or(both)) {
            None => ("", None),
            Some(Ok((user, password))) => (user, Some(password)),
            Some(Err(user)) => (user, None),
        };
        let decoded = |text| decode(text).map(Cow::into_owned);
        Ok(SecretUrl { bare, user: decoded(user)?, password: password.map(decoded).transpose()?, fragment })
    }
}

/// Splits several URLs at the commas between them. A comma may also be part of a password, but then no scheme follows
/// it.
fn split<'a>(text: &'a str, schemes: &[&str]) -> Vec<&'a str> {
    let begins = |text: &str| {
        let named = text.trim_start().split_once("://").map(|(named, _)| named);
        named.is_some_and(|named| schemes.iter().any(|scheme| named.eq_ignore_ascii_case(scheme)))
    };
    let mut parts = Vec::new();
    let mut rest = text.trim();
    while let Some(comma) = rest.match_indices(',').map(|(at, _)| at).find(|at| begins(&rest[at + 1..])) {
        parts.push(rest[..comma].trim());
        rest = rest[comma + 1..].trim();
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::TestCaseResult};
    use rstest::rstest;

    use super::*;

    const SCHEMES: [&str; 4] = ["amqp", "amqps", "http", "redis-cluster"];

    #[rstest]
    #[case("amqp://app:s3cret@broker:5672/prod?auth=s3cret#s3cret", "amqp://broker:5672/prod")]
    #[case("AMQP://s3cret@broker", "amqp://broker")]
    #[case("amqp://app:s3cret@s3cret@broker/%2f", "amqp://broker/%2f")]
    #[case("amqp://app:s3cret,\\ s3cret@[::1]//", "amqp://[::1]//")]
    #[case("http://app:s3cret@host/a:s3cret", "http://host/…")]
    #[case("http://host/a%2Cs3cret", "http://host/…")]
    #[case("http://h:80/x", "http://h/x")]
    fn a_url_shows_no_credentials(#[case] text: &str, #[case] shown: &str) {
        let url = SecretUrl::parse(text, &SCHEMES).expect("a URL");
        assert_eq!((url.to_string(), format!("{url:?}")), (shown.to_owned(), format!("SecretUrl({shown})")));
        assert!(!url.bare().as_str().contains('@'));
    }

    #[rstest]
    #[case("", UrlFault::Scheme(None))]
    #[case("s3cret:5672/x", UrlFault::Scheme(None))]
    #[case("s3cret://host", UrlFault::Scheme(None))]
    #[case("Https://u:s3cret@host", UrlFault::Scheme(Some("https")))]
    #[case("amqp:/u:s3cret@host", UrlFault::Scheme(None))]
    #[case("amqp://", HOST)]
    #[case("amqp:///u:s3cret@host", AT)]
    #[case("http:///s3cret/host", HOST)]
    #[case("amqp://u:s3cret@h1/v,u:s3cret@h2/v", AT)]
    #[case("amqp://u:s3cret@h1/v;amqp://u:s3cret@h2/v", AT)]
    #[case("amqp://u:s3cret@h1;amqp://u:s3cret@h2", AT)]
    #[case("amqp://u:12/s3cret@host", AT)]
    #[case("amqp://u:12?s3cret@host", AT)]
    #[case("amqp://u:12#s3cret@host", AT)]
    #[case("http://u:12\\s3cret@host", AT)]
    #[case("amqp://h/v%2Cu%3As3cret%40h2", AT)]
    #[case("amqp://u%3As3cret%40host", HOST)]
    #[case("amqp://u:s3cret", UrlFault::Text("a port is not a number between 0 and 65535"))]
    #[case("amqp://u:s3cret@h1 h2", HOST)]
    #[case("amqp://u:s3cret@h1,h2", NODES)]
    #[case("amqp://u:s3cret\n@h1", BREAK)]
    #[case("amqp://u:pw@h1/v s3cret", BREAK)]
    #[case("amqp://u:s3cret%ff@h1", UTF_8)]
    fn a_text_with_a_typing_mistake_is_refused(#[case] text: &str, #[case] fault: UrlFault) {
        assert_eq!(SecretUrl::parse(text, &SCHEMES), Err(fault));
    }

    #[test]
    fn a_list_has_commas_between_whole_urls() {
        let list = |text| SecretUrl::parse_list(text, &SCHEMES);
        let urls = list(" amqp://app:a,b@one:1/v , AMQPS://app:,@two/v ").expect("two");
        assert_eq!(urls.iter().map(ToString::to_string).collect::<Vec<_>>(), ["amqp://one:1/v", "amqps://two/v"]);
        assert_eq!(urls.iter().map(SecretUrl::password).collect::<Vec<_>>(), [Some("a,b"), Some(",")]);
        assert!(list("amqp://a,").is_err());
    }

    #[test]
    fn several_hosts_share_their_credentials_and_path() {
        let urls = SecretUrl::parse_hosts("redis-cluster://u:a%2Fb@h1:7000,[::1]:7001,h3/0", &SCHEMES).expect("three");
        let seen: Vec<_> = urls.iter().map(|url| (url.host(), url.port(), url.path(), url.password())).collect();
        assert_eq!(
            seen,
            [
                ("h1", Some(7000), "/0", Some("a/b")),
                ("::1", Some(7001), "/0", Some("a/b")),
                ("h3", None, "/0", Some("a/b"))
            ]
        );
    }

    /// Checks that a URL does not show a password of any characters between a user and a host. The password is followed
    /// by `@`: a text without an `@` has no credentials.
    fn keeps(password: &str, before: &str, behind: &str) -> TestCaseResult {
        let text = format!("{before}{password}@host{behind}");
        if let Ok(url) = SecretUrl::parse(&text, &SCHEMES) {
            prop_assert!(!url.to_string().contains(password), "{text} shows {url}");
            prop_assert_eq!(url.host(), "host");
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn no_password_is_shown(
            password in "[7-9]{3,5}[/?#@:;,|\\\\ %a-c7-9]{0,6}[x-z]{3}",
            before in prop::sample::select(vec!["amqp://u:", "http://u:", "HTTP://:", "amqp:///u:", "redis-cluster://"]),
            behind in prop::sample::select(vec!["", "/v", ":5672/v", "/v?x=y", "/v#x"]),
        ) {
            keeps(&password, before, behind)?;
        }
    }
}
