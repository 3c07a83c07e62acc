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
use hatchery_admin::{Status, Verdict};
use tokio::time::sleep;

pub(crate) use self::screen::unlisted_words;
use self::{
    screen::{Room, screen},
    watch::{Watch, looking},
};
use crate::{
    args::Common,
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
    let verdict = if let Some(server) = Server::named(common)? {
        let look = async || Looked::by(&server).await;
        if args.watch { watch(look, args.interval, output).await? } else { Some(look().await?.show(output)?) }
    } else {
        let admin = admin(common, load::topology(common, output)?, "topology status")?;
        if args.watch {
            let mut looks = admin.looks().map_err(told)?;
            watch(async || Ok(Looked::at(looks.again().await.map_err(told)?)), args.interval, output).await?
        } else {
            Some(Looked::at(admin.status(&Screen::new(output)).await.map_err(told)?).show(output)?)
        }
    };
    Ok(match verdict {
        Some(Verdict::Look) if args.detailed_exitcode => Exit::Pending,
        Some(Verdict::Stuck) if args.detailed_exitcode => Exit::Blocked,
        _ => Exit::Done,
    })
}

/// The findings of a look.
struct Looked {
    status: Status,
    /// The JSON of the server that has looked.
    json: Option<serde_json::Value>,
}

impl Looked {
    const fn at(status: Status) -> Self {
        Self { status, json: None }
    }

    /// Asks a server.
    async fn by(server: &Server) -> anyhow::Result<Self> {
        let json: serde_json::Value = server.get("/v1/status").await?;
        let status = serde_json::from_value(json.clone()).context("the server is of another version")?;
        Ok(Self { status, json: Some(json) })
    }

    fn show(&self, output: Output) -> std::io::Result<Verdict> {
        match (output.format, &self.json) {
            (Format::Text, _) => output.print(&self.screen(output))?,
            (Format::Json | Format::Ndjson, None) => output.json(&Document::of(&self.status))?,
            (Format::Json | Format::Ndjson, Some(json)) => output.json(json)?,
        }
        Ok(self.status.verdict)
    }

    fn screen(&self, output: Output) -> String {
        let room = Room { columns: Output::columns(), rows: Output::rows() };
        screen(&self.status, room, output.verbose)
    }
}

/// Looks again and again until a signal comes. Returns the last verdict, or none if the signal came before.
async fn watch(
    mut look: impl AsyncFnMut() -> anyhow::Result<Looked>,
    interval: Duration,
    output: Output,
) -> anyhow::Result<Option<Verdict>> {
    let (mut watch, mut verdict, mut drawn) = (Watch::start(output)?, None, None);
    loop {
        let looked = tokio::select! {
            looked = looking(look(), drawn, output) => looked,
            () = watch.stopped() => return Ok(verdict),
        };
        match looked {
            Ok(looked) => {
                watch.draw(&looked.screen(output), || looked.show(output).map(drop))?;
                (verdict, drawn) = (Some(looked.status.verdict), Some(looked.status.at));
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
