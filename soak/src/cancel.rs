//! Many delayed events that are cancelled, moved with their kept payloads, or put off. Measures the rates, and checks
//! that no event runs at its old time.

use std::{
    future::ready,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use hatchery::{EventsError, Filter, Hatchery, MoveOutcome, NewEvent};
use jiff::Timestamp;

use crate::harness::{Account, Common, Console, PATIENCE, PAYLOAD, Run, Table, Working, grouped};

const TOPOLOGY: &str = "\
version: 1
name: soak
ladder: { resolution: 250ms, horizon: 365d }
defaults: { prefetch: 200, concurrency: 16, coalesce: latest }
types: { cancelled: {}, moved: { keep-payload: 4KiB }, put-off: {} }
";

/// The types. Each is named after the change of its events.
const TYPES: [&str; 3] = ["cancelled", "moved", "put-off"];

/// Cancels a second of a scheduler that keeps its events in a database. Cancels of hatchery have to be faster.
const DATABASE: u128 = 1_920;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Events of each kind: cancelled, moved, put off
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    events: u32,
    /// Seconds from publishing until the events are first due; moved events are due after twice this time
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    due: u32,
    /// Require no rate, for small runs and busy machines
    #[arg(long)]
    no_ratio: bool,
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let (stage, queues, _) = args.common.begin(console, TOPOLOGY).await?;
    let hatchery = stage.builder().version_wait(PATIENCE).connect().await?;
    let wait = Duration::from_secs(args.due.into());
    let (first, second) = (Timestamp::now() + wait, Timestamp::now() + wait * 2);

    console.step(&format!("Publish {} events of each kind, due in {} s", grouped(args.events), args.due));
    publish(&hatchery, args.events, first).await?;
    let events = hatchery.events();
    let of = |event_type: &str| Filter::default().event_type(event_type);
    console.step("Cancel, move with kept payloads, put off");
    let cancelled = timed(events.cancel_all(&of(TYPES[0])).map_ok(|(_, slot)| slot.waiting && !slot.running)).await?;
    let is_done = |(_, moved)| moved == MoveOutcome::Done;
    let moved = timed(events.reschedule_all(&of(TYPES[1]), second).map_ok(is_done)).await?;
    let put_off = timed(events.reschedule_all(&of(TYPES[2]), second).map_ok(is_done)).await?;
    ensure!(
        Timestamp::now() < first,
        "too slow for --due {}: the events are due before the last one is put off",
        args.due
    );

    console.step("Work until all is over");
    let working = Working::start(&hatchery, &TYPES);
    let runs = working.finish(console, &queues, 2 * args.events as usize, wait * 2, &[]).await?;
    hatchery.close().await;
    stage.keep("runs", &runs)?;

    let table = account(args, &[cancelled, moved, put_off], &runs, second);
    Ok(stage.conclude(console, &[table]).await)
}

async fn publish(hatchery: &Hatchery, count: u32, due: Timestamp) -> anyhow::Result<()> {
    let events = TYPES.iter().zip(0_u32..).flat_map(|(event_type, kind)| {
        (0..count).map(move |n| {
            let number = (kind * count + n).to_string();
            NewEvent::new(*event_type, PAYLOAD.to_vec()).reference(&number).id(number).at(due)
        })
    });
    let publisher = hatchery.publisher();
    publisher
        .publish_stream(stream::iter(events))
        .try_for_each(|published| {
            debug_assert!(!published.unversioned, "Redis is there");
            ready(Ok(()))
        })
        .await
        .context("an event was not confirmed")
}

/// The number of changed events, and the time that the changes took.
struct Timed {
    done: u64,
    took: Duration,
}

impl Timed {
    /// Returns the number of events a second.
    fn rate(&self) -> u128 {
        u128::from(self.done) * 1_000_000 / self.took.as_micros().max(1)
    }
}

async fn timed(acting: impl Stream<Item = Result<bool, EventsError>>) -> anyhow::Result<Timed> {
    let started = Instant::now();
    let mut acting = std::pin::pin!(acting);
    let mut done = 0;
    while let Some(answer) = acting.next().await {
        done += u64::from(answer?);
    }
    Ok(Timed { done, took: started.elapsed() })
}

fn account(args: &Args, timed: &[Timed; 3], runs: &[Run], second: Timestamp) -> Table {
    let mut table = Table::new(&["", "events", "a second", "must be"]);
    let all = u64::from(args.events);
    for ((what, timed), floor) in ["cancelled", "moved", "put off"].iter().zip(timed).zip([Some(DATABASE), None, None])
    {
        let floor = floor.filter(|_| !args.no_ratio);
        let must = floor.map_or_else(|| grouped(all), |floor| format!("{}, above {floor}/s", grouped(all)));
        let holds = timed.done == all && floor.is_none_or(|floor| timed.rate() > floor);
        table.must(holds, &[what, &grouped(timed.done), &grouped(timed.rate()), &must]);
    }
    let account = Account::of(args.events..3 * args.events, runs);
    let left = 2 * all;
    table.must(account.handled as u64 == left, &["handled", &grouped(account.handled), "", &grouped(left)]);
    // The account's strangers are the cancelled events here, which must not run.
    let at_old_time = runs.iter().filter(|run| run.number >= args.events && run.at < second.as_microsecond()).count();
    for (what, count) in [
        ("cancelled, and run", account.strangers),
        ("run at their old time", at_old_time),
        ("handled twice", account.twice.len()),
        ("lost", account.missing.len()),
    ] {
        table.must(count == 0, &[what, &grouped(count), "", "0"]);
    }
    table
}
