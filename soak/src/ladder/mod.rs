//! Sends events with random dates through the ladder, and compares it with a ladder built with bare lapin.

mod bare;
mod ours;
mod topology;

use std::time::Duration;

use self::topology::{TOPOLOGY, TYPE};
use crate::{
    account::Account,
    chance::Chance,
    common::Common,
    console::Console,
    lateness::{Lateness, millis, ratio},
    plan::{Plan, Planned, Wait},
    queues::Queues,
    runs::Run,
    stage::Stage,
    table::{Table, grouped},
};

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
    /// Rounds; the sides take turns at being first
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Only account for the events and require no ratio, for small runs and busy machines
    #[arg(long)]
    no_ratio: bool,
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
    let Args { common, events, over, rounds, .. } = args;
    let mut chance = Chance::new(common.announce(console));
    let stage = Stage::set(console, common.version.as_deref(), TOPOLOGY).await?;
    let ladder = stage.topology.ladder;
    let step = ladder.resolution().as_duration();
    let queues = Queues::connect(&stage.servers.amqp).await?;
    let bare = bare::Ladder::declare(&stage.servers.amqp, ladder).await?;

    let (mut ours, mut other) = (Side::default(), Side::default());
    for round in 0..*rounds {
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
                ours.add(&plan, step, ours::run(&stage, &plan, console, &queues).await?);
            }
        }
    }
    let table = table(args, &ours, &other);
    console.step(&format!("The account, of RabbitMQ {}", stage.version));
    console.say(&table.render());
    console.note("the sides run one after the other, in turns; late: beyond the ladder's step of 250 ms");
    let holds = table.holds();
    if !holds {
        stage.keep("hatchery.tsv", &ours.runs)?;
        stage.keep("bare.tsv", &other.runs)?;
    }
    stage.end(console, holds).await;
    Ok(holds)
}

fn table(args: &Args, ours: &Side, bare: &Side) -> Table {
    let mut table = Table::new(&["", "hatchery", "bare lapin", "ratio", "must be"]);
    let expected = args.events * args.rounds;
    let account = |side: &Side| Account::take(0..expected, side.runs.iter().map(|run| run.number));
    let early = |side: &Side| side.runs.iter().filter(|run| run.is_early()).count();
    let (one, two) = (account(ours), account(bare));
    let seconds = |side: &Side| format!("{:.1} s", side.publishing.as_secs_f64());
    table.tell(&["publishing took", &seconds(ours), &seconds(bare), "", ""]);
    let mut count = |what: &str, ours: usize, bare: usize, must: u32| {
        let holds = ours == must as usize && bare == must as usize;
        table.must(holds, &[what, &grouped(ours as u64), &grouped(bare as u64), "", &grouped(must)]);
    };
    count("handled", one.handled, two.handled, expected);
    count("handled twice", one.twice.len(), two.twice.len(), 0);
    count("lost", one.missing.len(), two.missing.len(), 0);
    count("unknown events", one.strangers, two.strangers, 0);
    count("early", early(ours), early(bare), 0);
    let (ours, bare) = (Lateness::of(ours.late.iter().copied()), Lateness::of(bare.late.iter().copied()));
    for (what, permille, held) in [("late, p50", 500, true), ("late, p99", 990, true), ("late, at most", 1_000, false)]
    {
        let (one, two) = (ours.permille(permille), bare.permille(permille));
        let ratio = ratio(one, two);
        let cells = |must| [what.to_owned(), millis(one), millis(two), format!("{ratio:.2}"), must];
        if held && !args.no_ratio {
            table.must(ratio <= LIMIT, &cells(format!("at most {LIMIT}")).each_ref().map(String::as_str));
        } else {
            table.tell(&cells(String::new()).each_ref().map(String::as_str));
        }
    }
    table
}
