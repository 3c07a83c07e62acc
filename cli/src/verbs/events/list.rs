//! `topology events list`: lists events by their due time, the next one first.

use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use hatchery::{EventInfo, Events, EventsError, Topology};
use hatchery_admin::{Unlisted, status::not_listed};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    answer::{EventView, view},
    connection::with_events,
    filters::Filters,
    paused, table,
};
use crate::{
    args::Common,
    connect::here,
    exit::Exit,
    load,
    output::{Format, Output},
    text::sentence,
    verbs::status::unlisted_words,
};

/// List events that wait, run, are retried or were dead-lettered
#[derive(clap::Args)]
#[command(after_long_help = "\
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

/// The answer of `topology events list`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The events, the next one first.
    events: Vec<EventView>,
    /// Whether there are more events than these.
    more: bool,
    /// The number of events; `null` if counting took too long.
    total: Option<usize>,
    /// Where messages are that have no line in the list; `null` if the broker or Redis does not tell.
    unlisted: Option<Vec<Unlisted>>,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let topology = load::topology(common, output)?;
    let file = topology.clone();
    with_events(common, topology, output, async |events| list(common, &file, events, args, output).await).await
}

/// How long the list goes on counting the events that it does not show. There may be millions.
const COUNTING: Duration = Duration::from_secs(2);

/// How many events match.
enum Total {
    Exactly(usize),
    /// Counting took too long.
    MoreThan(usize),
}

async fn list(
    common: &Common,
    topology: &Topology,
    events: &Events,
    args: &Args,
    output: Output,
) -> anyhow::Result<Exit> {
    let limit = usize::try_from(args.limit)?;
    let mut found = events.search(&args.filters.filter()).boxed();
    let mut list: Vec<EventInfo> = Vec::new();
    while list.len() < limit {
        let Some(event) = found.try_next().await? else { break };
        if output.format == Format::Ndjson {
            output.json(&view(&event))?;
        }
        list.push(event);
    }
    let total = total(list.len(), found).await?;
    // With -o ndjson the events are the whole answer.
    let unlisted = match output.format {
        Format::Ndjson => None,
        Format::Text | Format::Json => {
            not_listed(&common.amqp_url()?, &here("topology events"), topology, &args.filters.types, events).await
        }
    };
    match output.format {
        Format::Text => {
            output.print(&screen(&list, topology, unlisted.as_deref(), Timestamp::now(), Output::columns()))?;
        }
        Format::Json => {
            let (more, total) = match total {
                Total::Exactly(total) => (total > list.len(), Some(total)),
                Total::MoreThan(_) => (true, None),
            };
            let events = list.iter().map(view).collect();
            output.json(&Answer { events, more, total, unlisted: unlisted.clone() })?;
        }
        Format::Ndjson => {}
    }
    if output.format != Format::Json {
        match total {
            Total::Exactly(total) if total > list.len() => {
                output.note(&format!("The first {limit} of {total} are shown. --limit N shows more."));
            }
            Total::Exactly(0) => {}
            Total::Exactly(total) => output.note(&format!("{}.", table::events(u64::try_from(total)?))),
            Total::MoreThan(counted) => {
                output.note(&format!("The first {limit} of more than {counted} are shown. --limit N shows more."));
            }
        }
    }
    paused::note(common, topology, &list, output).await;
    Ok(Exit::Done)
}

/// Returns the list, and below it how many messages it cannot have.
pub(super) fn screen(
    list: &[EventInfo],
    topology: &Topology,
    unlisted: Option<&[Unlisted]>,
    now: Timestamp,
    columns: usize,
) -> String {
    let found = match list {
        [] => "Nothing is found.\n".to_owned(),
        list => table::table(list, Some(topology), now, columns),
    };
    match unlisted.and_then(|places| unlisted_words(places, "at least")) {
        Some(note) => format!("{found}\n{}", sentence(&note, columns)),
        None => found,
    }
}

/// Counts the events that follow those shown.
async fn total(
    shown: usize,
    mut rest: impl Stream<Item = Result<EventInfo, EventsError>> + Unpin,
) -> Result<Total, EventsError> {
    let (mut total, until) = (shown, Instant::now() + COUNTING);
    while rest.try_next().await?.is_some() {
        total += 1;
        if Instant::now() > until {
            return Ok(Total::MoreThan(total));
        }
    }
    Ok(Total::Exactly(total))
}
