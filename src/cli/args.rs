//! What every verb takes.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;
use hatchery::{
    adapters::{management::ManagementUrl, rabbitmq::connection::AmqpUrl},
    domain::ttl::{TtlError, parse_duration},
};

use super::output::Output;

/// Flags that every verb takes, before or after it. URLs stay text until they are needed: clap would repeat a wrong one
/// with its password.
#[derive(clap::Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// The topology
    #[arg(short, long, global = true, value_name = "PATH", env = "TOPOLOGY_FILE", default_value = "topology.yaml")]
    pub(crate) file: PathBuf,

    /// The broker, with its virtual host
    #[arg(long, global = true, value_name = "URL", env = "AMQP_URL", hide_env_values = true)]
    #[arg(default_value = "amqp://guest:guest@localhost:5672/")]
    amqp_url: String,

    /// Where the register is
    #[arg(long, global = true, value_name = "URL", env = "REDIS_URL", hide_env_values = true)]
    #[arg(default_value = "redis://localhost:6379")]
    redis_url: String,

    /// The broker's management API [default: the broker's host and user, port 15672]
    #[arg(long, global = true, value_name = "URL", env = "RABBITMQ_MANAGEMENT_URL", hide_env_values = true)]
    management_url: Option<String>,

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

/// How to answer: for people, as one JSON document, or as one a line.
// A text for each would make `--help` three times as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Ndjson,
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
        AmqpUrl::new(&self.amqp_url).map_err(|error| UsageError(format!("--amqp-url (AMQP_URL): {error}")))
    }

    /// The broker's URL, as it was given: it may hold a password.
    pub(crate) fn amqp_url_text(&self) -> &str {
        &self.amqp_url
    }

    /// The register's URL, as it was given: it may hold a password.
    pub(crate) fn redis_url(&self) -> &str {
        &self.redis_url
    }

    /// The management API.
    pub(crate) fn management_url(&self, broker: &AmqpUrl) -> Result<ManagementUrl, UsageError> {
        match self.management_url.as_deref() {
            None | Some("") => Ok(ManagementUrl::of(broker)),
            Some(text) => ManagementUrl::new(text, broker)
                .map_err(|error| UsageError(format!("--management-url (RABBITMQ_MANAGEMENT_URL): {error}"))),
        }
    }
}

/// A duration that may be none at all: `0` does not wait.
pub(super) fn parse_patience(text: &str) -> Result<Duration, TtlError> {
    if text.trim() == "0" { Ok(Duration::ZERO) } else { parse_duration(text) }
}
