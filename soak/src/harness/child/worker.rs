//! A child process with a worker whose handlers note their runs in a file.

use std::{sync::Arc, time::Duration};

use hatchery::{CancellationToken, Hatchery, Outcome, Run};
use hatchery_soak::chance::Chance;
use jiff::{SignedDuration, Timestamp};

use crate::harness::notes::{Pen, Step};

/// Why an event is put off.
const NOT_YET: &str = "not yet";

/// By how much it is put off.
const LATER: SignedDuration = SignedDuration::from_secs(2);

#[derive(clap::Args)]
pub(super) struct Args {
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

pub(super) async fn run(args: Args, hatchery: &Hatchery, pen: Pen, stop: CancellationToken) -> anyhow::Result<()> {
    let (pen, args) = (Arc::new(pen), Arc::new(args));
    let mut worker = args.source.iter().fold(hatchery.worker(), |worker, name| worker.source(name));
    for event_type in &args.r#type {
        let (pen, args) = (Arc::clone(&pen), Arc::clone(&args));
        worker = worker.handle(event_type, move |run: Run| handle(Arc::clone(&pen), Arc::clone(&args), run));
    }
    worker.run(stop).await?;
    Ok(())
}

async fn handle(pen: Arc<Pen>, args: Arc<Args>, run: Run) -> anyhow::Result<Outcome> {
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
