//! The options that every verb takes, and how URLs, certificates and keys are read from them.

use std::{env, path::PathBuf, time::Duration};

use hatchery::{
    Tls, TlsError,
    internals::{
        rabbitmq::connection::AmqpUrl,
        secret_url::UrlText,
        ttl::{TtlError, parse_duration},
        words::may_be_url,
    },
};
use hatchery_admin::{Asked, management::ManagementUrl};

use crate::{
    log::LogFormat,
    output::{Format, Output},
};

const AMQP_LONG: &str = "\
The broker and its virtual host; commas separate the nodes of a cluster. Passwords on the command line are visible in \
`ps`; prefer AMQP_URL, or AMQP_URL_FILE with the path of a file that holds the URL \
[default: amqp://guest:guest@localhost:5672/]";

const REDIS_LONG: &str = "\
The Redis of the register: redis://host, rediss://host with TLS, redis-cluster://h1:7000,h2:7000 or \
redis-sentinel://s1,s2#mymaster (rediss-… with TLS); prefer REDIS_URL, or REDIS_URL_FILE [default: \
redis://localhost:6379]";

const MANAGEMENT_LONG: &str = "\
The broker's management API; prefer RABBITMQ_MANAGEMENT_URL, or RABBITMQ_MANAGEMENT_URL_FILE [default: the broker's \
hosts and user, port 15672; with TLS 15671, then 15672]";

const SERVER_LONG: &str = "\
A server to ask in place of the broker: `topology dev` or `topology serve`. For publish, events, dead-letter, schedule, \
trace and status, which then need neither a file nor a broker";

/// Flags that every verb takes, before or after the verb. clap does not parse the URLs, because its error message would
/// repeat a wrong URL with its password. clap does not read them from the environment either, because the environment
/// may name a file that holds the URL.
#[derive(clap::Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// The topology
    #[arg(short, long, global = true, value_name = "PATH", env = "TOPOLOGY_FILE", hide_env_values = true)]
    #[arg(default_value = "topology.yaml")]
    pub(crate) file: PathBuf,

    /// The broker
    #[arg(long, global = true, value_name = "URL", help = "The broker and its virtual host; prefer AMQP_URL", long_help = AMQP_LONG)]
    amqp_url: Option<UrlText>,

    /// The Redis of the register
    #[arg(long, global = true, value_name = "URL", help = "The Redis of the register; prefer REDIS_URL", long_help = REDIS_LONG)]
    redis_url: Option<UrlText>,

    /// The broker's management API
    #[arg(long, global = true, value_name = "URL", help = "The broker's management API; prefer RABBITMQ_MANAGEMENT_URL", long_help = MANAGEMENT_LONG)]
    management_url: Option<UrlText>,

    /// The server to ask in place of the broker
    #[arg(long, global = true, value_name = "URL", env = "TOPOLOGY_URL", hide_env_values = true)]
    #[arg(help = "A server to ask in place of the broker: `topology dev` or `topology serve`", long_help = SERVER_LONG)]
    pub(crate) server: Option<UrlText>,

    /// A file with the token for the server
    #[arg(long, global = true, value_name = "PATH", env = "TOPOLOGY_TOKEN_FILE", hide_env_values = true)]
    #[arg(hide_short_help = true)]
    pub(crate) token_file: Option<PathBuf>,

    /// Certificate authorities to trust for TLS, in PEM, instead of the system's
    #[arg(long, global = true, value_name = "PATH", env = "TOPOLOGY_CA_FILE", hide_env_values = true)]
    #[arg(hide_short_help = true)]
    ca_file: Option<PathBuf>,

    /// Client certificate for TLS, in PEM
    #[arg(long, global = true, value_name = "PATH", env = "TOPOLOGY_CERT_FILE", hide_env_values = true)]
    #[arg(hide_short_help = true)]
    cert_file: Option<PathBuf>,

    /// Private key of the client certificate, in PEM and not encrypted
    #[arg(long, global = true, value_name = "PATH", env = "TOPOLOGY_KEY_FILE", hide_env_values = true)]
    #[arg(hide_short_help = true)]
    key_file: Option<PathBuf>,

    /// Output format
    #[arg(short, long, global = true, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    output: Format,

    /// No colours
    #[arg(long, global = true, hide_short_help = true)]
    #[arg(help = "No colours, as with NO_COLOR; output to a pipe never has colours")]
    no_color: bool,

    /// Form of the log on standard error
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t, env = "TOPOLOGY_LOG_FORMAT")]
    #[arg(hide_env_values = true)]
    pub(crate) log_format: LogFormat,

    /// Log more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    #[arg(help = "Log more; twice for debug messages. RUST_LOG takes precedence")]
    pub(crate) verbose: u8,
}

