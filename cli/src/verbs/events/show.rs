//! `topology events show`: shows where an event is, why, what happened to it before, and when it runs.

use std::{fmt::Write as _, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hatchery::{
    EventInfo, EventSelector, Events, EventsError, State, Topology,
    internals::{reason::failed_at, register::DedupSlot, spec::TypeSpec},
};
use hatchery_admin::{
    event_view::OfSchedule,
    text::{quoted, relative},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::sleep;

use super::{
    answer::{EventView, view},
    connection::with_events,
    counts::QueueCounts,
    filters::Filters,
    location::{self, EventLocation},
    paused, table,
};
use crate::{
    args::{Common, UsageError},
    exit::{Ended, Exit},
    load,
    output::{Format, Output},
    text::{LEAST, cut, folded},
};

/// How long the second look waits. The management API's figures are up to five seconds old.
const APART: Duration = Duration::from_secs(6);

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
pub(super) struct Args {
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

/// An event and where it is.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Placed {
    #[serde(flatten)]
    event: EventView,
    /// The queues in one of which the event is, as far as is known. Empty if it has ended, or if none of them can have it.
    queues: Vec<String>,
    /// The place of the event in words; `null` if the file does not have its type.
    #[serde(rename = "where")]
    place: Option<String>,
    /// Commands that tell more of the event's place, or publish the event again.
    commands: Vec<String>,
    /// Whether a worker holds the lease of its run; `null` if that was not found out.
    leased: Option<bool>,
    /// The number of starts of the event since it was last settled or given back.
    starts: u32,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
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
    let mut known = known(events, asked).await?;
    known.sort_by_key(|event| (is_past(event), !event.running, event.due));
    let now = Timestamp::now();
    let open = known.iter().filter(|event| !is_past(event)).count();
    let shown = if args.all || open == 0 || !output.is_text() { known.len() } else { open };
    let placed = placed(common, events, &known[..shown], topology, now).await?;
    match output.format {
        Format::Text => {}
        Format::Json => output.json(&Answer { events: placed.iter().map(|placed| placed.view(topology)).collect() })?,
        Format::Ndjson => placed.iter().try_for_each(|placed| output.json(&placed.view(topology)))?,
    }
    if known.is_empty() {
        let name = Filters::naming(None, args.reference.clone(), args.event.clone().or_else(|| args.id.clone())).name();
        let unknown = match (&args.event, &args.id) {
            (None, None) => format!("nothing of {name} waits or runs, as far as Redis knows"),
            _ => format!("nothing is known of {name}"),
        };
        return Err(Ended::new(Exit::Error, format!("{unknown}; {}", hint(args))).into());
    }
    if output.is_text() {
        let blocks: Vec<String> = placed
            .iter()
            .map(|Found { event, place }| block(event, topology, place.as_ref(), now, Output::columns()))
            .collect();
        output.print(&blocks.join("\n"))?;
        let left = known.len() - shown;
        if left > 0 {
            output.note(&format!("{left} more handled or cancelled: --all shows them."));
        }
        let open: Vec<EventView> = known[..open.min(shown)].iter().map(|event| view(event, topology)).collect();
        paused::note(common, topology, &open, output).await;
    }
    Ok(Exit::Done)
}

/// Returns what Redis knows of events.
pub(crate) async fn known(events: &Events, asked: &[EventSelector]) -> Result<Vec<EventInfo>, EventsError> {
    stream::iter(asked).map(|which| events.show(which)).buffered(TYPES_AT_A_TIME).try_concat().await
}

/// Returns what Redis knows of events, with their states and their places in words.
pub(crate) async fn standing(
    common: &Common,
    events: &Events,
    asked: &[EventSelector],
    topology: &Topology,
) -> anyhow::Result<Vec<(EventInfo, &'static str, Option<EventLocation>)>> {
    let known = known(events, asked).await?;
    let placed = placed(common, events, &known, topology, Timestamp::now()).await?;
    let standing = placed.into_iter().map(|Found { event, place }| (event.clone(), state(event), place));
    Ok(standing.collect())
}

/// The columns before the values of an event.
const NAMES: usize = 11;

/// An event and its place.
struct Found<'a> {
    event: &'a EventInfo,
    /// `None` if the file does not have its type.
    place: Option<EventLocation>,
}

impl Found<'_> {
    /// Returns the event as JSON.
    fn view(&self, topology: &Topology) -> Placed {
        let Self { event, place } = self;
        let place = place.as_ref();
        let mut shown = view(event, topology);
        shown.state = Some(state(event).into());
        Placed {
            event: shown,
            queues: place.map(|place| place.queues.clone()).unwrap_or_default(),
            place: place.map(|place| place.text.clone()),
            commands: place.map(|place| place.commands.clone()).unwrap_or_default(),
            leased: event.leased,
            starts: event.starts,
        }
    }
}

