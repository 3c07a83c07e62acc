//! Dead letters in large numbers: replayed beside a bare shovel, killed in the middle, looked at by three processes.

use std::{
    fs::File,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use hatchery::internals::names::Names;
use lapin::types::{AMQPValue, FieldTable};
use tokio::{process::Child, time::timeout};

use crate::harness::{Account, Chance, Common, Console, Message, PAYLOAD, Queues, Sides, Stage, Table, grouped};

const TOPOLOGY: &str = "\
version: 1
name: soak
types: { plain: { register: off }, registered: {} }
";
const TYPES: [&str; 2] = ["plain", "registered"];

/// The least rate of a replay, as a share of the rate of a bare shovel.
const LIMIT: f64 = 0.8;
/// The letters that a replay has confirmed and not acknowledged, at most.
const IN_FLIGHT: usize = 1_024;
/// The generation of letters that nothing has replayed before.
const GENERATION: i64 = 4;
/// The processes that look at a time.
const LOOKERS: usize = 3;

#[derive(clap::Args)]
#[command(mut_arg("rounds", |arg| arg.default_value("3")))]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Letters in the queue at a time
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    letters: u32,
    #[command(flatten)]
    sides: Sides,
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
        for round in 0..self.args.sides.rounds {
            for turn in [round, round + 1] {
                self.fill(event_type, 0..self.args.letters, GENERATION + 2 * i64::from(round)).await?;
                let what = if turn % 2 == 0 { "a bare shovel" } else { "a replay" };
                console.step(&format!("Round {}, {event_type}: {what}", round + 1));
                let begun = Instant::now();
                if turn % 2 == 0 {
                    self.queues.shovel(&from, &self.names.processor()).await?;
                    bare += begun.elapsed();
                } else {
                    ended(self.replay(event_type, &[])?).await?;
                    ours += begun.elapsed();
                }
                let moved = self.moved(&self.processing(event_type)?).await?;
                lost += moved.missing.len();
                twice += moved.twice.len();
                let left = self.queues.ready(std::slice::from_ref(&from)).await?;
                console.say(&format!("{} twice, {left} left", moved.twice.len()));
            }
        }
        let all = f64::from(self.args.letters) * f64::from(self.args.sides.rounds);
        let (bare, ours) = (all / bare.as_secs_f64(), all / ours.as_secs_f64());
        self.table.tell(&[&format!("{event_type}: shovelled a second"), &format!("{bare:.0}"), ""]);
        self.table.tell(&[&format!("{event_type}: replayed a second"), &format!("{ours:.0}"), ""]);
        let (share, limit) = (ours / bare, self.args.sides.limit(LIMIT));
        let must = limit.map_or_else(String::new, |limit| format!("at least {limit}"));
        let holds = limit.is_none_or(|limit| share >= limit);
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
        let mut replay = self.replay(event_type, &[])?;
        let middle = chance.between(letters / 5, letters / 2);
        while self.queues.ready(std::slice::from_ref(&to)).await? < middle {
            ensure!(replay.try_wait()?.is_none(), "the replay ended before its kill");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        replay.start_kill()?;
        replay.wait().await?;
        ended(self.replay(event_type, &[])?).await?;
        let moved = self.moved(&to).await?;
        self.table.none("killed: lost", moved.missing.len());
        let twice = moved.twice.len();
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
        let replay = self.replay(event_type, &["--limit", &half.to_string()])?;
        let looks = (0..LOOKERS).map(|n| {
            let list = ["dead-letter", "list", "--events", "-o", "ndjson", "--wait", "10m", "--type", event_type];
            let file = File::create(self.stage.path(&format!("look-{n}")))?;
            anyhow::Ok(self.stage.topology(&list)?.stdout(Stdio::from(file)).spawn()?)
        });
        let looks: Vec<Child> = looks.collect::<Result<_, _>>()?;
        let more = letters + letters / 10;
        self.fill(event_type, letters..more, GENERATION).await?;
        try_join_all(looks.into_iter().map(ended)).await?;
        ended(replay).await?;
        let (mut gaps, mut seen) = (0, 0);
        for n in 0..LOOKERS {
            let ids = ids(&std::fs::read_to_string(self.stage.path(&format!("look-{n}")))?)?;
            let numbers = numbers(&ids)?;
            seen += numbers.len();
            // Everything that no replay could have taken was seen.
            gaps += gaps_in(&numbers) + (half as usize).saturating_sub(numbers.len());
        }
        let left = numbers(&self.queues.drain(&self.dead_letters(event_type)?).await?)?;
        let moved = numbers(&self.queues.drain(&self.processing(event_type)?).await?)?;
        let account = Account::take(0..more, left.iter().chain(&moved).copied());
        self.table.tell(&["looked at: seen by three", &grouped(seen), ""]);
        self.table.none("looked at: not seen, or in another order", gaps);
        self.table.none("looked at: out of order afterwards", gaps_in(&left));
        self.table.none("looked at: lost", account.missing.len());
        self.table.none("looked at: twice", account.twice.len());
        Ok(())
    }

    /// Removes all events from a queue, and accounts for them.
    async fn moved(&self, queue: &str) -> anyhow::Result<Account> {
        Ok(Account::take(0..self.args.letters, numbers(&self.queues.drain(queue).await?)?))
    }

    async fn fill(&self, event_type: &str, numbers: std::ops::Range<u32>, generation: i64) -> anyhow::Result<()> {
        let letters = numbers.map(|number| letter(event_type, number, generation));
        self.queues.publish(&self.names.dead_letter(), letters).await
    }

    /// Starts a replay.
    fn replay(&self, event_type: &str, arguments: &[&str]) -> anyhow::Result<Child> {
        let replay = ["dead-letter", "replay", "--yes", "--type", event_type];
        Ok(self.stage.topology(&[&replay, arguments].concat())?.spawn()?)
    }

    fn processing(&self, event_type: &str) -> anyhow::Result<String> {
        Ok(self.names.processing(&event_type.parse()?))
    }

    fn dead_letters(&self, event_type: &str) -> anyhow::Result<String> {
        Ok(self.names.dead_letters(&event_type.parse()?))
    }
}

