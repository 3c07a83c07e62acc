//! Kills workers with SIGKILL all the time, and starts others in their place.

use std::collections::BTreeSet;

use crate::harness::{
    Account, Common, Console, Crew, Killed, Killer, Kills, Look, Note, PATIENCE, Step, Table, finished_twice, grouped,
    of, publish_shuffled, until_over,
};

const TYPE: &str = "work";
const TOPOLOGY: &str = "\
version: 1
name: soak
defaults: { prefetch: 200, concurrency: 16, retry: { delays: [2s, 5s], max-attempts: 4 } }
types: { work: {} }
";
const CONCURRENCY: usize = 16;

/// Of this many events, the first run of one fails.
const FAIL_EVERY: u32 = 100;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    kills: Kills,
    /// Events; the first run of every hundredth fails
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    events: u32,
    /// The longest that a handler takes, in milliseconds; each is random
    #[arg(long, default_value_t = 20)]
    pause: u32,
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let (stage, queues, mut chance) = args.common.begin(console, TOPOLOGY).await?;
    console.step(&format!("Publish {} events, and kill a worker again and again", grouped(args.events)));
    let hatchery = stage.connect().await?;
    let publishing = publish_shuffled(&hatchery, &mut chance, TYPE, args.events, |_, event| event);
    let (pause, fails) = (args.pause.to_string(), FAIL_EVERY.to_string());
    let arguments = ["--type", TYPE, "--pause", &pause, "--fail-every", &fails];
    let mut crew = Crew::start(&stage, "worker", args.kills.workers, &arguments)?;
    let mut killer = Killer::new(&stage, &args.kills, chance).await?;
    let all = args.events as usize;
    // The last events are those of killed workers, which wait for the ends of their leases. They are spared, because
    // kills would hit them again and again.
    let last = (all / 100).max(2 * CONCURRENCY * args.kills.workers as usize);
    let mut finished = BTreeSet::new();
    until_over(console, PATIENCE, async || {
        finished.extend(of(crew.look()?, Step::Done).map(Note::number));
        let done = finished.len();
        if done + last < all {
            killer.kill_if_due(&mut crew, &stage).await?;
        }
        Ok(Look { done, all, said: killer.said(), is_over: done == all && !queues.are_busy(&[]).await? })
    })
    .await?;
    publishing.await??;
    hatchery.close().await;
    crew.stop().await?;
    let names = stage.names();
    let dead = queues.ready(&[names.dead_letters(&TYPE.parse()?), names.unrouted()]).await?;
    Ok(stage.conclude(console, &[table(args, &crew.notes, &killer.killed, dead)]).await)
}

fn table(args: &Args, notes: &[Note], killed: &Killed, dead: u64) -> Table {
    let account = Account::take(0..args.events, of(notes, Step::Done).map(Note::number));
    let failed: BTreeSet<u32> = of(notes, Step::Failed).map(Note::number).collect();
    let unexplained = killed.unexplained(&finished_twice(notes)).len();
    let open = &killed.open;
    let most = *open.iter().max().unwrap_or(&0);

    let mut table = Table::new(&["", "", "must be"]);
    let all = args.events as usize;
    table.must(account.handled == all, &["handled", &grouped(account.handled), &format!("{}, all", grouped(all))]);
    table.none("lost", account.missing.len());
    table.none("unknown events", account.strangers);
    let fails = (0..args.events).step_by(FAIL_EVERY as usize).len();
    table.must(failed.len() == fails, &["failed when first tried", &grouped(failed.len()), &grouped(fails)]);
    table.none("in dead-letter and unrouted", dead);
    table.at_least("workers killed", open.len(), args.kills.at_least);
    table.must(
        most <= CONCURRENCY,
        &[
            "done and not settled at a kill",
            &format!("at most {most}"),
            &format!("at most {CONCURRENCY}, which run at a time"),
        ],
    );
    table.tell(&["the same, at all kills", &grouped(open.iter().sum::<usize>()), ""]);
    table.tell(&["handled twice", &grouped(account.twice.len()), ""]);
    table.none("of those, settled before the kill", unexplained);
    table
}
