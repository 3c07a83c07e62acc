//! `topology dead-letter list`: shows the letters grouped by the reason of their failure, or one by one.

use std::fmt::Write as _;

use hatchery_admin::{
    dead_letters::{DeadLetters, GroupView, Groups, Letter, LetterQueue, LetterView, QueueView, Standing, view},
    text::count,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    connection::{read, with_letters},
    filters::Filters,
    served,
    view::{cut, time},
};
use crate::{
    args::Common,
    exit::{Ended, Exit},
    output::{DIM, Format, Output},
    server::Server,
    text::sentence,
};

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

Exit 1: a queue is missing. 4: a policy limits deliveries, so that a look could
delete letters. 7: another one still reads the queue after the wait.")]
pub(crate) struct Args {
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

/// The answer of `topology dead-letter list`, with `--events` or without.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Answer {
    Groups(GroupsView),
    Events(LettersView),
}

/// A line with `-o ndjson`, with `--events` or without.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Line {
    Group(GroupView),
    Event(LetterView),
}

/// The letters by the reason of their failure.
#[derive(Serialize, JsonSchema)]
pub(crate) struct GroupsView {
    /// The queues that were read.
    queues: Vec<QueueView>,
    /// The number of letters.
    found: u64,
    /// How many of them are obsolete; `null` if Redis does not tell.
    obsolete: Option<u64>,
    /// The reasons, the most frequent first.
    groups: Vec<GroupView>,
}

/// The letters one by one.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LettersView {
    /// The queues that were read.
    queues: Vec<QueueView>,
    /// The number of letters.
    found: u64,
    /// The first letters.
    events: Vec<LetterView>,
    /// Whether there are more letters than these.
    more: bool,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    if let Some(server) = Server::named(common)? {
        return by_server(&server, args, output).await;
    }
    with_letters(common, &args.filters, output, async |letters, queues| list(letters, queues, args, output).await).await
}

async fn list(all: &DeadLetters, queues: &[LetterQueue], args: &Args, output: Output) -> anyhow::Result<Exit> {
    let mut list =
        List { args, output, groups: Groups::default(), events: Vec::new(), found: 0, obsolete: 0, unwritten: None };
    let spinner = output.spinner();
    let each = |queue: &LetterQueue, letter: Letter, standing: Standing| {
        list.add(&letter, &standing, queue);
        spinner.set_message(format!("{} read", count(list.found, "letter")));
    };
    let (looked, missing) = read(all, queues, (&args.filters, &args.filters.selection()), output, each).await?;
    spinner.finish_and_clear();
    if let Some(error) = &looked.unknown {
        output.warn(&format!("{error}. Which letters are obsolete is not known"));
    }
    let exit = list.end(looked.queues(), looked.unknown.is_none())?;
    missing.map_or(Ok(exit), Err)
}

async fn by_server(server: &Server, args: &Args, output: Output) -> anyhow::Result<Exit> {
    Server::refuse(&[("--limit above 1000", args.limit > served::LISTED)])?;
    // A list of lines has no limit of its own.
    let limit = if output.format == Format::Ndjson { served::LISTED } else { args.limit };
    let found = served::find(server, &args.filters, None, limit, output).await?;
    let (of_letters, shown) = (found.found, u64::try_from(found.letters.len())?);
    let (groups, mut events) = if args.events {
        (Vec::new(), found.letters.into_iter().map(|whole| whole.letter).collect::<Vec<_>>())
    } else {
        (found.groups, Vec::new())
    };
    if output.format == Format::Ndjson {
        std::mem::take(&mut events).into_iter().try_for_each(|event| output.json(&Line::Event(event)))?;
    }
    let exit = tell(args, groups, events, (found.queues, of_letters, found.obsolete), output)?;
    if args.events && output.format == Format::Ndjson && shown < of_letters {
        let message = format!("a server lists up to {} letters, and {of_letters} are found", served::LISTED);
        return Err(Ended::new(Exit::Partly, message).into());
    }
    Ok(exit)
}