/// Waits for the end of a command. Fails if it has failed.
async fn ended(mut command: Child) -> anyhow::Result<()> {
    let status = timeout(Duration::from_mins(20), command.wait()).await.context("a command does not end")??;
    ensure!(status.success(), "a command failed: {status}");
    Ok(())
}

/// Returns a letter as a worker writes it, with its number as the id. A letter of a number that was replayed needs a higher
/// generation, or it is obsolete.
fn letter(event_type: &str, number: u32, generation: i64) -> Message {
    let text = |text: &str| AMQPValue::LongString(text.into());
    let failure = "2026-06-01T09:00:00.000Z connection refused";
    let mut headers = FieldTable::default();
    headers.insert("reference".into(), text(&number.to_string()));
    headers.insert("attempts".into(), AMQPValue::LongLongInt(4));
    headers.insert("generation".into(), AMQPValue::LongLongInt(generation));
    headers.insert("first_failure".into(), text(failure));
    headers.insert("last_failure".into(), text(failure));
    headers.insert("reason".into(), text(&format!("given up: attempt=4 failed_at={failure}")));
    Message::new(&format!("{event_type}.dead-letter"), number, PAYLOAD.to_vec()).of_type(event_type, headers)
}

/// Returns the ids in a list of letters.
fn ids(list: &str) -> anyhow::Result<Vec<String>> {
    let id = |line: &str| {
        let letter: serde_json::Value = serde_json::from_str(line)?;
        Ok(letter["id"].as_str().context("a letter without an id")?.to_owned())
    };
    list.lines().map(id).collect()
}

/// Returns the numbers of letters, in the order in which they were found.
fn numbers(ids: &[String]) -> anyhow::Result<Vec<u32>> {
    Ok(ids.iter().map(|id| id.parse()).collect::<Result<_, _>>()?)
}

/// Returns how many numbers do not follow the one before them.
fn gaps_in(numbers: &[u32]) -> usize {
    numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_does_not_follow_the_one_before_it_is_a_gap() {
        assert_eq!(gaps_in(&[0, 1, 3, 4, 4]), 2);
    }
}
