//! The flags that select letters.

use std::time::Duration;

use hatchery::parse_duration;
use hatchery_admin::{
    dead_letters::{DeadLetters, LetterQueue, Selection},
    notation::parse_moment,
};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::{args::UsageError, server::Server};

/// How long to wait for another reader, if nobody says.
const WAIT: &str = "2m";

/// The flags of a selection. A letter must match all of them.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which letters")]
pub(super) struct Filters {
    /// Letters of this type, or of a source (source-NAME); may be given more than once
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,

    /// Letters about this object
    #[arg(long)]
    reference: Option<String>,

    /// The letter with this id
    #[arg(long)]
    pub(super) id: Option<String>,

    /// Letters with this text in their reason or failure, in any case
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Failed at this time or later: 2026-06-01T09:00:00Z, 2h ago
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    since: Option<Timestamp>,

    /// Failed before this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    until: Option<Timestamp>,

    /// The messages that no queue has taken, instead of dead letters
    #[arg(long)]
    unrouted: bool,

    /// How long to wait while another `topology dead-letter` reads a queue
    #[arg(long, value_name = "DURATION", default_value = WAIT, value_parser = parse_duration)]
    #[arg(help_heading = None)]
    pub(super) wait: Duration,
}

impl Filters {
    pub(super) fn selection(&self) -> Selection {
        Selection {
            // The types of dead letters are those of their queues. A queue may have a former name of its type.
            types: if self.unrouted { self.types.clone() } else { Vec::new() },
            reference: self.reference.clone(),
            id: self.id.clone(),
            reason: self.reason.clone(),
            since: self.since,
            until: self.until,
            obsolete: false,
            digests: None,
        }
    }

    /// Whether the letters are those about an object.
    pub(super) const fn has_reference(&self) -> bool {
        self.reference.is_some()
    }

    /// Returns the selection as the fields of a request to a server. Fails if it has more than one type, or another wait than a server has.
    pub(super) fn fields(&self) -> Result<Map<String, Value>, UsageError> {
        Server::refuse(&[
            ("more than one --type", self.types.len() > 1),
            ("--wait", self.wait != parse_duration(WAIT).unwrap_or_default()),
        ])?;
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let fields = [
            ("type", self.types.first().cloned()),
            ("reference", self.reference.clone()),
            ("id", self.id.clone()),
            ("reason", self.reason.clone()),
            ("since", time(self.since)),
            ("until", time(self.until)),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?))));
        Ok(given.chain([("unrouted".to_owned(), self.unrouted.into())]).collect())
    }

    /// Returns the flag that selects the queues, for commands in messages.
    pub(super) const fn of(&self) -> &'static str {
        if self.unrouted { " --unrouted" } else { "" }
    }

    /// Says that no letter was found, and where else it may be.
    pub(super) const fn not_found(&self) -> &'static str {
        if self.unrouted {
            "there is no such message in `unrouted`; without --unrouted the dead-letter queues are searched"
        } else {
            "there is no such letter; --unrouted searches the messages that no queue has taken"
        }
    }

    /// Returns the queues of the letters. An unknown type is allowed with `--unrouted`: it may be why the messages are
    /// there.
    pub(super) fn queues(
        &self,
        letters: &DeadLetters,
        leftovers: Vec<LetterQueue>,
    ) -> anyhow::Result<Vec<LetterQueue>> {
        Ok(if self.unrouted { vec![letters.unrouted()] } else { letters.queues(&self.types, leftovers)? })
    }
}
