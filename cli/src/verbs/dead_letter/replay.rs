//! `topology dead-letter replay`: publishes the events of letters again.

use std::{num::NonZeroU32, time::Duration};

use hatchery::{parse_duration, parse_time};
use hatchery_admin::dead_letters::{Bounds, DeadLetters, Due, LetterQueue, Sweep, Verb};
use jiff::Timestamp;

use super::{
    connection::with_letters,
    filters::Filters,
    report,
    served::{self, Asked},
};
use crate::{args::Common, exit::Exit, output::Output, server::Server};

/// Publish the events of letters again, as if they had not failed
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology dead-letter replay                               a dry run
  topology dead-letter replay --type mail --reason timeout --yes
  topology dead-letter replay --yes --rate 50/s --limit 1000
  topology dead-letter replay --id ID --delay 10m --yes
  topology dead-letter replay --unrouted --yes

A replayed event begins with no failed attempts, and keeps its history in its
headers. It keeps its date, unless --at or --delay gives another one. Its letter
leaves the queue once the broker has confirmed the event. Obsolete letters stay.
Messages of a source go back to its queue, unless --at or --delay is given.

The command ends after as many letters as there were when it began. Ctrl-C stops
it after the letters that are under way; run it again for the rest.

Exit 1: no letter with this --id matches, or a queue is missing and no letter
was replayed. 4: a policy limits deliveries, so that a look could delete
letters. 5: stopped or failed half-way, letters were not seen because others
hold them or the broker is slow, or a queue is missing and letters of others
were replayed. 6: the broker or Redis is unreachable. 7: another
`topology dead-letter` reads the queue.")]
pub(crate) struct Args {
    #[command(flatten)]
    filters: Filters,

    /// Run the events not before this time
    #[arg(long, value_name = "TIME", conflicts_with = "delay", value_parser = parse_time)]
    at: Option<Timestamp>,

    /// Run the events after this delay at the earliest
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    delay: Option<Duration>,

    /// The most letters in a second, such as 50/s
    #[arg(long, value_name = "N/s", value_parser = parse_rate)]
    rate: Option<NonZeroU32>,

    /// The most letters to replay
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// Replay the letters; without --yes they are only counted
    #[arg(long)]
    yes: bool,
}

impl Args {
    /// Returns the time that is given to the events, if one is.
    fn due(&self) -> Option<Timestamp> {
        self.at.or_else(|| Timestamp::now().checked_add(self.delay?).ok())
    }
}

fn parse_rate(text: &str) -> Result<NonZeroU32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    number.parse().map_err(|_| "not a rate; write it like 50/s".to_owned())
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    if let Some(server) = Server::named(common)? {
        let mut fields = args.filters.fields()?;
        if let Some(at) = args.due() {
            fields.insert("at".to_owned(), at.to_string().into());
        }
        if let Some(rate) = args.rate {
            fields.insert("rate".to_owned(), rate.get().into());
        }
        let most = args.rate.map(|rate| u64::from(rate.get()) * served::LONGEST);
        let asked =
            Asked { server: &server, filters: &args.filters, fields, verb: Verb::Replay(Due::AsBefore), output };
        return if args.yes { asked.replay(args.limit, most).await } else { asked.dry_run(args.limit).await };
    }
    with_letters(common, &args.filters, output, async |letters, queues| replay(letters, queues, args, output).await)
        .await
}

async fn replay(all: &DeadLetters, queues: &[LetterQueue], args: &Args, output: Output) -> anyhow::Result<Exit> {
    let (filters, selection) = (&args.filters, args.filters.selection());
    let due = args.due().map_or(Due::AsBefore, Due::At);
    let verb = Verb::Replay(due);
    if !args.yes {
        return report::dry_run(all, queues, (filters, &selection), args.limit, verb, output).await;
    }
    let bounds = Bounds { limit: args.limit, rate: args.rate };
    let replay = async |sweep: Sweep<'_>| all.replay(sweep, due).await;
    report::sweep(queues, filters, verb, output, (&selection, bounds), replay).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_of_letters_in_a_second() {
        assert_eq!(parse_rate("50/s").ok().map(NonZeroU32::get), Some(50));
        assert_eq!(parse_rate("50").ok().map(NonZeroU32::get), Some(50));
        for wrong in ["0/s", "50/m", "-1", "", "1.5/s"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }
}
