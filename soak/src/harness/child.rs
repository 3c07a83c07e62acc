//! This program as a child process of a soak: a worker or a publisher. Each child ends when its standard input ends, so
//! none outlives its parent.

use std::{path::PathBuf, pin::pin, process::ExitCode, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use hatchery::{CancellationToken, ConnectError, Hatchery, NewEvent, Outcome, Run};
use hatchery_soak::{chance::Chance, stage::connect_from_environment};
use jiff::{SignedDuration, Timestamp};
use tokio::io::AsyncReadExt as _;
use tracing_subscriber::filter::LevelFilter;

use super::notes::{Pen, Step};

/// Why an event is put off.
const NOT_YET: &str = "not yet";

/// By how much it is put off.
const LATER: SignedDuration = SignedDuration::from_secs(2);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name that it writes into its notes
    #[arg(long)]
    name: u32,
    /// The file for its notes
    #[arg(long)]
    notes: PathBuf,
    #[command(subcommand)]
    kind: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    /// Works until its standard input ends
    Worker(WorkerArgs),
    /// Publishes as fast as it can until its standard input ends
    Feeder(FeederArgs),
}

#[derive(clap::Args)]
struct WorkerArgs {
    /// The types whose events it handles
    #[arg(long)]
    r#type: Vec<String>,
    /// The sources whose messages it takes
    #[arg(long)]
    source: Vec<String>,
    /// The longest that a handler takes, in milliseconds
    #[arg(long, default_value_t = 0)]
    pause: u64,
    /// Of this many events, one fails. An event whose id is no number does not
    #[arg(long)]
    fail_every: Option<u32>,
    /// How often it fails
    #[arg(long, default_value_t = 1)]
    fails: u32,
    /// Of this many events, one is put off once, by two seconds
    #[arg(long)]
    requeue_every: Option<u32>,
    /// Of this many events, one is given up until somebody replays it
    #[arg(long)]
    give_up_every: Option<u32>,
}

#[derive(clap::Args)]
struct FeederArgs {
    #[arg(long)]
    r#type: String,
    /// Bytes of each payload
    #[arg(long)]
    payload: usize,
}

pub(crate) async fn main(args: Args) -> ExitCode {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        let mut input = Vec::new();
        let _ = tokio::io::stdin().read_to_end(&mut input).await;
        stopped.cancel();
    });
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_ansi(false).with_writer(std::io::stderr).init();
    match act(args, stop).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

async fn act(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    let pen = Pen::open(&args.notes, args.name)?;
    let name = format!("soak child {}", args.name);
    let Some(hatchery) = stop.run_until_cancelled(connect(&name)).await else { return Ok(()) };
    let hatchery = hatchery?;
    match args.kind {
        Kind::Worker(args) => work(args, &hatchery, pen, stop).await?,
        Kind::Feeder(args) => feed(&args, &hatchery, &pen, stop).await?,
    }
    hatchery.close().await;
    Ok(())
}

/// Connects, within a minute. A soak may start a child while the broker restarts.
async fn connect(name: &str) -> anyhow::Result<Hatchery> {
    let until = std::time::Instant::now() + Duration::from_mins(1);
    loop {
        match connect_from_environment(name).await {
            Err(error) if is_transient(&error) && std::time::Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            connected => return connected,
        }
    }
}

fn is_transient(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ConnectError::Broker(error)) if error.is_transient())
}

/// Works, and notes the runs of the handlers.
async fn work(args: WorkerArgs, hatchery: &Hatchery, pen: Pen, stop: CancellationToken) -> anyhow::Result<()> {
    let (pen, args) = (Arc::new(pen), Arc::new(args));
    let mut worker = args.source.iter().fold(hatchery.worker(), |worker, name| worker.source(name));
    for event_type in &args.r#type {
        let (pen, args) = (Arc::clone(&pen), Arc::clone(&args));
        worker = worker.handle(event_type, move |run: Run| handle(Arc::clone(&pen), Arc::clone(&args), run));
    }
    worker.run(stop).await?;
    Ok(())
}

async fn handle(pen: Arc<Pen>, args: Arc<WorkerArgs>, run: Run) -> anyhow::Result<Outcome> {
    let (event_type, id, attempts) = (run.event.event_type.as_str(), run.event.id.as_str(), run.event.attempts);
    pen.note(Step::Begun, event_type, id, attempts)?;
    if args.pause > 0 {
        // So the runs differ in length, and a kill hits some of them.
        tokio::time::sleep(Duration::from_millis(Chance::of(id).between(0, args.pause))).await;
    }
    let is_one = |every: Option<u32>| {
        every.is_some_and(|every| id.parse::<u32>().is_ok_and(|number| number.is_multiple_of(every)))
    };
    // Only one thing happens to an event, because the reason and the attempts tell of the last one.
    let (gives_up, requeues) = (is_one(args.give_up_every), is_one(args.requeue_every) && !is_one(args.give_up_every));
    if is_one(args.fail_every) && !gives_up && !requeues && attempts < args.fails {
        pen.note(Step::Failed, event_type, id, attempts)?;
        anyhow::bail!("try {} fails", attempts + 1);
    }
    let reason = run.event.reason.as_deref().unwrap_or_default();
    if requeues && !reason.contains(NOT_YET) {
        pen.note(Step::Requeued, event_type, id, attempts)?;
        return Ok(Outcome::Requeue { at: Timestamp::now() + LATER, reason: NOT_YET.to_owned() });
    }
    if gives_up && !reason.starts_with("replay") {
        pen.note(Step::Buried, event_type, id, attempts)?;
        return Ok(Outcome::dead_letter("nobody can"));
    }
    pen.note(Step::Done, event_type, id, attempts)?;
    Ok(Outcome::Done)
}

/// Publishes events as fast as the publisher takes them.
async fn feed(args: &FeederArgs, hatchery: &Hatchery, pen: &Pen, stop: CancellationToken) -> anyhow::Result<()> {
    let publisher = hatchery.publisher();
    let event = |number: u32| NewEvent::new(&args.r#type, vec![b'7'; args.payload]).id(number.to_string());
    // The publisher takes the next event from the stream only when it has room for it.
    let events = stream::iter(0..).map(event).take_until(stop.cancelled());
    let mut published = pin!(publisher.publish_stream(events));
    let mut number = 0_u32;
    while let Some(published) = published.next().await {
        let step = if published.is_ok() { Step::Confirmed } else { Step::Unconfirmed };
        pen.note(step, &args.r#type, &number.to_string(), 0)?;
        number += 1;
    }
    Ok(())
}
