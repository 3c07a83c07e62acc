//! Publishes delayed events of a type whose processing queue was deleted, together with events of a healthy type.
//! Measures whether the healthy events become late.

use std::time::Duration;

use hatchery::internals::names::Names;

use crate::harness::{
    Account, Chance, Common, Console, Lateness, Plan, Planned, Queues, Run, Sides, Stage, Table, Wait, Working,
    grouped, publish_plan, ratio_row, run_plan,
};

const TOPOLOGY: &str = "\
version: 1
name: soak
hatcheries: [10s]
ladder: { resolution: 250ms, horizon: 365d }
defaults: { prefetch: 200, concurrency: 16 }
types: { healthy: {}, gone: {} }
";
const HEALTHY: &str = "healthy";
const GONE: &str = "gone";
const NAMED: Duration = Duration::from_secs(10);
/// The time between two bursts: five hundred events of a type in a second, evenly. Each type has a publisher of its
/// own, and the two take turns, because an event that waits behind a burst is late whether a hatchery is wedged or not.
const EVERY: Duration = Duration::from_millis(50);
const BURST: usize = 25;

/// The largest ratio of the healthy events' lateness beside the deleted type to their lateness alone.
const LIMIT: f64 = 1.5;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Events of each of the two types
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    events: u32,
    /// The longest wait in seconds. Every other event waits ten seconds in a named hatchery
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    over: u32,
    #[command(flatten)]
    sides: Sides,
}

/// The stage, and the measurements of all rounds.
struct Wedge<'a> {
    args: &'a Args,
    stage: Stage,
    queues: Queues,
    names: Names,
    chance: Chance,
    next: u32,
    alone: Seen,
    beside: Seen,
    /// Numbers of events of the deleted type: published, found in `unrouted` by their ids, moved back, handled in the
    /// end.
    gone: [u64; 4],
    off: [usize; 3],
}

/// The measurements of healthy events, beside the deleted type or alone.
#[derive(Default)]
struct Seen {
    /// How late the events were after their dates, in microseconds.
    late: Vec<i64>,
    /// How late they were without the ladder's own step, in microseconds: the time in the broker and the worker.
    beyond: Vec<i64>,
    handled: usize,
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let (stage, queues, chance) = args.common.begin(console, TOPOLOGY).await?;
    let names = stage.names();
    let (alone, beside) = (Seen::default(), Seen::default());
    let mut wedge = Wedge { args, stage, queues, names, chance, next: 0, alone, beside, gone: [0; 4], off: [0; 3] };
    for round in 0..args.sides.rounds {
        for turn in [round, round + 1] {
            if turn % 2 == 0 {
                console.step(&format!("Round {}: the healthy type alone", round + 1));
                wedge.alone(console).await?;
            } else {
                console.step(&format!("Round {}: beside a type whose processing queue is deleted", round + 1));
                wedge.beside(console).await?;
            }
        }
    }
    let table = wedge.table();
    let holds = wedge.stage.conclude(console, &[table]).await;
    console.note("late: after the event was due; beyond the step: without the ladder's step of at most 250 ms");
    Ok(holds)
}

