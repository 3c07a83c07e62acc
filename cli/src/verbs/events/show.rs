//! `topology events show`: shows all that Redis knows of one reference, or of one event.

use std::fmt::Write as _;

use hatchery::{EventInfo, EventSelector, Events, State, internals::register::DedupSlot};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{answer::view, connected::with_events, table, which::Filters};
use crate::{
    args::{Common, UsageError},
    exit::{Ended, Exit},
    load,
    output::{Format, Output},
};

/// Show all that Redis knows of a reference, or of an event
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true).args(["reference", "id"])))]
#[command(after_help = "\
Examples:
  topology events show --type hr-import --reference 1234
  topology events show --type mail --id 0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11
  topology events show --type hr-import --reference 1234 -o json

Running events come first, then waiting events by due time. Handled and
cancelled events are counted, and shown with --all or -o json for as long as
Redis remembers them. Those that compete with no other event are found only by
their id.

An event competes with the other events of its reference in the same slot: i
immediate, d:TIME of one date, d all dated, f served by one run, q:TIME put off
to a time. e:ID competes with no other event.

Exit 1: Redis knows no such event, or the broker reports that the topology was
never applied.")]
pub(super) struct Args {
    /// The event's type; may be left out if only one type of the file uses Redis
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

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let topology = load::topology(common, output)?;
    let filters = Filters::naming(args.event_type.clone(), args.reference.clone(), args.id.clone());
    let which = filters.named(&topology)?;
    let which = which.ok_or_else(|| UsageError("name the event with --reference or --id".to_owned()))?;
    with_events(common, topology, output, async |events| show(events, args, &which, &filters, output).await).await
}

async fn show(
    events: &Events,
    args: &Args,
    which: &EventSelector,
    filters: &Filters,
    output: Output,
) -> anyhow::Result<Exit> {
    let mut known = events.show(which).await?;
    known.sort_by_key(|event| (is_past(event), !event.running, event.due));
    match output.format {
        Format::Text => {}
        Format::Json => output.json(&json!({ "events": known.iter().map(view).collect::<Vec<Value>>() }))?,
        Format::Ndjson => known.iter().try_for_each(|event| output.json(&view(event)))?,
    }
    if known.is_empty() {
        return Err(Ended::new(Exit::Error, format!("nothing is known of {}{}", filters.name(), hint(args))).into());
    }
    if output.is_text() {
        let now = Timestamp::now();
        let open = known.iter().filter(|event| !is_past(event)).count();
        let shown = if args.all || open == 0 { known.len() } else { open };
        let blocks: Vec<String> = known[..shown].iter().map(|event| block(event, now)).collect();
        output.print(&blocks.join("\n"))?;
        let left = known.len() - shown;
        if left > 0 {
            output.note(&format!("{left} more handled or cancelled: --all shows them."));
        }
    }
    Ok(Exit::Done)
}

/// Returns whether the event neither waits nor runs any more.
const fn is_past(event: &EventInfo) -> bool {
    event.copy.is_none() && !event.running
}

/// Returns a hint for a search by reference: a handled or cancelled event that competes with no other is found only by
/// its id.
const fn hint(args: &Args) -> &'static str {
    if args.id.is_none() {
        "; a handled or cancelled event that competes with no other is found only by --id"
    } else {
        ""
    }
}

fn block(event: &EventInfo, now: Timestamp) -> String {
    let style = table::style(event.state);
    let also = match event.state {
        state if !event.running || state == State::Running => "",
        State::Cancelled => ", and its run goes on",
        _ => ", and an older one runs",
    };
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<10} {}", table::cut(value, 500));
    };
    line("type", event.event_type.as_str());
    if let Some(reference) = &event.reference {
        line("reference", reference.as_str());
    }
    if let Some(id) = &event.id {
        line("id", id);
    }
    line("slot", &slot(&event.slot));
    if let Some(due) = event.due {
        line("due", &format!("{due} ({})", table::relative(now, due, 2)));
    }
    if let Some(copy) = &event.copy {
        line("attempts", &event.attempts.to_string());
        let version = Some(copy.version).filter(|version| *version > 0);
        let version = version.map(|version| format!("version {version}, ")).unwrap_or_default();
        line("copy", &format!("{version}generation {}", copy.generation));
    }
    if let Some(reason) = &event.reason {
        line("reason", reason);
    }
    let _ = writeln!(text, "{:<10} {style}{}{style:#}{also}", "state", event.state);
    text
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
