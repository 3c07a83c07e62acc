//! `topology dev`: a topology without servers, for one's own machine.

mod account;
mod changes;
mod session;

use std::{str::FromStr as _, sync::Arc, time::Duration};

use anyhow::Context as _;
use hatchery::{Handler, Outcome, Run, async_trait, internals::words::plain, parse_duration};
use tokio::time::sleep;

use self::session::{Dev, Handled};
use crate::{
    args::{Common, UsageError},
    exit::{Ended, Exit},
    handler::args::HandlerArgs,
    listen, load,
    output::Output,
    stop::Stop,
    verbs::work,
};

/// How often the file is read.
const LOOK: Duration = Duration::from_millis(200);

/// Try a topology on this machine, without RabbitMQ and Redis
#[derive(clap::Args)]
#[command(override_usage = "topology dev [OPTIONS] [--exec <CMD>... | --http <URL> | --echo]")]
#[command(group(clap::ArgGroup::new("handler").args(["exec", "http", "echo"])))]
#[command(after_long_help = "\
Examples:
  topology dev --echo
  topology dev --type mail --exec ./send-mail
  topology dev --http http://localhost:3000/events
  curl -d '{\"type\": \"mail\"}' -H 'content-type: application/json' \\
    localhost:8080/v1/events
  TOPOLOGY_URL=http://localhost:8080 topology publish mail

The broker and the register are in memory: delays, retries, coalescing, dead
letters and schedules are as on RabbitMQ and Redis, and everything is forgotten
at the end. Only this machine is answered, over the API of `topology serve`.

A type without a handler keeps its events waiting. When the file changes, it is
taken over as by `topology apply`: events that wait stay. A file with a mistake
changes nothing. A handler is called as by `topology work`.

SIGINT (Ctrl-C) and SIGTERM end it: it finishes running events, and prints an
account. A second signal stops it at once, with exit status 1.")]
pub(crate) struct Args {
    /// A type to work on; may be given more than once, or with commas [default: all types]
    #[arg(long = "type", value_name = "TYPE", requires = "handler", value_delimiter = ',')]
    types: Vec<String>,

    /// Print each event, and acknowledge it
    #[arg(long)]
    echo: bool,

    #[command(flatten)]
    handler: HandlerArgs,

    /// The address of the API, on this machine
    #[arg(long, value_name = "HOST:PORT", value_parser = listen::Address::from_str, default_value = "127.0.0.1:8080")]
    listen: listen::Address,

    /// Events that are handled at a time for each type, instead of the file's `concurrency`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,

    /// How long the end, or a change of the file, waits for running events, instead of the file's `drain-timeout`
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    drain_timeout: Option<Duration>,
}

pub(crate) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let Stop { gently: stop, at_once } = Stop::on_signals()?;
    let handler = handler(args)?;
    let (topology, text) = load::with_text(common, output)?;
    work::types(&args.types, &topology)?;
    let address = &args.listen;
    let listener = address.bind().await.with_context(|| format!("--listen: cannot listen at {address}"))?;
    if !listener.local_addr()?.ip().is_loopback() {
        let why = format!("--listen {address}: `topology dev` listens on this machine alone, such as 127.0.0.1:8080");
        return Err(UsageError(why).into());
    }
    let handled = handler.map(|handler| Handled {
        handler,
        types: args.types.clone(),
        concurrency: args.concurrency,
        drain_timeout: args.drain_timeout,
    });
    let mut dev = Dev::start(topology, listener, handled, output).await?;
    let running = async {
        dev.introduce()?;
        watch(common, &mut dev, text, &stop).await?;
        dev.end().await
    };
    match at_once.run_until_cancelled(running).await {
        Some(ended) => ended.map(|()| Exit::Done),
        None => Err(Ended::new(Exit::Error, "stopped at once; everything is forgotten").into()),
    }
}

fn handler(args: &Args) -> anyhow::Result<Option<Arc<dyn Handler>>> {
    if args.echo { Ok(Some(Arc::new(Echo))) } else { args.handler.handler() }
}

/// The handler of `--echo`: prints each event, and is done with it.
struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn handle(&self, run: Run) -> Outcome {
        let event = &run.event;
        let reference = event.reference.as_ref().map(|reference| format!(" {reference}")).unwrap_or_default();
        let payload = match str::from_utf8(&event.payload) {
            Ok(text) => plain(text).to_string(),
            Err(_) => format!("{} bytes", event.payload.len()),
        };
        let line = format!("{}{reference} {payload}\n", event.event_type);
        // A closed output is no failure of the event.
        match Output::raw(line.as_bytes()) {
            Ok(()) | Err(_) => Outcome::Done,
        }
    }
}

/// Takes over each change of the file until `stop` is cancelled. Fails if the worker ends by itself.
async fn watch(
    common: &Common,
    dev: &mut Dev,
    mut known: String,
    stop: &hatchery::CancellationToken,
) -> anyhow::Result<()> {
    let name = common.file.display().to_string();
    // The text of the last read. An editor may write a file in parts, so a text counts once it was read twice.
    let mut last = Ok(known.clone());
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            ended = dev.worker_ended() => return ended,
            () = sleep(LOOK) => {}
        }
        let read = hatchery::file::read_text(&common.file).map_err(|error| error.to_string());
        if std::mem::replace(&mut last, read.clone()) != read {
            continue;
        }
        match read {
            Ok(text) if text != known => {
                known.clone_from(&text);
                dev.change(&name, &text).await?;
            }
            Err(why) if known != why => {
                dev.keep(&why);
                known = why;
            }
            Ok(_) | Err(_) => {}
        }
    }
}
