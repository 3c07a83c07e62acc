//! `topology status`: what is wrong, and how many events are where.
//!
//! `gather` looks at the broker and at Redis; `findings` and `types` draw the conclusions, without I/O; `screen` draws
//! them.

mod finding;
mod findings;
mod gather;
mod observation;
mod redis;
mod screen;
mod shadows;
mod silence;
mod summary;
#[cfg(test)]
mod tests;
mod types;
mod unlisted;
mod watch;
mod wedged;
mod words;
mod workers;

use std::time::Duration;

use hatchery::internals::{compile::compile, ttl::parse_duration};
use tokio::time::sleep;

use self::{
    gather::Sources,
    observation::Reading,
    screen::{Room, screen},
    summary::Verdict,
    watch::{Watch, looking},
};
pub(crate) use self::{
    summary::Summary,
    types::Unlisted,
    unlisted::{not_listed, note},
    words::quoted,
};
use crate::{
    args::Common,
    exit::Exit,
    load,
    output::{Format, Output},
};

/// Show what is wrong, and how many events are where
#[derive(clap::Args)]
#[command(after_long_help = "\
On top is what is wrong, the worst first, each with a command that helps and its
place in docs/runbook.md. Then a line for each type:
  DUE       events that wait for a worker, or run
  DELAYED   events that are not due yet, from Redis; NEXT is when one is due
  RETRYING  events in the type's retry queues
  DEAD      events in the dead-letter queue
  IN/S      events a second that come into the processing queue
  OUT/S     events a second that leave it: done, put off, or given up
  WORKERS   consumers of the processing queue
A dash stands for a figure that is not known, such as the delayed events of a
type with `register: off`. RabbitMQ's figures are some seconds old.

Examples:
  topology status
  topology status --watch                   draw it again every 5 s
  topology status --detailed-exitcode       0 well, 3 look at it, 4 events are
                                            stuck or may be lost
  topology status -o json | jq '.findings[].message'")]
pub(crate) struct Args {
    /// Draw it again and again, until Ctrl-C
    #[arg(long)]
    watch: bool,

    /// Time between two looks of --watch, at least a second
    #[arg(long, value_name = "D", default_value = "5s", value_parser = parse_interval, requires = "watch")]
    interval: Duration,

    /// Exit with 3 if there is something to look at, and with 4 if events are stuck
    #[arg(long)]
    detailed_exitcode: bool,
}

/// RabbitMQ's figures are some seconds old, and each look costs the broker a list of its queues.
fn parse_interval(text: &str) -> anyhow::Result<Duration> {
    let interval = parse_duration(text)?;
    anyhow::ensure!(interval >= Duration::from_secs(1), "the shortest time between two looks is 1s");
    Ok(interval)
}

pub(crate) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let topology = load::topology(common, output)?;
    let desired = compile(&topology)?;
    let sources = Sources::new(common, &topology, &desired)?;
    let verdict =
        if args.watch { watch(&sources, args.interval, output).await? } else { Some(once(&sources, output).await?) };
    Ok(match verdict {
        Some(Verdict::Look) if args.detailed_exitcode => Exit::Pending,
        Some(Verdict::Stuck) if args.detailed_exitcode => Exit::Blocked,
        _ => Exit::Done,
    })
}

/// Looks once. If a timer may be wedged, looks at it twice more, because one reading cannot tell.
async fn once(sources: &Sources<'_>, output: Output) -> anyhow::Result<Verdict> {
    let mut seen = sources.look(&[]).await?;
    let spinner = output.spinner();
    while sources.must_look_again(&seen) {
        spinner.set_message("Timers hold due events; looking again, to see whether they leave …");
        sleep(wedged::APART).await;
        match sources.read_again().await {
            Ok(reading) => seen.readings.push(reading),
            Err(error) => {
                output.warn(&format!("whether timers are wedged is not known: {error}"));
                break;
            }
        }
    }
    spinner.finish_and_clear();
    let summary = Summary::of(sources.topology, sources.desired, &seen);
    show(&summary, output)?;
    Ok(summary.verdict)
}

/// Looks again and again until a signal comes. Returns the last verdict, or none if the signal came before.
async fn watch(sources: &Sources<'_>, interval: Duration, output: Output) -> anyhow::Result<Option<Verdict>> {
    let (mut watch, mut verdict, mut drawn) = (Watch::start(output)?, None, None);
    let mut readings: Vec<Reading> = Vec::new();
    loop {
        let looked = tokio::select! {
            looked = looking(sources.look(&readings), drawn, output) => looked,
            () = watch.stopped() => return Ok(verdict),
        };
        match looked {
            Ok(seen) => {
                let summary = Summary::of(sources.topology, sources.desired, &seen);
                readings = with_reading(readings, seen.readings.last());
                watch.draw(&screen_of(&summary, output), || show(&summary, output))?;
                (verdict, drawn) = (Some(summary.verdict), Some(summary.at));
                if Output::is_closed() {
                    return Ok(verdict);
                }
            }
            // The broker may be back at the next look. Who starts while it is away has a wrong URL perhaps.
            Err(error) if verdict.is_some() => watch.fail(&error, drawn),
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = sleep(interval) => {}
            () = watch.stopped() => return Ok(verdict),
        }
    }
}

/// Adds a reading to the earlier ones. RabbitMQ reports a queue's figures anew only after some seconds, so a reading too
/// soon after the last one tells nothing new.
fn with_reading(mut readings: Vec<Reading>, new: Option<&Reading>) -> Vec<Reading> {
    let is_new = |new: &&Reading| {
        let since = readings.last().map(|last| new.at.duration_since(last.at));
        since.is_none_or(|since| since.unsigned_abs() >= wedged::APART)
    };
    if let Some(new) = new.filter(is_new) {
        readings.push(new.clone());
    }
    let spare = readings.len().saturating_sub(wedged::READINGS);
    readings.drain(..spare);
    readings
}

fn screen_of(summary: &Summary, output: Output) -> String {
    screen(summary, Room { columns: Output::columns(), rows: Output::rows() }, output.verbose)
}

fn show(summary: &Summary, output: Output) -> std::io::Result<()> {
    match output.format {
        Format::Text => output.print(&screen_of(summary, output)),
        Format::Json | Format::Ndjson => output.json(summary),
    }
}