/// Looks at the broker's queues, and returns the events with their places.
async fn placed<'a>(
    common: &Common,
    events: &Events,
    known: &'a [EventInfo],
    topology: &Topology,
    now: Timestamp,
) -> anyhow::Result<Vec<Found<'a>>> {
    let mut places = Vec::new();
    // Between two queues an event is in neither for a moment. So it counts as removed only if two looks say so.
    for look in 0..2 {
        if look > 0 {
            sleep(APART).await;
        }
        let seen =
            if known.is_empty() { QueueCounts::default() } else { QueueCounts::of(common, topology, known).await? };
        places = known.iter().map(|event| location::locate(event, topology, &seen, now)).collect();
        if !places.iter().flatten().any(|place: &EventLocation| place.is_removed) {
            break;
        }
    }
    let mut all = Vec::new();
    for (event, mut place) in known.iter().zip(places) {
        if let Some(place) = place.as_mut().filter(|place| place.is_removed) {
            let not_kept = events.not_kept(std::slice::from_ref(event), None).await?;
            place.remedy(event, not_kept.iter().all(Option::is_none), now);
        }
        all.push(Found { event, place });
    }
    Ok(all)
}

/// Returns the state of an event. An event that was started and has no lease may have no worker any more.
fn state(event: &EventInfo) -> &'static str {
    match (event.state, event.leased) {
        (State::Running, Some(false)) => "started",
        (state, _) => state.as_str(),
    }
}

/// Returns whether the event neither waits nor runs any more.
const fn is_past(event: &EventInfo) -> bool {
    event.copy.is_none() && !event.running
}

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
pub(super) fn block(
    event: &EventInfo,
    topology: &Topology,
    place: Option<&EventLocation>,
    now: Timestamp,
    columns: usize,
) -> String {
    let style = table::style(event.state.as_str());
    let also = match event.state {
        state if !event.running || state == State::Running => "",
        State::Cancelled => ", and its run has not ended",
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
    line(&mut text, "type", event.event_type.as_str());
    if let Some(reference) = &event.reference {
        line(&mut text, "reference", reference.as_str());
    }
    if let Some(id) = &event.id {
        line(&mut text, "id", id);
    }
    if let Some(schedule) = OfSchedule::of(event, topology) {
        line(&mut text, "schedule", &schedule.text());
    }
    // The colour is no part of the value, of which characters that act on a terminal are replaced.
    let _ = writeln!(text, "{:<10} {style}{}{style:#}{also}", "state", state(event));
    if let Some(place) = place {
        line(&mut text, "where", &place.text);
        for command in &place.commands {
            line(&mut text, "command", command);
        }
    }
    if let Some(due) = event.due {
        line(&mut text, "due", &format!("{due} ({})", relative(now, due, 2)));
    }
    if event.copy.is_some() {
        line(&mut text, "attempts", &attempts(event, topology, now));
    }
    if let Some(starts) = starts(event) {
        line(&mut text, "starts", &starts);
    }
    if let Some(reason) = &event.reason {
        line(&mut text, "reason", reason);
    }
    line(&mut text, "slot", &slot(&event.slot));
    if let Some(copy) = &event.copy {
        let version = Some(copy.version).filter(|version| *version > 0);
        let version = version.map(|version| format!("version {version}, ")).unwrap_or_default();
        line(&mut text, "copy", &format!("{version}generation {}", copy.generation));
    }
    text
}

/// Returns how often the event failed, of how often it may, and when it failed last.
fn attempts(event: &EventInfo, topology: &Topology, now: Timestamp) -> String {
    let spec = topology.types.get(&event.event_type);
    if spec.is_some_and(TypeSpec::keeps_order) {
        return "not counted, because of `on-failure: block`".to_owned();
    }
    if event.attempts == 0 {
        return "0 failed".to_owned();
    }
    let most = spec.map(|spec| format!(" of {}", spec.retry.max_attempts));
    let failed_at = event.reason.as_deref().and_then(failed_at);
    let last = failed_at.map(|time| format!(", the last one {}", relative(now, time, 2)));
    format!("{}{} failed{}", event.attempts, most.unwrap_or_default(), last.unwrap_or_default())
}

/// Returns how often the event was started without an end. `None` if that tells nothing that its state does not tell.
fn starts(event: &EventInfo) -> Option<String> {
    match (event.starts, event.state, event.leased) {
        (0, ..) | (1, State::Running, Some(true) | None) => None,
        (starts, State::Running, Some(false)) => Some(format!(
            "{starts}, none of which has ended: the worker was killed or is frozen, or does not reach Redis"
        )),
        (starts, State::Running, _) => {
            Some(format!("{starts}, of which the first {} have not ended: a worker was killed", starts - 1))
        }
        (starts, ..) => Some(format!("{starts}, none of which has ended: a worker was killed")),
    }
}

/// Returns a slot with an explanation.
fn slot(slot: &DedupSlot) -> String {
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
