//! `topology events list`: lists events by their due time, the next one first.

use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use hatchery::{EventInfo, Events, EventsError, Topology};
use hatchery_admin::{Unlisted, status::not_listed, text::count};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    server::Server,
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
pub(crate) struct Args {
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

/// The answer of a server.
#[derive(Deserialize)]
struct Served {
    events: Vec<EventView>,
    total: Option<usize>,
    more_than: Option<usize>,
    unlisted: Option<Vec<Unlisted>>,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    if let Some(server) = Server::named(common)? {
        return by_server(&server, args, output).await;
    }
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
    let mut list: Vec<EventView> = Vec::new();
    while list.len() < limit {
        let Some(event) = found.try_next().await? else { break };
        let event = view(&event, topology);
        if output.format == Format::Ndjson {
            output.json(&event)?;
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
    show(&list, &total, unlisted, output)?;
    paused::note(common, topology, &list, output).await;
    Ok(Exit::Done)
}

async fn by_server(server: &Server, args: &Args, output: Output) -> anyhow::Result<Exit> {
    Server::refuse(&[("--limit above 1000", args.limit > 1_000)])?;
    let mut query = args.filters.query();
    query.extend([("limit", Some(args.limit.to_string())), ("count", Some("true".to_owned()))]);
    let Served { events, total, more_than, unlisted } = server.find("/v1/events", &query).await?;
    if output.format == Format::Ndjson {
        events.iter().try_for_each(|event| output.json(event))?;
    }
    let total = match total {
        Some(total) => Total::Exactly(total),
        None => Total::MoreThan(more_than.unwrap_or(events.len())),
    };
    show(&events, &total, unlisted, output)?;
    paused::note_of(server, &events, output).await;
    Ok(Exit::Done)
}

/// Shows the list, unless its lines were written before, and how many events there are.
fn show(list: &[EventView], total: &Total, unlisted: Option<Vec<Unlisted>>, output: Output) -> anyhow::Result<()> {
    match output.format {
        Format::Text => output.print(&screen(list, unlisted.as_deref(), Timestamp::now(), Output::columns()))?,
        Format::Json => {
            let (more, total) = match *total {
                Total::Exactly(total) => (total > list.len(), Some(total)),
                Total::MoreThan(_) => (true, None),
            };
            return Ok(output.json(&Answer { events: list.to_vec(), more, total, unlisted })?);
        }
        Format::Ndjson => {}
    }
    let shown = list.len();
    match *total {
        Total::Exactly(total) if total > shown => {
            output.note(&format!("The first {shown} of {total} are shown. --limit N shows more."));
        }
        Total::Exactly(0) => {}
        Total::Exactly(total) => output.note(&format!("{}.", count(total, "event"))),
        Total::MoreThan(counted) => {
            output.note(&format!("The first {shown} of more than {counted} are shown. --limit N shows more."));
        }
    }
    Ok(())
}

/// Returns the list, and below it how many messages it cannot have.
pub(super) fn screen(list: &[EventView], unlisted: Option<&[Unlisted]>, now: Timestamp, columns: usize) -> String {
    let found = match list {
        [] => "Nothing is found.\n".to_owned(),
        list => table::table(list, true, now, columns),
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
