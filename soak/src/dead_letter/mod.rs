//! Dead letters in large numbers: replayed beside a bare shovel, killed in the middle, looked at by three processes.

mod letters;

use std::{
    fs::File,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use hatchery::internals::names::Names;
use tokio::process::{Child, Command};

use self::letters::{Numbers, letter};
use crate::harness::{Chance, Common, Console, Queues, Stage, Table, grouped};

const TOPOLOGY: &str = "\
version: 1
name: soak
types: { plain: { register: off }, registered: {} }
";
const TYPES: [&str; 2] = ["plain", "registered"];

/// The least rate of a replay, as a share of the rate of a bare shovel.
const LIMIT: f64 = 0.8;
/// The letters that a replay has confirmed and not acknowledged, at most.
const IN_FLIGHT: u64 = 1_024;
/// The generation of letters that nothing has replayed before.
const GENERATION: i64 = 4;
/// The processes that look at a time.
const LOOKERS: usize = 3;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Letters in the queue at a time
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    letters: u32,
    /// Rounds of the rates; the shovel and the replay take turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Only account for the letters and require no rate, for small runs and busy machines
    #[arg(long)]
    no_ratio: bool,
}

struct Soak<'a> {
    args: &'a Args,
    stage: Stage,
    queues: Queues,
    names: Names,
    table: Table,
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let (stage, queues, chance) = args.common.begin(console, TOPOLOGY).await?;
    let (names, table) = (stage.names(), Table::new(&["", "count", "must be"]));
    let mut soak = Soak { args, stage, queues, names, table };
    for event_type in TYPES {
        soak.rates(event_type, console).await?;
    }
    soak.kill(chance, console).await?;
    soak.look(console).await?;
    Ok(soak.stage.conclude(console, &[soak.table]).await)
}

