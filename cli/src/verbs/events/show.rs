//! `topology events show`: shows where an event is, why, what happened to it before, and when it runs.

use std::fmt::Write as _;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hatchery::{
    EventInfo, EventSelector, Events, State, Topology,
    internals::{reason::failed_at, register::DedupSlot, whereabouts::Whereabouts},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    answer::{EventView, view},
    connected::with_events,
    scheduled::OfSchedule,
    table,
    which::Filters,
};
use crate::{
    args::{Common, UsageError},
    exit::{Ended, Exit},
    folded::{LEAST, folded},
    load,
    output::{Format, Output},
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

`where` is the queue in which the event's newest copy is, as its state in Redis
tells. An event that waits for its time is in a hatchery or in the ladder; which
one depends on when it was published.

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
#[schemars(deny_unknown_fields)]
pub(crate) struct Answer {
    /// The events: running ones, waiting ones by due time, and those that have ended.
    events: Vec<Placed>,
}

/// An event and where it is.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Placed {
    #[serde(flatten)]
    event: EventView,
    /// The queue in which the event is, or the queues in one of which it is.
    queues: Vec<String>,
    /// The schedule that it belongs to; `null` if it belongs to none of the file.
    schedule: Option<OfSchedule>,
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
        asked.extend(filters.named(&topology)?);
    }
    let file = topology.clone();
    with_events(common, topology, output, async |events| show(events, args, &asked, &file, output).await).await
}

async fn show(
    events: &Events,
    args: &Args,
    asked: &[EventSelector],
    topology: &Topology,
    output: Output,
) -> anyhow::Result<Exit> {
    let each_type = stream::iter(asked).map(|which| events.show(which)).buffered(TYPES_AT_A_TIME);
    let mut known = each_type.try_concat().await?;
    known.sort_by_key(|event| (is_past(event), !event.running, event.due));
    let now = Timestamp::now();
    match output.format {
        Format::Text => {}
        Format::Json => {
            output.json(&Answer { events: known.iter().map(|event| placed(event, topology, now)).collect() })?;
        }
        Format::Ndjson => known.iter().try_for_each(|event| output.json(&placed(event, topology, now)))?,
    }
    if known.is_empty() {
        let name = Filters::naming(None, args.reference.clone(), args.event.clone().or_else(|| args.id.clone())).name();
        return Err(Ended::new(Exit::Error, format!("nothing is known of {name}{}", hint(args))).into());
    }
    if output.is_text() {
        let open = known.iter().filter(|event| !is_past(event)).count();
        let shown = if args.all || open == 0 { known.len() } else { open };
        let mut blocks = Vec::new();
        for event in &known[..shown] {
            let place = Whereabouts::of(event, topology, now);
            let place = match place {
                Some(place) => Some(place_text(events, &place).await),
                None => None,
            };
            blocks.push(block(event, topology, place.as_deref(), now, Output::columns()));
        }
        output.print(&blocks.join("\n"))?;
        let left = known.len() - shown;
        if left > 0 {
            output.note(&format!("{left} more handled or cancelled: --all shows them."));
        }
    }
    Ok(Exit::Done)
}

/// The columns before the values of an event.
const NAMES: usize = 11;

/// Returns the event as JSON, with the queue in which it is.
fn placed(event: &EventInfo, topology: &Topology, now: Timestamp) -> Placed {
    let queues = match Whereabouts::of(event, topology, now) {
        Some(Whereabouts::Due { queue } | Whereabouts::Running { queue } | Whereabouts::DeadLetter { queue }) => {
            vec![queue]
        }
        Some(Whereabouts::Delayed { queues, .. }) => queues,
        Some(Whereabouts::Ended) | None => Vec::new(),
    };
    Placed { event: view(event), queues, schedule: OfSchedule::of(event, topology) }
}

/// Returns the place in words. The length of the queue is left out if the broker does not tell it.
async fn place_text(events: &Events, place: &Whereabouts) -> String {
    let with_length = async |queue: &str| match events.ready(queue).await {
        Ok(ready) => format!("{queue} ({ready} ready)"),
        Err(_) => queue.to_owned(),
    };
    match place {
        Whereabouts::Due { queue } => format!("{}: it is due, and waits for a worker", with_length(queue).await),
        Whereabouts::Running { queue } => format!("a worker has it, from {}", with_length(queue).await),
        Whereabouts::Delayed { queues, then } => {
            format!("{}; RabbitMQ moves it to {then} when it is due", queues.join(" or "))
        }
        Whereabouts::DeadLetter { queue } => format!("{}, for people", with_length(queue).await),
        Whereabouts::Ended => "nowhere: what is still in a queue is dropped".to_owned(),
    }
}

/// Returns whether the event neither waits nor runs any more.
const fn is_past(event: &EventInfo) -> bool {
    event.copy.is_none() && !event.running
}

/// Returns a hint for a search by reference: a handled or cancelled event that competes with no other is found only by
/// its id.
const fn hint(args: &Args) -> &'static str {
    if args.id.is_none() && args.event.is_none() {
        "; a handled or cancelled event that competes with no other is found only by its id"
    } else {
        ""
    }
}

/// Returns the screen of an event, with its place in words.
pub(super) fn block(
    event: &EventInfo,
    topology: &Topology,
    place: Option<&str>,
    now: Timestamp,
    columns: usize,
) -> String {
    let style = table::style(event.state);
    let also = match event.state {
        state if !event.running || state == State::Running => "",
        State::Cancelled => ", and its run goes on",
        _ => ", and an older one runs",
    };
    let mut text = String::new();
    let line = |text: &mut String, name: &str, value: &str| {
        let value = table::cut(value, 1_000);
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
    let _ = writeln!(text, "{:<10} {style}{}{style:#}{also}", "state", event.state);
    if let Some(place) = place {
        line(&mut text, "where", place);
    }
    if let Some(due) = event.due {
        line(&mut text, "due", &format!("{due} ({})", table::relative(now, due, 2)));
    }
    if event.copy.is_some() {
        line(&mut text, "attempts", &attempts(event, topology, now));
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
    if event.attempts == 0 {
        return "0 failed".to_owned();
    }
    let most = topology.types.get(&event.event_type).map(|spec| format!(" of {}", spec.retry.max_attempts));
    let failed_at = event.reason.as_deref().and_then(failed_at);
    let last = failed_at.map(|time| format!(", the last one {}", table::relative(now, time, 2)));
    format!("{}{} failed{}", event.attempts, most.unwrap_or_default(), last.unwrap_or_default())
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
