//! What is done to all events that a filter finds: a look at them first, and with `--yes` the act itself.

use std::pin::pin;

use futures_util::{Stream, TryStreamExt as _};
use hatchery::{Events, EventsError, Filter, Known};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    super::{
        args::Format,
        exit::{Ended, Exit},
        output::Output,
    },
    answer::view,
    table,
};

/// Events that a dry run shows of those that it counts.
const SHOWN: usize = 20;

/// Shows what would be done, and how many there are.
pub(super) async fn dry_run(events: &Events, filter: &Filter, verb: &str, output: Output) -> anyhow::Result<Exit> {
    let mut found = pin!(events.search(filter));
    let (mut first, mut count): (Vec<Known>, u64) = (Vec::new(), 0);
    let spinner = output.spinner();
    while let Some(event) = found.try_next().await? {
        count += 1;
        spinner.set_message(format!("{count} found"));
        if output.format == Format::Ndjson {
            output.json(&view(&event))?;
        } else if first.len() < SHOWN {
            first.push(event);
        }
    }
    spinner.finish_and_clear();
    let more = count - u64::try_from(first.len())?;
    match output.format {
        Format::Text if count == 0 => output.print("Nothing is found.\n")?,
        Format::Text => {
            output.print(&table::table(&first, Timestamp::now()))?;
            if more > 0 {
                output.print(&format!("… and {more} more\n"))?;
            }
            output.print(&format!("Dry run: would {verb} {}. --yes does it.\n", table::events(count)))?;
        }
        Format::Json => {
            let shown: Vec<Value> = first.iter().map(view).collect();
            output
                .json(&json!({ "dry_run": true, "verb": verb, "found": count, "events": shown, "more": more > 0 }))?;
        }
        Format::Ndjson => {}
    }
    Ok(Exit::Done)
}

/// Acts on all, shows how far it is, and hands each answer to the account. What had been begun when something failed is
/// waited for and counted.
pub(super) async fn act<A>(
    acting: impl Stream<Item = Result<(Known, A), EventsError>>,
    output: Output,
    mut account: impl FnMut(&A) -> &'static str,
) -> anyhow::Result<()> {
    let mut acting = pin!(acting);
    let (mut count, mut failed): (u64, Option<EventsError>) = (0, None);
    let spinner = output.spinner();
    loop {
        match acting.try_next().await {
            Ok(None) => break,
            Ok(Some((event, answer))) => {
                count += 1;
                let result = account(&answer);
                if output.format == Format::Ndjson {
                    let mut line = view(&event);
                    line["result"] = result.into();
                    output.json(&line)?;
                }
                spinner.set_message(format!("{count} done"));
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    spinner.finish_and_clear();
    match failed {
        None => Ok(()),
        Some(error) if count == 0 => Err(error.into()),
        Some(error) => {
            let done = table::events(count);
            let message =
                format!("{error}; {done} were answered for before. Run it again: what is done is not done twice");
            Err(Ended::new(Exit::Partly, message).into())
        }
    }
}
