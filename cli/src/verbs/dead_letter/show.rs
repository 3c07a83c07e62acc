//! `topology dead-letter show`: prints all of a letter.

use std::fmt::Write as _;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::internals::words::plain;
use hatchery_admin::dead_letters::{DeadLetters, Letter, LetterQueue, Standing, Whole, whole};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    connection::{read, with_letters},
    filters::Filters,
    served,
    view::time,
};
use crate::{
    args::{Common, UsageError},
    exit::{Ended, Exit},
    output::{Format, Output},
    server::Server,
    text::{LEAST, folded},
};

/// Letters that are shown at most.
const MOST: usize = 20;

/// The columns before the values of a letter.
const NAMES: usize = 16;

/// The columns before the lines of a payload.
const INDENT: usize = 2;

/// Show all of a letter: fields, headers, payload
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology dead-letter show 0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11
  topology dead-letter show --type hr-import --reference 1234
  topology dead-letter show ID --payload-limit 1000000 -o json | jq .payload
  topology dead-letter show ID --unrouted

Exit 1: there is no such letter, or a queue is missing. 4: a policy limits
deliveries, so that a look could delete letters.")]
pub(crate) struct Args {
    /// The letter with this id
    #[arg(value_name = "ID", conflicts_with = "id")]
    named: Option<String>,

    #[command(flatten)]
    filters: Filters,

    /// Show at most this many bytes of the payload
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    payload_limit: usize,
}

/// The answer of `topology dead-letter show`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The number of letters.
    found: usize,
    /// The first letters.
    letters: Vec<Whole>,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let id = args.named.clone().or_else(|| args.filters.id.clone());
    if id.is_none() && !args.filters.has_reference() {
        return Err(UsageError("name a letter by its id, or by --reference".to_owned()).into());
    }
    if let Some(server) = Server::named(common)? {
        let (found, letters) = served::show(&server, &args.filters, id, MOST, args.payload_limit, output).await?;
        return tell(args, found, letters, None, output);
    }
    with_letters(common, &args.filters, output, async |letters, queues| show(letters, queues, args, output).await).await
}

async fn show(all: &DeadLetters, queues: &[LetterQueue], args: &Args, output: Output) -> anyhow::Result<Exit> {
    let mut selection = args.filters.selection();
    selection.id = args.named.clone().or(selection.id);
    let (mut letters, mut found) = (Vec::new(), 0);
    let each = |queue: &LetterQueue, letter: Letter, standing: Standing| {
        found += 1;
        if letters.len() < MOST {
            letters.push(whole(&letter, &standing, queue, args.payload_limit));
        }
    };
    let (looked, missing) = read(all, queues, (&args.filters, &selection), output, each).await?;
    if let Some(error) = &looked.unknown {
        output.warn(&format!("{error}. Whether the letter is obsolete is not known"));
    }
    tell(args, found, letters, missing, output)
}

fn tell(
    args: &Args,
    found: usize,
    letters: Vec<Whole>,
    missing: Option<anyhow::Error>,
    output: Output,
) -> anyhow::Result<Exit> {
    let shown = letters.len();
    match output.format {
        Format::Json => output.json(&Answer { found, letters })?,
        Format::Ndjson => letters.iter().try_for_each(|letter| output.json(letter))?,
        Format::Text => {
            let texts: Vec<String> = letters.iter().map(|letter| text(letter, Output::columns())).collect();
            output.print(&texts.join("\n"))?;
        }
    }
    if found > shown {
        output.note(&format!("{found} letters match; only the first {MOST} are shown."));
    }
    match missing {
        Some(error) => Err(error),
        None if shown == 0 => Err(Ended::new(Exit::Error, args.filters.not_found()).into()),
        None => Ok(Exit::Done),
    }
}

/// Returns the screen of a letter.
pub(super) fn text(whole: &Whole, columns: usize) -> String {
    let letter = &whole.letter;
    let (mut text, columns) = (String::new(), columns.max(LEAST));
    let mut line = |name: &str, value: &str| {
        for (n, part) in folded(&plain(value), columns - NAMES).iter().enumerate() {
            let name = if n == 0 { name } else { "" };
            let _ = writeln!(text, "{name:<15} {part}");
        }
    };
    line("id", letter.id.as_deref().unwrap_or("-"));
    line("type", &letter.event_type);
    line("reference", letter.reference.as_deref().unwrap_or("-"));
    line("queue", &letter.queue);
    line(
        "state",
        &letter.why.as_ref().map_or_else(|| letter.state.to_string(), |why| format!("{}: {why}", letter.state)),
    );
    line("failure", &letter.failure);
    line("first failed at", &time(letter.first_failed_at.as_deref()));
    line("failed at", &time(letter.failed_at.as_deref()));
    line("attempts", &letter.attempts.to_string());
    line("replays", &letter.replays.to_string());
    line("routing key", &letter.routing_key);
    line("content type", whole.content_type.as_deref().unwrap_or("-"));
    line("correlation id", whole.correlation_id.as_deref().unwrap_or("-"));
    for (name, value) in &whole.headers {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let header = format!("header {}: {}", plain(name), plain(&value));
        // The other lines are indented.
        let _ = writeln!(text, "{}", folded(&header, columns - INDENT).join("\n  "));
    }
    let (payload, bytes) = (whole.payload.as_deref().unwrap_or_default(), whole.payload_base64.as_deref());
    let shown = bytes.map_or(payload.len(), |bytes| BASE64_STANDARD.decode(bytes).unwrap_or_default().len());
    let cut = if whole.payload_cut { format!(", the first {shown} are shown") } else { String::new() };
    let _ = writeln!(text, "payload, {} bytes{cut}:", letter.size);
    let lines = match bytes {
        None => payload.lines().flat_map(|line| indented(&plain(line), columns - INDENT)).collect(),
        Some(bytes) => folded(&format!("base64 {bytes}"), columns - INDENT),
    };
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
    text
}

/// Folds a line of a payload. All its parts begin with the spaces that it begins with.
fn indented(line: &str, room: usize) -> Vec<String> {
    let text = line.trim_start_matches(' ');
    // So many spaces leave no room for the text.
    let spaces = (line.len() - text.len()).min(room / 2);
    folded(text, room - spaces).iter().map(|part| format!("{:spaces$}{part}", "")).collect()
}
