//! `topology status`: what is wrong, and how many events are where.
//!
//! `hatchery-admin` knows it; `screen` draws it.

mod screen;
#[cfg(test)]
mod tests;
mod watch;

use std::time::Duration;

use anyhow::Context as _;
use hatchery::internals::ttl::parse_duration;
pub(crate) use hatchery_admin::status::Document;
use hatchery_admin::{Admin, Status, Verdict};
use tokio::time::sleep;

pub(crate) use self::screen::unlisted_words;
use self::{
    screen::{Room, screen},
    watch::{Watch, looking},
};
use crate::{
    args::{Common, UsageError},
    connect::{admin, told},
    exit::Exit,
    load,
    output::{Format, Output},
    progress::Screen,
    server::Server,
};

/// Show what is wrong, and how many events are where
#[derive(clap::Args)]
#[command(after_long_help = "\
On top is what is wrong, the worst first, each with a command that helps and its
place in docs/runbook.md. Then a line for each type:
  DUE       events that wait for a worker, or run
  LATE      how long the oldest due event waits, from Redis
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
  topology status --server http://localhost:8080
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
    if let Some(server) = Server::named(common)? {
        return by_server(&server, args, output).await;
    }
    let admin = admin(common, load::topology(common, output)?, "topology status")?;
    let verdict =
        if args.watch { watch(&admin, args.interval, output).await? } else { Some(once(&admin, output).await?) };
    Ok(exit(verdict, args))
}

/// Shows what a server says.
async fn by_server(server: &Server, args: &Args, output: Output) -> anyhow::Result<Exit> {
    if args.watch {
        let why = "--watch asks the broker itself: leave --server (TOPOLOGY_URL) out";
        return Err(UsageError(why.to_owned()).into());
    }
    let document: serde_json::Value = server.get("/v1/status").await?;
    let status: Status = serde_json::from_value(document.clone()).context("the server is of another version")?;
    match output.format {
        Format::Text => output.print(&screen_of(&status, output))?,
        Format::Json | Format::Ndjson => output.json(&document)?,
    }
    Ok(exit(Some(status.verdict), args))
}

fn exit(verdict: Option<Verdict>, args: &Args) -> Exit {
    match verdict {
        Some(Verdict::Look) if args.detailed_exitcode => Exit::Pending,
        Some(Verdict::Stuck) if args.detailed_exitcode => Exit::Blocked,
        _ => Exit::Done,
    }
}

async fn once(admin: &Admin, output: Output) -> anyhow::Result<Verdict> {
    let status = admin.status(&Screen::new(output)).await.map_err(told)?;
    show(&status, output)?;
    Ok(status.verdict)
}

/// Looks again and again until a signal comes. Returns the last verdict, or none if the signal came before.
async fn watch(admin: &Admin, interval: Duration, output: Output) -> anyhow::Result<Option<Verdict>> {
    let (mut watch, mut verdict, mut drawn) = (Watch::start(output)?, None, None);
    let mut looks = admin.looks().map_err(told)?;
    loop {
        let looked = tokio::select! {
            looked = looking(looks.again(), drawn, output) => looked.map_err(told),
            () = watch.stopped() => return Ok(verdict),
        };
        match looked {
            Ok(status) => {
                watch.draw(&screen_of(&status, output), || show(&status, output))?;
                (verdict, drawn) = (Some(status.verdict), Some(status.at));
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

fn screen_of(status: &Status, output: Output) -> String {
    screen(status, Room { columns: Output::columns(), rows: Output::rows() }, output.verbose)
}

fn show(status: &Status, output: Output) -> std::io::Result<()> {
    match output.format {
        Format::Text => output.print(&screen_of(status, output)),
        Format::Json | Format::Ndjson => output.json(&Document::of(status)),
    }
}
