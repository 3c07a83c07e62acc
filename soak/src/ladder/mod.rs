//! Sends events with random dates through the ladder, and compares it with a ladder built with bare lapin.

mod bare;

use std::time::Duration;

use self::bare::TYPE;
use crate::harness::{
    Account, Common, Console, Lateness, Plan, Planned, Run, Sides, Table, Wait, grouped, ratio_row, run_plan,
};

/// The topology of hatchery's side. Bare lapin has the prefetch too.
const TOPOLOGY: &str = "\
version: 1
name: soak
ladder: { resolution: 250ms, horizon: 365d }
types:
  timed: { prefetch: 200, concurrency: 16 }
";

/// The time between two bursts.
const EVERY: Duration = Duration::from_secs(1);
/// The largest number of events in a burst.
const BURST: usize = 2_500;
/// The least number of bursts.
const FEWEST: usize = 4;

/// The largest ratio of hatchery's lateness to bare lapin's.
const LIMIT: f64 = 1.5;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Events of each side in a round
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    events: u32,
    /// Seconds over which the dates are spread
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..))]
    over: u32,
    #[command(flatten)]
    sides: Sides,
}

/// The runs and times of one side in all rounds.
#[derive(Default)]
struct Side {
    runs: Vec<Run>,
    late: Vec<i64>,
    publishing: Duration,
}

impl Side {
    fn add(&mut self, plan: &Plan, step: Duration, (runs, publishing): (Vec<Run>, Duration)) {
        self.late.extend(plan.lateness(&runs, step));
        self.runs.extend(runs);
        self.publishing += publishing;
    }
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let Args { common, events, over, sides } = args;
    let (stage, queues, mut chance) = common.begin(console, TOPOLOGY).await?;
    let ladder = stage.topology.ladder;
    let step = ladder.resolution().as_duration();
    let bare = bare::Ladder::declare(&stage.servers.amqp, ladder).await?;

    let (mut ours, mut other) = (Side::default(), Side::default());
    for round in 0..sides.rounds {
        let wait = |_| Wait::Ladder(Duration::from_millis(chance.between(1, u64::from(*over) * 1_000)));
        let events = (0..*events).map(wait).map(|wait| Planned { event_type: TYPE, wait }).collect();
        let burst = BURST.min(args.events as usize / FEWEST).max(1);
        let plan = Plan { first: round * args.events, events, burst, every: EVERY };
        for turn in [round, round + 1] {
            if turn % 2 == 0 {
                console.step(&format!("Round {}: bare lapin", round + 1));
                other.add(&plan, step, bare.run(&plan, console, &queues).await?);
            } else {
                console.step(&format!("Round {}: hatchery", round + 1));
                ours.add(&plan, step, run_plan(&stage, &queues, console, &plan, TYPE, &[]).await?);
            }
        }
    }
    stage.keep("hatchery.tsv", &ours.runs)?;
    stage.keep("bare.tsv", &other.runs)?;
    let holds = stage.conclude(console, &[table(args, &ours, &other)]).await;
    console.note("the sides run one after the other, in turns; late: beyond the ladder's step of 250 ms");
    Ok(holds)
}

fn table(args: &Args, ours: &Side, bare: &Side) -> Table {
    let mut table = Table::new(&["", "hatchery", "bare lapin", "ratio", "must be"]);
    let expected = args.events * args.sides.rounds;
    let [one, two] = [ours, bare].map(|side| Account::of(0..expected, &side.runs));
    let seconds = |side: &Side| format!("{:.1} s", side.publishing.as_secs_f64());
    table.tell(&["publishing took", &seconds(ours), &seconds(bare), "", ""]);
    let mut count = |what: &str, ours: usize, bare: usize, must: u32| {
        let holds = ours == must as usize && bare == must as usize;
        table.must(holds, &[what, &grouped(ours), &grouped(bare), "", &grouped(must)]);
    };
    count("handled", one.handled, two.handled, expected);
    count("handled twice", one.twice.len(), two.twice.len(), 0);
    count("lost", one.missing.len(), two.missing.len(), 0);
    count("unknown events", one.strangers, two.strangers, 0);
    count("early", one.early, two.early, 0);
    let sides = [ours, bare].map(|side| Lateness::of(side.late.iter().copied()));
    let limit = args.sides.limit(LIMIT);
    for (what, permille, limit) in
        [("late, p50", 500, limit), ("late, p99", 990, limit), ("late, at most", 1_000, None)]
    {
        ratio_row(&mut table, what, sides.each_ref(), permille, limit);
    }
    table
}
