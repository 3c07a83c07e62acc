//! `topology schedule backfill`.

use hatchery_admin::{
    notation::parse_moment,
    schedules::{Backfilled, Schedules},
    text::count,
};
use jiff::Timestamp;
use serde_json::json;

use crate::{
    args::{Common, UsageError},
    connect,
    exit::{Ended, Exit},
    load,
    output::Output,
    server::{Server, segment, unknown_is_usage},
};

/// Run the events of instants that have passed
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology schedule backfill nightly-import --from 2026-06-01T00:00:00Z
  topology schedule backfill nightly-import --from \"7d ago\" --to now --yes

Without --yes the instants are only listed. An event runs also if its instant
has run before: its id is NAME!INSTANT. Published twice within
`dedup-retention`, it runs once. The events run now, side by side as far as
their type allows it.")]
pub(crate) struct Args {
    /// The schedule
    #[arg(value_name = "SCHEDULE")]
    name: String,

    /// The first instant, or a time before it
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    from: Timestamp,

    /// A time after the last instant [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    to: Option<Timestamp>,

    /// The most instants
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,

    /// Publish the events; without --yes they are only listed
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let now = Timestamp::now();
    let to = args.to.unwrap_or(now);
    if to > now {
        return Err(UsageError(format!("--to {to} is not past: the schedule itself runs what is to come")).into());
    }
    if args.from >= to {
        return Err(UsageError(format!("--from {} is not before --to {to}", args.from)).into());
    }
    if let Some(server) = Server::named(common)? {
        Server::refuse(&[("--limit above 1000", args.limit > 1_000)])?;
        let asked = json!({ "from": args.from, "to": args.to, "limit": args.limit, "dry_run": !args.yes });
        let path = format!("/v1/schedules/{}/backfill", segment(&args.name));
        return tell(&server.post(&path, &asked).await.map_err(unknown_is_usage)?, args.limit, output);
    }
    let topology = load::topology(common, output)?;
    connect::with_events(common, topology, "topology schedule", async |events| {
        let schedules = Schedules(events.clone());
        let mut events = schedules.would_backfill(&args.name, args.from, to, usize::try_from(args.limit)?)?;
        if args.yes {
            let bar = output.progress(None, "publishing");
            events = schedules.backfill(events).await.map_err(|error| {
                let exit = if error.done == 0 { Exit::Unreachable } else { Exit::Partly };
                Ended::new(exit, format!("{error}. Run it again"))
            })?;
            bar.finish_and_clear();
        }
        tell(&events, args.limit, output)
    })
    .await
}

fn tell(done: &Backfilled, limit: u32, output: Output) -> anyhow::Result<Exit> {
    if !output.is_text() {
        output.json(done)?;
        return Ok(Exit::Done);
    }
    let lines: Vec<String> = done.ids.iter().map(|id| format!("{id}\n")).collect();
    output.print(&lines.concat())?;
    let events = count(done.ids.len(), "event");
    output.note(&if done.dry_run {
        format!("{events}. A dry run: nothing was published. --yes publishes them.")
    } else {
        format!("{events} published.")
    });
    if done.more {
        output.note(&format!("More instants follow. --limit N shows more than {limit}."));
    }
    Ok(Exit::Done)
}