/// The content of the list.
struct List<'a> {
    args: &'a Args,
    output: Output,
    groups: Groups,
    /// The first letters, as the format shows them.
    events: Vec<LetterView>,
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
                self.unwritten = self.output.json(&Line::Event(view(letter, standing, queue))).err();
            }
        } else if self.events.len() < usize::try_from(self.args.limit).unwrap_or(usize::MAX) {
            self.events.push(view(letter, standing, queue));
        }
    }

    fn end(self, queues: Vec<QueueView>, is_known: bool) -> anyhow::Result<Exit> {
        let Self { args, output, groups, events, found, obsolete, unwritten } = self;
        if let Some(error) = unwritten {
            return Err(error.into());
        }
        let groups = groups.largest_first();
        tell(args, groups, events, (queues, found, is_known.then_some(obsolete)), output)
    }
}

/// Shows the groups, or the letters unless their lines were written before.
fn tell(
    args: &Args,
    groups: Vec<GroupView>,
    events: Vec<LetterView>,
    (queues, found, obsolete): (Vec<QueueView>, u64, Option<u64>),
    output: Output,
) -> anyhow::Result<Exit> {
    match output.format {
        Format::Ndjson => groups.into_iter().try_for_each(|group| output.json(&Line::Group(group)))?,
        Format::Json if args.events => {
            let more = found > u64::try_from(events.len())?;
            output.json(&Answer::Events(LettersView { queues, found, events, more }))?;
        }
        Format::Json => output.json(&Answer::Groups(GroupsView { queues, found, obsolete, groups }))?,
        Format::Text => {
            let obsolete = obsolete.unwrap_or_default();
            output.print(&screen(&groups, &events, found, obsolete, Output::columns()))?;
        }
    }
    Ok(Exit::Done)
}

/// Returns the list of groups, or of letters if there are no groups.
pub(super) fn screen(groups: &[GroupView], events: &[LetterView], found: u64, obsolete: u64, columns: usize) -> String {
    if found == 0 {
        return "No letters are found.\n".to_owned();
    }
    let body = if groups.is_empty() { event_lines(events, columns) } else { group_lines(groups, columns) };
    format!("{body}{}", sum(found, groups.len(), obsolete, events.len(), columns))
}

/// Returns two lines for each group: the count and the reason, and below them what helps to find the letters.
fn group_lines(groups: &[GroupView], width: usize) -> String {
    let counts = groups.iter().map(|group| group.count.to_string().len()).max().unwrap_or(0);
    let mut text = String::new();
    for group in groups {
        let types = group.types.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let reason = cut(&group.failure, width.saturating_sub(counts + 2));
        let of = match (&group.first_failed_at, &group.failed_at) {
            // Messages of other programs may have no time.
            (None, None) => types,
            (first, last) => format!("{types}  {} to {}", time(first.as_deref()), time(last.as_deref())),
        };
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
fn event_lines(events: &[LetterView], width: usize) -> String {
    let mut text = String::new();
    for event in events {
        let said = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let reference = event.reference.as_ref().map(|reference| format!("  {reference}")).unwrap_or_default();
        let head = format!("{}  {}  {}{reference}", said(&event.id), event.event_type, said(&event.failed_at));
        let why = match &event.why {
            Some(why) => format!("{}: {why}; {}", event.state, event.failure),
            None => format!("attempts {}: {}", event.attempts, event.failure),
        };
        let _ = writeln!(text, "{}", cut(&head, width));
        let _ = writeln!(text, "    {DIM}{}{DIM:#}", cut(&why, width.saturating_sub(4)));
    }
    text
}

fn sum(found: u64, groups: usize, obsolete: u64, shown: usize, columns: usize) -> String {
    let mut text = match (groups, shown) {
        (0, shown) if u64::try_from(shown).is_ok_and(|shown| shown < found) => {
            format!("{}, of which {shown} are shown. --limit N shows more.\n", count(found, "letter"))
        }
        (0, _) => format!("{}.\n", count(found, "letter")),
        (1, _) => format!("{}, 1 reason.\n", count(found, "letter")),
        (groups, _) => format!("{}, {groups} reasons.\n", count(found, "letter")),
    };
    if obsolete > 0 {
        let are = if obsolete == 1 { "1 letter is".to_owned() } else { format!("{obsolete} letters are") };
        let obsolete = format!(
            "{are} obsolete: the event has run, was cancelled or was replaced since. `topology dead-letter discard \
             --obsolete` clears them."
        );
        text += &sentence(&obsolete, columns);
    }
    text
}
