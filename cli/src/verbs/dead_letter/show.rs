//! `topology dead-letter show`: prints all of a letter.

use std::fmt::Write as _;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::internals::words::plain;
use hatchery_admin::dead_letters::{DeadLetters, Letter, LetterQueue, Standing, Whole, bounded, headers, whole};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    connection::{read, with_letters},
    filters::Filters,
    view::time,
};
use crate::{
    args::{Common, UsageError},
    exit::{Ended, Exit},
    output::{Format, Output},
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
pub(super) struct Args {
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
    with_letters(common, &args.filters, output, async |letters, queues| show(letters, queues, args, output).await).await
}

async fn show(all: &DeadLetters, queues: &[LetterQueue], args: &Args, output: Output) -> anyhow::Result<Exit> {
    let mut selection = args.filters.selection();
    selection.id = args.named.clone().or(selection.id);
    if selection.id.is_none() && selection.reference.is_none() {
        return Err(UsageError("name a letter by its id, or by --reference".to_owned()).into());
    }
    let (mut shown, mut found): (Vec<(Letter, Standing, &LetterQueue)>, usize) = (Vec::new(), 0);
    let each = |queue, letter, standing| {
        found += 1;
        if shown.len() < MOST {
            shown.push((letter, standing, queue));
        }
    };
    let looked = read(all, queues, (&args.filters, &selection), output, each).await?;
    if let Some(error) = &looked.unknown {
        output.warn(&format!("{error}. Whether the letter is obsolete is not known"));
    }
    let letters: Vec<Whole> =
        shown.iter().map(|(letter, standing, queue)| whole(letter, standing, queue, args.payload_limit)).collect();
    match output.format {
        Format::Json => output.json(&Answer { found, letters })?,
        Format::Ndjson => letters.iter().try_for_each(|letter| output.json(letter))?,
        Format::Text => {
            let texts = shown
                .iter()
                .map(|(letter, standing, queue)| text(letter, standing, queue, args.payload_limit, Output::columns()));
            output.print(&texts.collect::<Vec<_>>().join("\n"))?;
        }
    }
    if found > shown.len() {
        output.note(&format!("{found} letters match; only the first {MOST} are shown."));
    }
    match looked.missing {
        Some(error) => Err(error),
        None if shown.is_empty() => Err(Ended::new(Exit::Error, args.filters.not_found()).into()),
        None => Ok(Exit::Done),
    }
}

/// Returns the screen of a letter, with at most this many bytes of its payload.
pub(super) fn text(letter: &Letter, standing: &Standing, queue: &LetterQueue, limit: usize, columns: usize) -> String {
    let properties = &letter.message.properties;
    let (mut text, columns) = (String::new(), columns.max(LEAST));
    let mut line = |name: &str, value: &str| {
        for (n, part) in folded(&plain(value), columns - NAMES).iter().enumerate() {
            let name = if n == 0 { name } else { "" };
            let _ = writeln!(text, "{name:<15} {part}");
        }
    };
    line("id", letter.id().unwrap_or("-"));
    line("type", &letter.event_type());
    line("reference", letter.reference().unwrap_or("-"));
    line("queue", &queue.name);
    line("state", &standing.to_string());
    line("failure", &letter.cause());
    line("first failed at", &time(letter.first_failed_at()));
    line("failed at", &time(letter.failed_at()));
    line("attempts", &letter.attempts().to_string());
    line("replays", &letter.replays().to_string());
    line("routing key", &letter.message.routing_key);
    line("content type", properties.content_type.as_deref().unwrap_or("-"));
    line("correlation id", properties.correlation_id.as_deref().unwrap_or("-"));
    for (name, value) in headers(&properties.headers) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let header = format!("header {}: {}", plain(&name), plain(&value));
        // The other lines are indented.
        let _ = writeln!(text, "{}", folded(&header, columns - INDENT).join("\n  "));
    }
    let (body, size) = (bounded(letter, limit), letter.message.body.len());
    let cut = if body.len() < size { format!(", the first {} are shown", body.len()) } else { String::new() };
    let _ = writeln!(text, "payload, {size} bytes{cut}:");
    let lines = match std::str::from_utf8(body) {
        Ok(payload) => payload.lines().flat_map(|line| indented(&plain(line), columns - INDENT)).collect(),
        Err(_) => folded(&format!("base64 {}", BASE64_STANDARD.encode(body)), columns - INDENT),
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
