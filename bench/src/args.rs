//! The arguments.

use std::path::PathBuf;

use bytes::Bytes;
use clap::{Parser, value_parser};

use crate::load::{JOINED, Load, Side};

/// Measures what an event costs with hatchery, beside bare lapin.
#[derive(Parser)]
#[command(name = "scripts/bench", disable_version_flag = true)]
pub(crate) struct Args {
    /// Only this case, or all cases whose names begin with this word; repeatable
    #[arg(long = "case", value_name = "NAME")]
    pub(crate) cases: Vec<String>,
    /// Events of each side in a round [default: 50000; 100000 for events that are due at one instant or at random, coalesce
    /// and start; 5000 for cancel-reference; 20000 with --peers]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(100..=1_000_000))]
    pub(crate) events: Option<u32>,
    /// Run BullMQ, Dramatiq and Celery beside hatchery, instead of the cases; with --case, after them
    #[arg(long)]
    pub(crate) peers: bool,
    /// Bytes of each payload
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) bytes: usize,
    /// Rounds; the figures are their medians [default: 5]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=99))]
    rounds: Option<u32>,
    /// Unacknowledged deliveries of a consumer
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = value_parser!(u16).range(1..))]
    pub(crate) prefetch: u16,
    /// Handlers that run at a time
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,
    /// The records on the stream of the life of events: off, failures, all
    #[arg(long, value_name = "EVENTS", default_value = "failures")]
    pub(crate) life_cycle: String,
    /// RabbitMQ version of scripts/brokers: 3.10, 4.0, 4.3 [default: the installed one]
    #[arg(long, value_name = "V")]
    pub(crate) version: Option<String>,
    /// Write every round to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// 2,000 events and one round: shows that everything runs, and the figures mean little
    #[arg(long)]
    pub(crate) short: bool,
    /// Print the cases with their baselines, and do nothing else
    #[arg(long)]
    pub(crate) list: bool,
    /// Work on events as the child process of the case `start`
    #[arg(long, hide = true)]
    pub(crate) child: Option<Side>,
}

impl Args {
    /// Returns the load of a case whose usual number of events is `usual`.
    pub(crate) fn load(&self, usual: u32) -> Load {
        let few = if self.short { 2_000 } else { usual };
        Load {
            events: self.events.unwrap_or(few),
            payload: Bytes::from(vec![b'x'; self.bytes]),
            prefetch: self.prefetch,
            joined: JOINED.min(self.prefetch),
        }
    }

    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.short { 1 } else { 5 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from([&["bench"], arguments].concat())
    }

    #[test]
    fn short_runs_have_one_round_unless_another_number_is_asked_for() {
        assert_eq!(parsed(&[]).unwrap().rounds(), 5);
        assert_eq!(parsed(&["--short"]).unwrap().rounds(), 1);
        assert_eq!(parsed(&["--short", "--rounds", "3"]).unwrap().rounds(), 3);
    }
}
