//! `topology events show`: all that is known of one reference, or of one event.

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

/// Show all that is known of a reference, or of an event
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true).args(["reference", "id"])))]
#[command(after_help = "\
Examples:
  topology events show --type hr-import --reference 1234
  topology events show --type mail --id 0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11
  topology events show --type hr-import --reference 1234 -o json

First comes what runs, then what waits, by due time. What is handled or
cancelled is counted, and shown with --all or -o json, for as long as it is
remembered: by its id alone if it competes with nothing.

What an event competes with is its slot: i immediate ones, d:TIME those of a
date, d all dated ones, f what one run serves, q:TIME what was put off, e:ID
nothing.

Exit 1: nothing is known of it, or the broker says that the topology was never
applied.")]
pub(super) struct Args {
    /// Its type; may be left out where only one type of the file uses Redis
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,

    /// The object that it is about
    #[arg(long)]
    reference: Option<String>,

    /// The event; its reference besides makes it quicker to find
    #[arg(long)]
    id: Option<String>,

    /// Show what is handled or cancelled too, where something waits
    #[arg(long)]
    all: bool,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let topology = load::topology(common, output)?;
    let filters = Filters::naming(args.event_type.clone(), args.reference.clone(), args.id.clone());
    let which = filters.named(&topology)?;
    let which = which.ok_or_else(|| UsageError("say which one, with --reference or --id".to_owned()))?;
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

/// Whether nothing of it waits or runs.
const fn is_past(event: &EventInfo) -> bool {
    event.copy.is_none() && !event.running
}

/// What is at its end and competes with nothing is not found by its reference.
const fn hint(args: &Args) -> &'static str {
    if args.id.is_none() {
        "; what competes with nothing and was handled or cancelled is shown by its --id"
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

/// A slot, and what it means.
fn slot(slot: &DedupSlot) -> String {
    let date = |ms: &i64| Timestamp::from_millisecond(*ms).map(|time| time.to_string()).unwrap_or_default();
    match slot {
        DedupSlot::Immediate => "i: the newest immediate one counts".to_owned(),
        DedupSlot::First => "f: one run serves all immediate ones before it".to_owned(),
        DedupSlot::Dated => "d: the newest dated one counts".to_owned(),
        DedupSlot::DatedAt(ms) => format!("{slot}: the newest one of {} counts", date(ms)),
        DedupSlot::RequeuedAt(ms) => format!("{slot}: put off to {}", date(ms)),
        DedupSlot::Event(_) => "e: competes with nothing".to_owned(),
    }
}