impl Wedge<'_> {
    async fn alone(&mut self, console: &mut Console) -> anyhow::Result<()> {
        let plan = self.plan(HEALTHY);
        let runs = self.healthy(&plan, None, console).await?;
        self.note(&plan, &runs, false)
    }

    async fn beside(&mut self, console: &mut Console) -> anyhow::Result<()> {
        let queue = self.names.processing(&GONE.parse()?);
        self.queues.delete(&queue).await?;
        let (plan, others) = (self.plan(HEALTHY), self.plan(GONE));
        let runs = self.healthy(&plan, Some(&others), console).await?;
        self.note(&plan, &runs, true)?;

        console.step("Find the events of the deleted type in unrouted, apply, and move them back");
        let unrouted = self.names.unrouted();
        let published = u64::from(self.args.events);
        self.gone[0] += published;
        self.stage.apply().await?;
        let moved = self.queues.shovel(&unrouted, &self.names.processor()).await?;
        let found = Account::take(others.numbers(), moved.iter().map(|id| id.parse().unwrap_or(u32::MAX)));
        if !found.twice.is_empty() {
            console.note(&format!("in unrouted more than once: {:?}", found.twice));
        }
        let hatchery = self.stage.connect().await?;
        let working = Working::start(&hatchery, &[GONE]);
        let runs = working.finish(console, &self.queues, self.args.events as usize, Duration::ZERO, &[]).await?;
        hatchery.close().await;
        let account = Account::of(others.numbers(), &runs);
        self.gone[1] += found.handled as u64;
        self.gone[2] += moved.len() as u64;
        self.gone[3] += account.handled as u64;
        self.off(&account);
        Ok(())
    }

    fn plan(&mut self, event_type: &'static str) -> Plan {
        let longest = u64::from(self.args.over) * 1_000;
        let mut planned = |n| match n % 2 {
            0 => Wait::Ladder(Duration::from_millis(self.chance.between(1, longest))),
            _ => Wait::Named(NAMED),
        };
        let events = (0..self.args.events).map(|n| Planned { event_type, wait: planned(n) }).collect();
        let plan = Plan { first: self.next, events, burst: BURST, every: EVERY };
        self.next = plan.numbers().end;
        plan
    }

    /// Publishes the healthy events, together with `others` if there are any, and works only on the healthy type.
    async fn healthy(&self, plan: &Plan, others: Option<&Plan>, console: &mut Console) -> anyhow::Result<Vec<Run>> {
        let other = self.stage.connect().await?;
        let (publisher, others) = (other.publisher(), others.cloned());
        let publishing_others = tokio::spawn(async move {
            tokio::time::sleep(EVERY / 2).await;
            match others {
                Some(others) => publish_plan(publisher, others).await,
                None => Ok(Duration::ZERO),
            }
        });
        // The deleted queue cannot be asked for its messages.
        let gone = [self.names.processing(&GONE.parse()?)];
        let (runs, _) = run_plan(&self.stage, &self.queues, console, plan, HEALTHY, &gone).await?;
        publishing_others.await??;
        other.close().await;
        Ok(runs)
    }

    fn note(&mut self, plan: &Plan, runs: &[Run], beside: bool) -> anyhow::Result<()> {
        let step = self.stage.topology.ladder.resolution().as_duration();
        self.stage.keep(&format!("{}-{}.tsv", plan.first, if beside { "beside" } else { "alone" }), runs)?;
        let account = Account::of(plan.numbers(), runs);
        let seen = if beside { &mut self.beside } else { &mut self.alone };
        seen.late.extend(runs.iter().map(|run| run.at - run.nbf));
        seen.beyond.extend(plan.lateness(runs, step));
        seen.handled += account.handled;
        self.off(&account);
        Ok(())
    }

    fn off(&mut self, account: &Account) {
        for (sum, more) in self.off.iter_mut().zip([account.early, account.twice.len(), account.missing.len()]) {
            *sum += more;
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&["", "beside", "alone", "ratio", "must be"]);
        let all = u64::from(self.args.events * self.args.sides.rounds);
        let (beside, alone) = (self.beside.handled as u64, self.alone.handled as u64);
        let must = grouped(all);
        table.must(beside == all && alone == all, &["healthy, handled", &grouped(beside), &grouped(alone), "", &must]);
        let late = [&self.beside, &self.alone].map(|seen| Lateness::of(seen.late.iter().copied()));
        let beyond = [&self.beside, &self.alone].map(|seen| Lateness::of(seen.beyond.iter().copied()));
        let limit = self.args.sides.limit(LIMIT);
        for (what, sides, permille) in [
            ("late, p50", &late, 500),
            ("late, p99", &late, 990),
            ("beyond the step, p50", &beyond, 500),
            ("beyond the step, p99", &beyond, 990),
        ] {
            ratio_row(&mut table, what, sides.each_ref(), permille, limit);
        }
        let texts = ["the others, published", "in unrouted", "moved back", "handled then"];
        for (what, count) in texts.into_iter().zip(self.gone) {
            table.must(count == all, &[what, &grouped(count), "", "", &must]);
        }
        for (what, count) in ["early", "handled twice", "lost"].into_iter().zip(self.off) {
            table.must(count == 0, &[what, &grouped(count), "", "", "0"]);
        }
        table
    }
}
