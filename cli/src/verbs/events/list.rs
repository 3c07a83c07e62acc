//! `topology events list`: lists events by their due time, the next one first.

use futures_util::{StreamExt as _, TryStreamExt as _};
use hatchery::{EventInfo, Events};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{answer::view, connected::with_events, table, which::Filters};
use crate::{
    args::Common,
    exit::Exit,
    load,
    output::{Format, Output},
};

/// List events that wait, run, are retried or were dead-lettered
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  topology events list
  topology events list --type hr-import --reference 1234
  topology events list --state retry --attempts 3 --reason timeout
  topology events list --due-after now --due-before 24h --limit 1000
  topology events list --state dead-letter -o ndjson | jq -r .id
  topology events list --due-before \"1h ago\"     overdue events

The list is ordered by due time, over all types that use Redis. It shows the
newest event of each reference and date; events that it replaces are not shown.

Exit 1: the broker reports that the topology was never applied.")]
pub(super) struct Args {
    #[command(flatten)]
    filters: Filters,

    /// The largest number of events to list
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let topology = load::topology(common, output)?;
    with_events(common, topology, output, async |events| list(events, args, output).await).await
}

async fn list(events: &Events, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let limit = usize::try_from(args.limit)?;
    let mut found = events.search(&args.filters.filter()).take(limit.saturating_add(1)).boxed();
    let (mut list, mut more): (Vec<EventInfo>, bool) = (Vec::new(), false);
    let mut shown = 0;
    while let Some(event) = found.try_next().await? {
        if shown == limit {
            more = true;
        } else if output.format == Format::Ndjson {
            output.json(&view(&event))?;
        } else {
            list.push(event);
        }
        shown += 1;
    }
    match output.format {
        Format::Text if list.is_empty() => output.print("Nothing is found.\n")?,
        Format::Text => output.print(&table::table(&list, Timestamp::now(), Output::columns()))?,
        Format::Json => {
            output.json(&json!({ "events": list.iter().map(view).collect::<Vec<Value>>(), "more": more }))?;
        }
        Format::Ndjson => {}
    }
    if more && output.format != Format::Json {
        output.note(&format!("Only the first {limit} are shown. --limit N shows more."));
    }
    Ok(Exit::Done)
}