/// The changes that happen only if the user asks for them.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Flags {
    /// Replace objects that cannot be changed in place; their events are moved, and none is lost
    #[arg(long)]
    migrate: bool,

    /// Remove owned objects that are no longer in the file, once they are provably empty
    #[arg(long)]
    prune: bool,
}

impl From<Flags> for Asked {
    fn from(Flags { migrate, prune }: Flags) -> Self {
        Self { migrate, prune }
    }
}

/// Wrong arguments that clap cannot detect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

impl Common {
    /// Returns the output with the format, the colours and the detail that these flags ask for.
    pub(crate) fn output(&self) -> Output {
        Output::new(self.output, self.no_color, self.verbose > 0)
    }

    /// Returns the broker's parsed URL with the TLS settings.
    pub(crate) fn amqp_url(&self) -> Result<AmqpUrl, UsageError> {
        let url = AmqpUrl::of(self.amqp_url_text()?);
        Ok(url.map_err(|error| UsageError(format!("--amqp-url (AMQP_URL): {error}")))?.with_tls(self.tls()?))
    }

    /// Returns the broker's URL as the user gave it, or the default.
    pub(crate) fn amqp_url_text(&self) -> Result<UrlText, UsageError> {
        let given = given(self.amqp_url.as_ref(), "AMQP_URL", |name| env::var(name).ok())?;
        Ok(given.unwrap_or_else(|| "amqp://guest:guest@localhost:5672/".into()))
    }

    /// Returns the register's URL as the user gave it, or the default.
    pub(crate) fn redis_url(&self) -> Result<UrlText, UsageError> {
        Ok(self.given_redis_url()?.unwrap_or_else(|| "redis://localhost:6379".into()))
    }

    /// Returns the register's URL, or none if the user gave none.
    pub(crate) fn given_redis_url(&self) -> Result<Option<UrlText>, UsageError> {
        given(self.redis_url.as_ref(), "REDIS_URL", |name| env::var(name).ok())
    }

    /// Returns the URL of the management API; without one, it is derived from the broker's.
    pub(crate) fn management_url(&self, broker: &AmqpUrl) -> Result<ManagementUrl, UsageError> {
        let given = given(self.management_url.as_ref(), "RABBITMQ_MANAGEMENT_URL", |name| env::var(name).ok())?;
        match given {
            None => Ok(ManagementUrl::of(broker)),
            Some(url) => ManagementUrl::new(url.secret(), broker)
                .map_err(|error| UsageError(format!("--management-url (RABBITMQ_MANAGEMENT_URL): {error}"))),
        }
    }

    /// Refuses a server, for a verb that asks the broker itself.
    pub(crate) fn refuse_server(&self) -> Result<(), UsageError> {
        let Some(_) = self.server.as_ref().filter(|url| !url.secret().is_empty()) else { return Ok(()) };
        let why = "--server (TOPOLOGY_URL) is for `publish`, `events`, `dead-letter`, `schedule`, `trace` and `status`; this \
                   verb asks the broker and Redis themselves";
        Err(UsageError(why.to_owned()))
    }

    /// Returns the trusted authorities, and the client certificate with its key.
    pub(crate) fn tls(&self) -> Result<Tls, UsageError> {
        let wrong = |option: &str, error: TlsError| UsageError(format!("{option}: {error}"));
        let mut tls = Tls::default();
        if let Some(path) = &self.ca_file {
            tls = tls.trust_file(path).map_err(|error| wrong("--ca-file (TOPOLOGY_CA_FILE)", error))?;
        }
        let both = "--cert-file (TOPOLOGY_CERT_FILE) and --key-file (TOPOLOGY_KEY_FILE)";
        match (&self.cert_file, &self.key_file) {
            (None, None) => Ok(tls),
            (Some(chain), Some(key)) => tls.identify_files(chain, key).map_err(|error| wrong(both, error)),
            _ => Err(wrong(both, TlsError::Half)),
        }
    }
}

