//! `topology events show`: shows where an event is, why, what happened to it before, and when it runs.

use std::fmt::Write as _;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hatchery::{
    EventInfo, EventSelector, Events, EventsError, Topology,
    internals::{reason::failed_at, register::DedupSlot},
};
use hatchery_admin::{
    location::{Placed, placed},
    text::{quoted, relative},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{answer::EventView, connection::with_events, filters::Filters, paused, table};
use crate::{
    args::{Common, UsageError},
    connect,
    exit::{Ended, Exit},
    load,
    output::{Format, Output},
    server::{Declined, Server, segment},
    text::{LEAST, cut, folded},
};

/// Show where an event is, why, and when it runs
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true).args(["event", "reference", "id"])))]
#[command(after_long_help = "\
Examples:
  topology events show 0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11
  topology events show --reference 1234
  topology events show --type hr-import --reference 1234 -o json

Running events come first, then waiting events by due time. Handled and
cancelled events are counted, and shown with --all or -o json for as long as
Redis remembers them. Those that compete with no other event are found only by
their id.

`where` is the queue in which the event's newest copy should be, as its state in
Redis tells, and what the numbers of messages say to that: RabbitMQ cannot be
asked for one message. An event that waits for its time is in a hatchery or in
the ladder; which one depends on when it was published. `command` looks for the
event elsewhere, or publishes it again if no queue can have it.

The state `started` is that of an event whose run began and has not ended, and
for which no worker holds the lease.

An event competes with the other events of its reference in the same slot: i
immediate, d:TIME of one date, d all dated, f served by one run, q:TIME put off
to a time. e:ID competes with no other event.

Exit 1: Redis knows no such event, or the broker reports that the topology was
never applied.")]
pub(crate) struct Args {
    /// The event's id
    #[arg(value_name = "ID", conflicts_with = "id")]
    event: Option<String>,

    /// The event's type [default: all types that use Redis]
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,

    /// The object that the event is about
    #[arg(long)]
    reference: Option<String>,

    /// The event's id; with --reference as well it is found faster
    #[arg(long)]
    id: Option<String>,

    /// Show handled and cancelled events too, even if others wait
    #[arg(long)]
    all: bool,
}

/// How many types are searched at a time for an event whose type is not given. The calls share one connection.
const TYPES_AT_A_TIME: usize = 32;

/// The answer of `topology events show`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The events: running ones, waiting ones by due time, and those that have ended.
    events: Vec<Placed>,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    if let Some(server) = Server::named(common)? {
        let known = by_server(&server, args).await?;
        let open = tell(args, known, output)?;
        paused::note_of(&server, &open, output).await;
        return Ok(Exit::Done);
    }
    let topology = load::topology(common, output)?;
    let id = args.event.clone().or_else(|| args.id.clone());
    let of_types: Vec<String> = match &args.event_type {
        Some(event_type) => vec![event_type.clone()],
        None => topology.types.iter().filter(|(_, spec)| spec.register).map(|(name, _)| name.to_string()).collect(),
    };
    if of_types.is_empty() {
        return Err(UsageError("no type of the file uses Redis".to_owned()).into());
    }
    let mut asked = Vec::new();
    for event_type in of_types {
        let filters = Filters::naming(Some(event_type), args.reference.clone(), id.clone());
        asked.extend(filters.named(&[])?);
    }
    let file = topology.clone();
    with_events(common, topology, output, async |events| show(common, events, args, &asked, &file, output).await).await
}

async fn show(
    common: &Common,
    events: &Events,
    args: &Args,
    asked: &[EventSelector],
    topology: &Topology,
    output: Output,
) -> anyhow::Result<Exit> {
    let admin = connect::admin(common, topology.clone(), "topology events")?;
    let known = known(events, asked).await?;
    let placed = placed(events, &known, || async { anyhow::Ok(admin.queue_counts(&known).await) }).await?;
    let open = tell(args, placed, output)?;
    paused::note(common, topology, &open, output).await;
    Ok(Exit::Done)
}