impl Soak<'_> {
    /// Moves all letters with a bare shovel (get, publish, confirm, acknowledge), and with a replay.
    async fn rates(&mut self, event_type: &str, console: &mut Console) -> anyhow::Result<()> {
        let (mut bare, mut ours) = (Duration::ZERO, Duration::ZERO);
        let (mut lost, mut twice) = (0, 0);
        let from = self.dead_letters(event_type)?;
        for round in 0..self.args.rounds {
            for turn in [round, round + 1] {
                self.fill(event_type, 0..self.args.letters, GENERATION + 2 * i64::from(round)).await?;
                let what = if turn % 2 == 0 { "a bare shovel" } else { "a replay" };
                console.step(&format!("Round {}, {event_type}: {what}", round + 1));
                let begun = Instant::now();
                if turn % 2 == 0 {
                    self.queues.shovel(&from, &self.names.processor()).await?;
                    bare += begun.elapsed();
                } else {
                    let replay = self.topology(&["replay", "--yes", "--type", event_type])?.spawn()?;
                    ensure!(ended(replay).await?.success(), "a replay failed");
                    ours += begun.elapsed();
                }
                let moved = Numbers::of(&self.queues.drain(&self.processing(event_type)?).await?)?;
                lost += moved.missing(self.args.letters);
                twice += moved.twice();
                let left = self.queues.ready(std::slice::from_ref(&from)).await?;
                console.say(&format!("{} twice, {} left", moved.twice(), left));
            }
        }
        let all = f64::from(self.args.letters) * f64::from(self.args.rounds);
        let (bare, ours) = (all / bare.as_secs_f64(), all / ours.as_secs_f64());
        self.table.tell(&[&format!("{event_type}: shovelled a second"), &format!("{bare:.0}"), ""]);
        self.table.tell(&[&format!("{event_type}: replayed a second"), &format!("{ours:.0}"), ""]);
        let (share, must) = (ours / bare, if self.args.no_ratio { String::new() } else { format!("at least {LIMIT}") });
        let holds = self.args.no_ratio || share >= LIMIT;
        self.table.must(holds, &[&format!("{event_type}: share"), &format!("{share:.2}"), &must]);
        self.table.none(&format!("{event_type}: lost"), lost);
        self.table.none(&format!("{event_type}: twice"), twice);
        Ok(())
    }

    /// Kills a replay in the middle, and runs it again.
    async fn kill(&mut self, mut chance: Chance, console: &mut Console) -> anyhow::Result<()> {
        let [event_type, _] = TYPES;
        let (to, letters) = (self.processing(event_type)?, u64::from(self.args.letters));
        self.fill(event_type, 0..self.args.letters, GENERATION).await?;
        console.step("A replay that gets `kill -9` in the middle, and another one after it");
        let mut replay = self.topology(&["replay", "--yes", "--type", event_type])?.spawn()?;
        let middle = chance.between(letters / 5, letters / 2);
        while self.queues.ready(std::slice::from_ref(&to)).await? < middle {
            ensure!(replay.try_wait()?.is_none(), "the replay ended before its kill");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        replay.start_kill()?;
        replay.wait().await?;
        let again = self.topology(&["replay", "--yes", "--type", event_type])?.spawn()?;
        ensure!(ended(again).await?.success(), "the second replay failed");
        let moved = Numbers::of(&self.queues.drain(&to).await?)?;
        let (lost, twice) = (moved.missing(self.args.letters), moved.twice());
        self.table.none("killed: lost", lost);
        let must = format!("at most {}", grouped(IN_FLIGHT));
        self.table.must(twice <= IN_FLIGHT, &["killed: twice", &grouped(twice), &must]);
        let left = self.queues.ready(&[self.dead_letters(event_type)?]).await?;
        self.table.none("killed: left", left);
        Ok(())
    }

    /// Looks from three processes at a time while letters are added, and while half of them are replayed.
    async fn look(&mut self, console: &mut Console) -> anyhow::Result<()> {
        let [event_type, _] = TYPES;
        let (letters, half) = (self.args.letters, self.args.letters / 2);
        self.fill(event_type, 0..letters, GENERATION).await?;
        console.step("Three processes look while letters are added and a replay runs");
        let limit = half.to_string();
        let replay = self.topology(&["replay", "--yes", "--type", event_type, "--limit", &limit])?.spawn()?;
        let looks = (0..LOOKERS).map(|n| {
            let list = ["list", "--events", "-o", "ndjson", "--wait", "10m", "--type", event_type];
            let file = File::create(self.stage.path(&format!("look-{n}")))?;
            anyhow::Ok(self.topology(&list)?.stdout(Stdio::from(file)).spawn()?)
        });
        let looks: Vec<Child> = looks.collect::<Result<_, _>>()?;
        let more = letters + letters / 10;
        self.fill(event_type, letters..more, GENERATION).await?;
        for look in try_join_all(looks.into_iter().map(ended)).await? {
            ensure!(look.success(), "a look failed");
        }
        ensure!(ended(replay).await?.success(), "the replay failed");
        let (mut gaps, mut seen) = (0, 0);
        for n in 0..LOOKERS {
            let ids = letters::ids(&std::fs::read_to_string(self.stage.path(&format!("look-{n}")))?)?;
            let numbers = Numbers::of(&ids)?;
            gaps += numbers.gaps();
            seen += numbers.count();
            // Everything that no replay could have taken was seen.
            gaps += u64::from(half).saturating_sub(numbers.count());
        }
        let left = Numbers::of(&self.queues.drain(&self.dead_letters(event_type)?).await?)?;
        let moved = Numbers::of(&self.queues.drain(&self.processing(event_type)?).await?)?;
        self.table.tell(&["looked at: seen by three", &grouped(seen), ""]);
        self.table.none("looked at: not seen, or in another order", gaps);
        let out_of_order = left.gaps();
        self.table.none("looked at: out of order afterwards", out_of_order);
        let lost = u64::from(more).saturating_sub(left.count() + moved.count());
        self.table.none("looked at: lost", lost);
        let twice = left.twice() + moved.twice() + left.common(&moved);
        self.table.none("looked at: twice", twice);
        Ok(())
    }

    async fn fill(&self, event_type: &str, numbers: std::ops::Range<u32>, generation: i64) -> anyhow::Result<()> {
        let letters = numbers.map(|number| letter(event_type, number, generation));
        self.queues.publish(&self.names.dead_letter(), letters).await
    }

    fn topology(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        self.stage.topology(&[&["dead-letter"], arguments].concat())
    }

    fn processing(&self, event_type: &str) -> anyhow::Result<String> {
        Ok(self.names.processing(&event_type.parse()?))
    }

    fn dead_letters(&self, event_type: &str) -> anyhow::Result<String> {
        Ok(self.names.dead_letters(&event_type.parse()?))
    }
}

async fn ended(mut process: Child) -> anyhow::Result<ExitStatus> {
    tokio::time::timeout(Duration::from_mins(20), process.wait())
        .await
        .context("a process does not end")?
        .context("wait")
}
