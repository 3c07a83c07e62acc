//! `topology dead-letter list`: shows why letters are there, grouped by the reason, or one by one.

use std::fmt::Write as _;

use hatchery::internals::operate::{DeadLetters, Group, Groups, Letter, LetterQueue, Standing};
use serde_json::{Value, json};

use super::{
    connected::{explained, patiently, warn, with_letters},
    view::{cut, letters, time, view},
    which::Filters,
};
use crate::{
    args::Common,
    exit::Exit,
    output::{DIM, Format, Output},
};
use hatchery::internals::time::millis_text;

/// List dead letters, grouped by the reason of their failure
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology dead-letter list
  topology dead-letter list --type mail --since \"2h ago\"
  topology dead-letter list --events --reason timeout
  topology dead-letter list --events -o ndjson | jq -r .id
  topology dead-letter list --unrouted

Reasons that differ only in long numbers and ids are one group. The list reads
every letter and changes nothing, the order of the letters included. Only one
`topology dead-letter` reads a queue at a time; another one waits (--wait).

Exit 7: another one still reads the queue after the wait.")]
pub(super) struct Args {
    #[command(flatten)]
    filters: Filters,

    /// List the letters one by one, the oldest first
    #[arg(long)]
    events: bool,

    /// The largest number of letters to list; -o ndjson lists all of them
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(requires = "events")]
    limit: u32,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    with_letters(common, &args.filters, output, async |letters, queues| list(letters, queues, args, output).await).await
}

async fn list(all: &DeadLetters, queues: &[LetterQueue], args: &Args, output: Output) -> anyhow::Result<Exit> {
    let mut list =
        List { args, output, groups: Groups::default(), events: Vec::new(), found: 0, obsolete: 0, unwritten: None };
    let (mut unknown, mut read): (Option<String>, Vec<Value>) = (None, Vec::new());
    let spinner = output.spinner();
    for queue in queues {
        let each = |letter: Letter, standing: Standing| {
            list.add(&letter, &standing, queue);
            spinner.set_message(format!("{} read", letters(list.found)));
        };
        let selection = args.filters.selection();
        let seen =
            patiently(&args.filters, output, async |patience| all.read(queue, &selection, patience, each).await).await;
        let seen = seen.map_err(|error| explained(error, queue))?;
        warn(&seen, queue, output);
        let held = seen.ready.saturating_sub(seen.read);
        read.push(json!({
            "queue": queue.name, "letters": seen.read, "held_by_others": held, "consumers": seen.consumers,
        }));
        unknown = unknown.or_else(|| seen.unknown.map(|error| error.to_string()));
    }
    spinner.finish_and_clear();
    if let Some(error) = &unknown {
        output.warn(&format!("{error}. Which letters are obsolete is not known"));
    }
    list.end(&read, unknown.is_none())
}

/// The content of the list.
struct List<'a> {
    args: &'a Args,
    output: Output,
    groups: Groups,
    /// The first letters, as the format shows them.
    events: Vec<Value>,
    found: u64,
    obsolete: u64,
    unwritten: Option<std::io::Error>,
}

