//! What every verb takes.

use std::{env, io, path::PathBuf, time::Duration};

use hatchery::{
    Tls, TlsError,
    internals::{
        bounded_file::{self, SMALL},
        rabbitmq::connection::AmqpUrl,
        secret_url::UrlText,
        ttl::{TtlError, parse_duration},
        words::may_be_url,
    },
};

use crate::{
    management::ManagementUrl,
    output::{Format, Output},
};

const AMQP_HELP: &str = "\
The broker, with its virtual host; the nodes of a cluster with commas between them. Others see a password here in the \
list of processes: better AMQP_URL, or AMQP_URL_FILE with the name of a file that has it \
[default: amqp://guest:guest@localhost:5672/]";

const REDIS_HELP: &str = "\
Where the register is: redis://host, rediss://host with TLS, redis-cluster://h1:7000,h2:7000 or \
redis-sentinel://s1,s2#mymaster (rediss-… with TLS); better REDIS_URL, or REDIS_URL_FILE [default: \
redis://localhost:6379]";

const MANAGEMENT_HELP: &str = "\
The broker's management API; better RABBITMQ_MANAGEMENT_URL, or RABBITMQ_MANAGEMENT_URL_FILE [default: the broker's host \
and user, port 15672, or 15671 with TLS]";

/// Flags that every verb takes, before or after it. clap does not parse the URLs: it would repeat a wrong one with its
/// password. Nor does it read them from the environment: they may be in files, too.
#[derive(clap::Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// The topology
    #[arg(
        short,
        long,
        global = true,
        value_name = "PATH",
        env = "TOPOLOGY_FILE",
        hide_env_values = true,
        default_value = "topology.yaml"
    )]
    pub(crate) file: PathBuf,

    /// The broker
    #[arg(long, global = true, value_name = "URL", help = AMQP_HELP)]
    amqp_url: Option<UrlText>,

    /// Where the register is
    #[arg(long, global = true, value_name = "URL", help = REDIS_HELP)]
    redis_url: Option<UrlText>,

    /// The broker's management API
    #[arg(long, global = true, value_name = "URL", help = MANAGEMENT_HELP)]
    management_url: Option<UrlText>,

    /// Whom to trust over TLS, instead of the system's authorities: certificates in PEM
    #[arg(long, global = true, value_name = "PATH", env = "TOPOLOGY_CA_FILE", hide_env_values = true)]
    ca_file: Option<PathBuf>,

    /// The certificate to show over TLS, in PEM
    #[arg(long, global = true, value_name = "PATH", env = "TOPOLOGY_CERT_FILE", hide_env_values = true)]
    cert_file: Option<PathBuf>,

    /// Its key, in PEM and not encrypted
    #[arg(long, global = true, value_name = "PATH", env = "TOPOLOGY_KEY_FILE", hide_env_values = true)]
    key_file: Option<PathBuf>,

    /// How to answer
    #[arg(short, long, global = true, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    output: Format,

    /// No colours
    #[arg(long, global = true, help = "No colours; NO_COLOR says so too, and there are none in a pipe")]
    no_color: bool,

    /// Say more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    #[arg(help = "Say more, twice for still more; RUST_LOG says exactly what")]
    pub(crate) verbose: u8,
}

/// Arguments that clap could not refuse.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

impl Common {
    /// Where to write, and how.
    pub(crate) fn output(&self) -> Output {
        Output::new(self.output, self.no_color, self.verbose > 0)
    }

    /// The broker.
    pub(crate) fn amqp_url(&self) -> Result<AmqpUrl, UsageError> {
        let url = AmqpUrl::new(self.amqp_url_text()?.secret());
        Ok(url.map_err(|error| UsageError(format!("--amqp-url (AMQP_URL): {error}")))?.with_tls(self.tls()?))
    }

    /// The broker's URL, as it was given.
    pub(crate) fn amqp_url_text(&self) -> Result<UrlText, UsageError> {
        let given = given(self.amqp_url.as_ref(), "AMQP_URL", |name| env::var(name).ok())?;
        Ok(given.unwrap_or_else(|| "amqp://guest:guest@localhost:5672/".into()))
    }

    /// The register's URL, as it was given.
    pub(crate) fn redis_url(&self) -> Result<UrlText, UsageError> {
        Ok(self.given_redis_url()?.unwrap_or_else(|| "redis://localhost:6379".into()))
    }

    /// The same; none where nothing was said.
    pub(crate) fn given_redis_url(&self) -> Result<Option<UrlText>, UsageError> {
        given(self.redis_url.as_ref(), "REDIS_URL", |name| env::var(name).ok())
    }

    /// The management API.
    pub(crate) fn management_url(&self, broker: &AmqpUrl) -> Result<ManagementUrl, UsageError> {
        let given = given(self.management_url.as_ref(), "RABBITMQ_MANAGEMENT_URL", |name| env::var(name).ok())?;
        match given {
            None => Ok(ManagementUrl::of(broker)),
            Some(url) => ManagementUrl::new(url.secret(), broker)
                .map_err(|error| UsageError(format!("--management-url (RABBITMQ_MANAGEMENT_URL): {error}"))),
        }
    }

    /// Whom to trust, and who we are.
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

/// A URL from the command line, or else from the environment, or else from the file that the environment names. Whatever
/// is wrong with it, the message does not repeat it.
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
        (None, Some(path)) => match read_url(&path) {
            Ok(url) if url.secret().is_empty() => Err(UsageError(format!("{file}: {} is empty", shown(&path)))),
            Ok(url) => Ok(Some(url)),
            Err(error) => Err(UsageError(format!("{file}: cannot read {}: {error}", shown(&path)))),
        },
        (url, None) => Ok(url.map(UrlText::from)),
    }
}

/// Reads a URL from a file. Editors and `echo` end a file with a newline.
pub(super) fn read_url(path: &str) -> io::Result<UrlText> {
    Ok(bounded_file::read_text(path, SMALL)?.trim().into())
}

/// The name of a file where a URL may stand by mistake. Only a text that cannot be a URL or a password is repeated.
pub(super) fn shown(path: &str) -> &str {
    if path.starts_with(['/', '.']) && !may_be_url(path) { path } else { "the file of that name" }
}

/// A duration that may be none at all: `0` does not wait.
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
    fn neither_two_places_nor_an_unreadable_one_are_guessed_at() {
        let refused = |environment: &dyn Fn(&str) -> Option<String>| match given(None, "X", environment) {
            Err(UsageError(message)) => message,
            Ok(_) => panic!("it is guessed at"),
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
