//! Kills workers with SIGKILL all the time, and starts others in their place.

mod args;
mod crew;

use std::{
    collections::BTreeSet,
    future::ready,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures_util::{TryStreamExt as _, stream};
use hatchery::{Hatchery, NewEvent};
use tokio::task::JoinHandle;

pub(crate) use self::args::Args;
use self::{
    args::{FAIL_EVERY, TYPE},
    crew::Crew,
};
use crate::{
    account::Account,
    chance::Chance,
    console::Console,
    notes::{Notes, What},
    queues::Queues,
    settled::Settled,
    stage::Stage,
    table::{Table, grouped},
    traffic::{self, PAYLOAD},
};

const TOPOLOGY: &str = "\
version: 1
name: soak
defaults: { prefetch: 200, concurrency: 16, retry: { delays: [2s, 5s], max-attempts: 4 } }
types: { work: {} }
";
const CONCURRENCY: usize = 16;

/// How long no event may be finished before the run gives up. An event that ran in a killed worker waits for the end of
/// its lease, 15 s, and then up to 4 s more.
const PATIENCE: Duration = Duration::from_mins(1);
const TICK: Duration = Duration::from_millis(50);

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let Args { common, events, .. } = args;
    let mut chance = Chance::new(common.announce(console));
    let stage = Stage::set(console, common.version.as_deref(), TOPOLOGY).await?;
    let queues = Queues::connect(&stage.servers.amqp).await?;
    let settled = Settled::connect(&stage.servers.redis, &stage.topology).await?;
    let notes = Notes::new(stage.path("notes"))?;

    console.step(&format!("Publish {} events, and kill a worker again and again", grouped(*events)));
    let mut order: Vec<u32> = (0..*events).collect();
    chance.shuffle(&mut order);
    let hatchery = stage.connect().await?;
    let publishing = publish(&hatchery, order);
    let mut crew = Crew::start(&stage, args, notes, settled)?;
    let all = *events as usize;
    // The last events are those of killed workers, which wait for the ends of their leases. They are spared, because
    // kills would hit them again and again.
    let last = (all / 100).max(2 * CONCURRENCY * args.workers as usize);
    let mut next = kill_after(&mut chance, args);
    let (mut moved, mut before, mut calm) = (Instant::now(), 0, 0);
    while calm < 3 && moved.elapsed() < PATIENCE {
        tokio::time::sleep(TICK).await;
        let done = crew.done()?;
        if done > before {
            (moved, before) = (Instant::now(), done);
        }
        console.progress(done, all, &format!(", {} kills", crew.kills));
        if Instant::now() >= next && done + last < all {
            crew.kill_one(&mut chance).await?;
            next = kill_after(&mut chance, args);
        }
        calm = if done == all && !traffic::is_busy(&queues, &stage.topology, &[]).await? { calm + 1 } else { 0 };
    }
    console.end_progress();
    publishing.await?.context("publishing")?;
    hatchery.close().await;
    let ended = crew.stop().await?;

    let names = hatchery::internals::names::Names::new(stage.topology.name.clone());
    let dead = queues.ready(&[names.dead_letters(&TYPE.parse()?), names.unrouted()]).await?;
    let table = table(args, &ended, dead);
    console.step(&format!("The account, of RabbitMQ {}", stage.version));
    console.say(&table.render());
    let holds = table.holds();
    stage.end(console, holds).await;
    Ok(holds)
}

fn kill_after(chance: &mut Chance, args: &Args) -> Instant {
    let every = u64::from(args.kill_every);
    Instant::now() + Duration::from_millis(chance.between(every / 2, every * 3 / 2))
}

/// Publishes the events in this order, as fast as possible.
fn publish(hatchery: &Hatchery, order: Vec<u32>) -> JoinHandle<anyhow::Result<()>> {
    let publisher = hatchery.publisher();
    tokio::spawn(async move {
        let events = order.into_iter().map(|number| NewEvent::new(TYPE, PAYLOAD.to_vec()).id(number.to_string()));
        Ok(publisher.publish_stream(stream::iter(events)).try_for_each(|_| ready(Ok(()))).await?)
    })
}

fn table(args: &Args, ended: &crew::Ended, dead: u64) -> Table {
    let done = || ended.notes.iter().filter(|note| note.what == What::Done).map(|note| note.number);
    let account = Account::take(0..args.events, done());
    let failed: BTreeSet<u32> =
        ended.notes.iter().filter(|note| note.what == What::Failed).map(|note| note.number).collect();
    let explained = account.twice.iter().filter(|number| ended.explains(**number)).count();
    let unexplained = account.twice.len() - explained;
    let most = *ended.cut.iter().max().unwrap_or(&0);
    let count = |n: usize| grouped(n as u64);

    let mut table = Table::new(&["", "", "must be"]);
    let all = args.events as usize;
    table.must(account.handled == all, &["handled", &count(account.handled), &format!("{}, all", count(all))]);
    table.must(account.missing.is_empty(), &["lost", &count(account.missing.len()), "0"]);
    let fails = (0..args.events).step_by(FAIL_EVERY as usize).len();
    table.must(failed.len() == fails, &["failed when first tried", &count(failed.len()), &count(fails)]);
    table.must(dead == 0, &["in dead-letter and unrouted", &grouped(dead), "0"]);
    let kills = ended.cut.len();
    table.must(
        kills >= args.at_least as usize,
        &["workers killed", &count(kills), &format!("at least {}", args.at_least)],
    );
    table.must(
        most <= CONCURRENCY,
        &[
            "done and not settled at a kill",
            &format!("at most {most}"),
            &format!("at most {CONCURRENCY}, which run at a time"),
        ],
    );
    let open: usize = ended.cut.iter().sum();
    table.tell(&["the same, at all kills", &count(open), ""]);
    table.tell(&["handled twice", &count(account.twice.len()), ""]);
    table.must(unexplained == 0, &["of those, settled before the kill", &count(unexplained), "0"]);
    table
}