impl List<'_> {
    fn add(&mut self, letter: &Letter, standing: &Standing, queue: &LetterQueue) {
        self.found += 1;
        self.obsolete += u64::from(standing.is_obsolete());
        if !self.args.events {
            self.groups.add(letter, standing);
        } else if self.output.format == Format::Ndjson {
            if self.unwritten.is_none() {
                self.unwritten = self.output.json(&view(letter, standing, queue)).err();
            }
        } else if self.events.len() < usize::try_from(self.args.limit).unwrap_or(usize::MAX) {
            self.events.push(view(letter, standing, queue));
        }
    }

    fn end(self, queues: &[Value], is_known: bool) -> anyhow::Result<Exit> {
        let Self { args, output, groups, events, found, obsolete, unwritten } = self;
        if let Some(error) = unwritten {
            return Err(error.into());
        }
        let groups = groups.largest_first();
        match output.format {
            Format::Ndjson => groups.iter().try_for_each(|group| output.json(&group_view(group)))?,
            Format::Json if args.events => {
                let more = found > u64::try_from(events.len())?;
                output.json(&json!({ "queues": queues, "found": found, "events": events, "more": more }))?;
            }
            Format::Json => {
                let groups: Vec<Value> = groups.iter().map(group_view).collect();
                let obsolete = is_known.then_some(obsolete);
                output.json(&json!({ "queues": queues, "found": found, "obsolete": obsolete, "groups": groups }))?;
            }
            Format::Text if found == 0 => output.print("No letters are found.\n")?,
            Format::Text => {
                let width = Output::columns();
                let body = if args.events { event_lines(&events, width) } else { group_lines(&groups, width) };
                let sum = sum(found, groups.len(), obsolete, events.len());
                output.print(&format!("{body}{sum}"))?;
            }
        }
        Ok(Exit::Done)
    }
}

fn group_view(group: &Group) -> Value {
    json!({
        "failure": group.reason,
        "count": group.count,
        "obsolete": group.obsolete,
        "first_failed_at": group.first.map(millis_text),
        "failed_at": group.last.map(millis_text),
        "types": group.types,
        "example": group.example,
    })
}

/// Returns two lines for each group: the count and the reason, and below them what helps to find the letters.
fn group_lines(groups: &[Group], width: usize) -> String {
    let counts = groups.iter().map(|group| group.count.to_string().len()).max().unwrap_or(0);
    let mut text = String::new();
    for group in groups {
        let types = group.types.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let reason = cut(&group.reason, width.saturating_sub(counts + 2));
        let of = format!("{types}  {} to {}", time(group.first), time(group.last));
        let of = cut(&of, width.saturating_sub(counts + 2));
        let _ = writeln!(text, "{:>counts$}  {reason}", group.count);
        let _ = writeln!(text, "{:counts$}  {DIM}{of}{DIM:#}", "");
        if let Some(example) = &group.example {
            let example = cut(&format!("e.g. {example}"), width.saturating_sub(counts + 2));
            let _ = writeln!(text, "{:counts$}  {DIM}{example}{DIM:#}", "");
        }
    }
    text
}

/// Returns two lines for each letter, because the id alone takes half a line.
fn event_lines(events: &[Value], width: usize) -> String {
    let mut text = String::new();
    for event in events {
        let said = |name: &str| event[name].as_str().unwrap_or("-").to_owned();
        let failed = said("failed_at");
        let reference = event["reference"].as_str().map(|reference| format!("  {reference}")).unwrap_or_default();
        let head = format!("{}  {}  {failed}{reference}", said("id"), said("type"));
        let state = said("state");
        let why = if matches!(state.as_str(), "obsolete" | "unreadable") {
            format!("{state}: {}; {}", said("why"), said("failure"))
        } else {
            format!("attempts {}: {}", event["attempts"], said("failure"))
        };
        let _ = writeln!(text, "{}", cut(&head, width));
        let _ = writeln!(text, "    {DIM}{}{DIM:#}", cut(&why, width.saturating_sub(4)));
    }
    text
}

fn sum(found: u64, groups: usize, obsolete: u64, shown: usize) -> String {
    let mut text = match (groups, shown) {
        (0, shown) if u64::try_from(shown).is_ok_and(|shown| shown < found) => {
            format!("{}, of which {shown} are shown. --limit N shows more.\n", letters(found))
        }
        (0, _) => format!("{}.\n", letters(found)),
        (1, _) => format!("{}, 1 reason.\n", letters(found)),
        (groups, _) => format!("{}, {groups} reasons.\n", letters(found)),
    };
    if obsolete > 0 {
        let are = if obsolete == 1 { "1 letter is".to_owned() } else { format!("{obsolete} letters are") };
        let _ = writeln!(
            text,
            "{are} obsolete: the event has run, was cancelled or was replaced since.\n\
             `topology dead-letter discard --obsolete` clears them."
        );
    }
    text
}