/// Asks a server, which knows the types of the file.
async fn by_server(server: &Server, args: &Args) -> anyhow::Result<Vec<Placed>> {
    #[derive(Deserialize)]
    struct Known {
        events: Vec<Placed>,
    }
    let types = match &args.event_type {
        Some(event_type) => vec![event_type.clone()],
        None => server.registered().await?,
    };
    let id = args.event.clone().or_else(|| args.id.clone());
    let query = [("reference", args.reference.clone()), ("id", id), ("place", Some("true".to_owned()))];
    let mut all = Vec::new();
    for event_type in types {
        let found: anyhow::Result<Known> = server.find(&format!("/v1/events/{}", segment(&event_type)), &query).await;
        match found {
            Ok(Known { events }) => all.extend(events),
            // Nothing is known of such an event, or there is no such type.
            Err(error) if error.downcast_ref().is_some_and(Declined::is_unknown) => {
                if args.event_type.is_some() && !server.registered().await?.contains(&event_type) {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Shows the events. Returns those that wait or run.
fn tell(args: &Args, mut known: Vec<Placed>, output: Output) -> anyhow::Result<Vec<EventView>> {
    known.sort_by_cached_key(|placed| (placed.is_past(), !placed.event.running, placed.event.due.clone()));
    let open = known.iter().filter(|placed| !placed.is_past()).count();
    let shown = if args.all || open == 0 || !output.is_text() { known.len() } else { open };
    let left = known.split_off(shown).len();
    let blocks: Vec<String> = match output.format {
        Format::Text => known.iter().map(|placed| block(placed, Timestamp::now(), Output::columns())).collect(),
        Format::Json | Format::Ndjson => Vec::new(),
    };
    let views = known.iter().take(open).map(|placed| placed.event.clone()).collect();
    match output.format {
        Format::Text => {}
        Format::Ndjson => known.iter().try_for_each(|placed| output.json(placed))?,
        Format::Json => output.json(&Answer { events: std::mem::take(&mut known) })?,
    }
    if shown == 0 {
        let name = Filters::naming(None, args.reference.clone(), args.event.clone().or_else(|| args.id.clone())).name();
        let unknown = match (&args.event, &args.id) {
            (None, None) => format!("nothing of {name} waits or runs, as far as Redis knows"),
            _ => format!("nothing is known of {name}"),
        };
        return Err(Ended::new(Exit::Error, format!("{unknown}; {}", hint(args))).into());
    }
    if output.is_text() {
        output.print(&blocks.join("\n"))?;
        if left > 0 {
            output.note(&format!("{left} more handled or cancelled: --all shows them."));
        }
    }
    Ok(views)
}

/// Returns what Redis knows of events.
pub(crate) async fn known(events: &Events, asked: &[EventSelector]) -> Result<Vec<EventInfo>, EventsError> {
    stream::iter(asked).map(|which| events.show(which)).buffered(TYPES_AT_A_TIME).try_concat().await
}

/// The columns before the values of an event.
const NAMES: usize = 11;

/// Returns the advice if the register knows no such event. A handled or cancelled event that competes with no other
/// is found only by its id, and messages of other programs are not in the register at all.
fn hint(args: &Args) -> String {
    let which = match (&args.event, &args.id, &args.reference) {
        (Some(id), ..) | (None, Some(id), _) => quoted(id),
        (None, None, Some(reference)) => {
            let which = format!("--reference {}", quoted(reference));
            return format!(
                "one that has ended and competed with no other is found by its id alone, which `publish` and `cancel` print: \
                 `topology events show ID`. A message that the register does not know may be found by `topology dead-letter show \
                 {which}`, also with --unrouted. Unless the file has `life-cycle: off`, `topology trace {which}` tells what became of it"
            );
        }
        (None, None, None) => String::new(),
    };
    format!(
        "a message that the register does not know may be found by `topology dead-letter show {which}`, also with --unrouted"
    )
}

/// Returns the screen of an event, with its place in words.
pub(super) fn block(placed: &Placed, now: Timestamp, columns: usize) -> String {
    let event = &placed.event;
    let state = event.state.as_deref().unwrap_or_default();
    let style = table::style(if state == "started" { "running" } else { state });
    let also = match state {
        "running" | "started" => "",
        _ if !event.running => "",
        "cancelled" => ", and its run has not ended",
        _ => ", and an older one runs",
    };
    let mut text = String::new();
    let line = |text: &mut String, name: &str, value: &str| {
        let value = cut(value, 1_000);
        for (n, part) in folded(&value, columns.max(LEAST) - NAMES).iter().enumerate() {
            let name = if n == 0 { name } else { "" };
            let _ = writeln!(text, "{name:<10} {part}");
        }
    };
    line(&mut text, "type", &event.event_type);
    if let Some(reference) = &event.reference {
        line(&mut text, "reference", reference);
    }
    if let Some(id) = &event.id {
        line(&mut text, "id", id);
    }
    if let Some(schedule) = &event.schedule {
        line(&mut text, "schedule", &schedule.text());
    }
    // The colour is no part of the value, of which characters that act on a terminal are replaced.
    let _ = writeln!(text, "{:<10} {style}{}{style:#}{also}", "state", state);
    if let Some(place) = &placed.place {
        line(&mut text, "where", place);
    }
    for command in &placed.commands {
        line(&mut text, "command", command);
    }
    if let Some(due) = event.due.as_ref().and_then(|due| due.parse::<Timestamp>().ok()) {
        line(&mut text, "due", &format!("{due} ({})", relative(now, due, 2)));
    }
    if event.generation.is_some() {
        line(&mut text, "attempts", &attempts(placed, now));
    }
    if let Some(starts) = starts(placed) {
        line(&mut text, "starts", &starts);
    }
    if let Some(reason) = &event.reason {
        line(&mut text, "reason", reason);
    }
    if let Some(slot) = event.slot.as_ref().and_then(|slot| slot.parse().ok()) {
        line(&mut text, "slot", &explained(&slot));
    }
    if let Some(generation) = event.generation {
        let version = event.version.map(|version| format!("version {version}, ")).unwrap_or_default();
        line(&mut text, "copy", &format!("{version}generation {generation}"));
    }
    text
}

/// Returns how often the event failed, of how often it may, and when it failed last.
fn attempts(placed: &Placed, now: Timestamp) -> String {
    // The file has its type, and gives it as many attempts as it needs.
    if placed.max_attempts.is_none() && placed.place.is_some() {
        return "not counted, because of `on-failure: block`".to_owned();
    }
    let failed = placed.event.attempts.unwrap_or_default();
    if failed == 0 {
        return "0 failed".to_owned();
    }
    let most = placed.max_attempts.map(|most| format!(" of {most}"));
    let failed_at = placed.event.reason.as_deref().and_then(failed_at);
    let last = failed_at.map(|time| format!(", the last one {}", relative(now, time, 2)));
    format!("{failed}{} failed{}", most.unwrap_or_default(), last.unwrap_or_default())
}

/// Returns how often the event was started without an end. `None` if that tells nothing that its state does not tell.
fn starts(placed: &Placed) -> Option<String> {
    match (placed.starts, placed.event.state.as_deref()) {
        (0, _) | (1, Some("running")) => None,
        (starts, Some("started")) => Some(format!(
            "{starts}, none of which has ended: the worker was killed or is frozen, or does not reach Redis"
        )),
        (starts, Some("running")) => {
            Some(format!("{starts}, of which the first {} have not ended: a worker was killed", starts - 1))
        }
        (starts, _) => Some(format!("{starts}, none of which has ended: a worker was killed")),
    }
}

/// Returns a slot with an explanation.
fn explained(slot: &DedupSlot) -> String {
    let date = |ms: &i64| Timestamp::from_millisecond(*ms).map(|time| time.to_string()).unwrap_or_default();
    match slot {
        DedupSlot::Immediate => "i: only the newest immediate event runs".to_owned(),
        DedupSlot::First => "f: one run serves all immediate events before it".to_owned(),
        DedupSlot::Dated => "d: only the newest dated event runs".to_owned(),
        DedupSlot::DatedAt(ms) => format!("{slot}: only the newest event for {} runs", date(ms)),
        DedupSlot::RequeuedAt(ms) => format!("{slot}: put off to {}", date(ms)),
        DedupSlot::Event(_) => "e: competes with no other event".to_owned(),
    }
}