/// Returns a URL from the command line, or else from the environment, or else from the file that the environment names.
/// No error message repeats the URL: it may hold a password.
fn given(
    flag: Option<&UrlText>,
    name: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Option<UrlText>, UsageError> {
    if let Some(url) = flag {
        return Ok(Some(url.clone()));
    }
    let file = format!("{name}_FILE");
    // A variable that is empty counts as not set.
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    match (set(name), set(&file)) {
        (Some(_), Some(_)) => {
            Err(UsageError(format!("{name} and {file} are both set, and only one of them can be meant")))
        }
        (None, Some(path)) => match UrlText::in_file(&path) {
            Ok(url) if url.secret().is_empty() => Err(UsageError(format!("{file}: {} is empty", shown(&path)))),
            Ok(url) => Ok(Some(url)),
            Err(error) => Err(UsageError(format!("{file}: cannot read {}: {error}", shown(&path)))),
        },
        (url, None) => Ok(url.map(UrlText::from)),
    }
}

/// Returns the path as an error message may show it. A user may have put the URL itself where the path belongs, so only
/// a text that can be neither a URL nor a password is repeated.
pub(super) fn shown(path: &str) -> &str {
    if path.starts_with(['/', '.']) && !may_be_url(path) { path } else { "the file of that name" }
}

/// Parses a duration that may be `0`, which means not to wait.
pub(super) fn parse_patience(text: &str) -> Result<Duration, TtlError> {
    if text.trim() == "0" { Ok(Duration::ZERO) } else { parse_duration(text) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Some("flag"), "env", "", Some("flag"))]
    #[case(Some("flag"), "env", "file", Some("flag"))]
    #[case(None, "env", "", Some("env"))]
    #[case(None, "", "file", Some("from the file"))]
    #[case(None, "", "", None)]
    fn a_url_comes_from_one_place(
        #[case] flag: Option<&str>,
        #[case] variable: &str,
        #[case] file: &str,
        #[case] expected: Option<&str>,
    ) {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("url");
        fs::write(&path, "from the file\n").expect("written");
        let environment = |name: &str| match (name, file) {
            ("X", _) => Some(variable.to_owned()),
            ("X_FILE", "") => Some(String::new()),
            ("X_FILE", _) => Some(path.display().to_string()),
            _ => None,
        };
        let flag = flag.map(UrlText::from);
        let given = given(flag.as_ref(), "X", environment).expect("given");
        assert_eq!(given.as_ref().map(UrlText::secret), expected);
    }

    #[test]
    fn a_url_in_two_places_or_in_an_unreadable_file_is_refused() {
        let refused = |environment: &dyn Fn(&str) -> Option<String>| match given(None, "X", environment) {
            Err(UsageError(message)) => message,
            Ok(_) => panic!("it is accepted"),
        };
        let both = refused(&|_| Some("s3cret".to_owned()));
        assert!(both.contains("X and X_FILE") && !both.contains("s3cret"), "{both}");
        let gone = |name: &str| (name == "X_FILE").then(|| "/nonexistent/url".to_owned());
        assert!(refused(&gone).contains("/nonexistent/url"));
        let url = |name: &str| (name == "X_FILE").then(|| "amqp://u:s3cret@h".to_owned());
        let error = refused(&url);
        assert!(error.starts_with("X_FILE: cannot read the file of that name: "), "{error}");
        assert!(given(None, "X", |_| None).expect("nothing").is_none());
        let empty = |name: &str| (name == "X_FILE").then(|| "/dev/null".to_owned());
        assert_eq!(refused(&empty), "X_FILE: /dev/null is empty");
    }

    #[test]
    fn a_file_that_is_too_large_for_a_url_is_not_read() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("url");
        fs::write(&path, vec![b'x'; (1 << 20) + 1]).expect("written");
        let large = |name: &str| (name == "X_FILE").then(|| path.display().to_string());
        let Err(error) = given(None, "X", large) else { panic!("it is too large") };
        assert!(error.0.ends_with("it has more than 1 MiB"), "{error}");
    }
}
