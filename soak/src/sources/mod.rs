//! Messages of two sources, with workers that are killed all the time and a broker that is restarted once.

mod messages;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use hatchery::{CancellationToken, Hatchery, Outcome, Run, internals::names::Names};

use self::messages::{body, is_mappable, rules};
use crate::{
    chance::Chance,
    child::Process,
    common::Common,
    console::Console,
    queues::Queues,
    stage::Stage,
    table::{Table, grouped},
};

/// The queue of somebody else.
const WEBHOOKS: &str = "webhooks";
/// How long nothing may happen before the run gives up.
const PATIENCE: Duration = Duration::from_mins(2);
const TICK: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Messages in the queue of somebody else; one in a hundred becomes no event
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    messages: u32,
    /// Messages in the declared queue, whose order is kept
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    ordered: u32,
    /// Worker processes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    workers: u32,
    /// Milliseconds between two kills, on average; each is random
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(10..))]
    kill_every: u32,
    /// Fail if there were fewer kills
    #[arg(long, default_value_t = 20)]
    at_least: u32,
}

/// The events that ran, by the number of their message.
#[derive(Clone, Default)]
struct Ran(Arc<Mutex<Runs>>);

#[derive(Default)]
struct Runs {
    theirs: BTreeMap<u32, u32>,
    /// In the order of the runs.
    own: Vec<u32>,
    strange: u32,
}

fn topology() -> String {
    format!(
        "\
version: 1
name: soak
types:
  work: {{ prefetch: 1000, concurrency: 50 }}
  line: {{ on-failure: block, prefetch: 500 }}
sources:
  theirs:
    queue: {WEBHOOKS}
    prefetch: 200
    events:
{}  own:
    declare: on
    events:
{}",
        rules("work"),
        rules("line")
    )
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let mut chance = Chance::new(args.common.announce(console));
    let mut stage = Stage::set(console, args.common.version.as_deref(), &topology()).await?;
    let names = Names::new(stage.topology.name.clone());
    let own = names.source(&"own".parse()?);

    let (messages, ordered) = (args.messages, args.ordered);
    console.step(&format!("Send {} messages to {WEBHOOKS}, and {} to {own}", grouped(messages), grouped(ordered)));
    let queues = Queues::connect(&stage.servers.amqp).await?;
    queues.declare(WEBHOOKS).await?;
    queues.feed(WEBHOOKS, (0..messages).map(|number| (number, body(number)))).await?;
    queues.feed(&own, (0..ordered).map(|number| (number, body(number)))).await?;

    console.step("Take them, kill a worker again and again, and restart the broker once");
    let (started, ran) = (Instant::now(), Ran::default());
    let hatchery = stage.connect().await?;
    let stop = CancellationToken::new();
    let handling = tokio::spawn(handle(&hatchery, &ran).run(stop.clone()));
    let mut crew = Crew { running: Vec::new(), names: 0, kills: 0 };
    for _ in 0..args.workers {
        crew.add(&stage)?;
    }
    let expected = mappable(messages) + mappable(ordered);
    let (mut restarted, mut moved, mut before) = (false, Instant::now(), 0);
    let mut next = kill_after(&mut chance, args);
    let mut taken = None;
    loop {
        tokio::time::sleep(TICK).await;
        let done = ran.count();
        if done > before {
            (moved, before) = (Instant::now(), done);
        }
        console.progress(done, expected, &format!(", {} kills", crew.kills));
        if !restarted && done >= expected / 3 {
            stage.servers.ctl("stop_app").await?;
            stage.servers.ctl("start_app").await?;
            (restarted, moved) = (true, Instant::now());
        }
        if done == expected || moved.elapsed() > PATIENCE {
            break;
        }
        if taken.is_none() && Instant::now() >= next {
            crew.kill_one(&stage, &mut chance).await?;
            next = kill_after(&mut chance, args);
        }
        if taken.is_none() && restarted && is_taken(&stage, &own).await? {
            taken = Some(started.elapsed());
        }
    }
    console.end_progress();
    // The last dead letters may still be on their way.
    wait_until_taken(&stage, &own).await?;
    let taken = taken.unwrap_or_else(|| started.elapsed());
    crew.stop().await?;
    stop.cancel();
    handling.await??;
    hatchery.close().await;

    let queues = Queues::connect(&stage.servers.amqp).await?;
    let letters = [
        queues.reasons(&names.source_dead_letters(&"theirs".parse()?)).await?,
        queues.reasons(&names.source_dead_letters(&"own".parse()?)).await?,
    ];
    let others = [WEBHOOKS.to_owned(), own, names.unrouted()];
    let left = queues.ready(&others).await?;
    let table = table(args, &ran, &letters, (left, crew.kills, restarted), taken);
    console.step(&format!("The account, of RabbitMQ {}", stage.version));
    console.say(&table.render());
    let holds = table.holds();
    stage.end(console, holds).await;
    Ok(holds)
}

/// The worker with the handlers, which is not killed. The register drops what comes twice.
fn handle(hatchery: &Hatchery, ran: &Ran) -> hatchery::Worker {
    let [theirs, own] = [ran.clone(), ran.clone()];
    let worker = hatchery.worker().handle("work", move |run: Run| {
        theirs.note(&run);
        ready(Ok::<_, String>(Outcome::Done))
    });
    worker.handle("line", move |run: Run| {
        own.note(&run);
        ready(Ok::<_, String>(Outcome::Done))
    })
}

impl Ran {
    fn note(&self, run: &Run) {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // `theirs:4711:2`
        let mut words = run.event.id.split(':');
        match (words.next(), words.next().and_then(|number| number.parse().ok())) {
            (Some("theirs"), Some(number)) => *runs.theirs.entry(number).or_default() += 1,
            (Some("own"), Some(number)) => runs.own.push(number),
            _ => runs.strange += 1,
        }
    }

    fn count(&self) -> usize {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.theirs.len() + runs.own.iter().collect::<BTreeSet<_>>().len()
    }
}

struct Crew {
    running: Vec<Process>,
    names: u32,
    kills: u32,
}

impl Crew {
    fn add(&mut self, stage: &Stage) -> anyhow::Result<()> {
        self.names += 1;
        let arguments = ["--sources", "theirs", "--sources", "own"].map(ToOwned::to_owned);
        self.running.push(Process::start(stage, "source", self.names, &arguments)?);
        Ok(())
    }

    async fn kill_one(&mut self, stage: &Stage, chance: &mut Chance) -> anyhow::Result<()> {
        let hit = usize::try_from(chance.between(0, self.running.len() as u64 - 1))?;
        self.running.swap_remove(hit).kill().await?;
        self.kills += 1;
        self.add(stage)
    }

    async fn stop(&mut self) -> anyhow::Result<()> {
        for worker in self.running.drain(..) {
            worker.stop().await?;
        }
        Ok(())
    }
}

/// Whether no message of a source is ready. A worker may hold some.
async fn is_taken(stage: &Stage, own: &str) -> anyhow::Result<bool> {
    let queues = Queues::connect(&stage.servers.amqp).await?;
    Ok(queues.ready(&[WEBHOOKS.to_owned(), own.to_owned()]).await? == 0)
}

async fn wait_until_taken(stage: &Stage, own: &str) -> anyhow::Result<()> {
    let calm = async {
        while !is_taken(stage, own).await? {
            tokio::time::sleep(TICK).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, calm).await.context("messages are left")?
}

fn kill_after(chance: &mut Chance, args: &Args) -> Instant {
    let every = u64::from(args.kill_every);
    Instant::now() + Duration::from_millis(chance.between(every / 2, every * 3 / 2))
}

fn mappable(messages: u32) -> usize {
    (0..messages).filter(|number| is_mappable(*number)).count()
}

fn table(
    args: &Args,
    ran: &Ran,
    letters: &[Vec<(String, Option<String>)>; 2],
    (left, kills, restarted): (u64, u32, bool),
    taken: Duration,
) -> Table {
    let runs = ran.0.lock().unwrap_or_else(PoisonError::into_inner);
    let count = |n: usize| grouped(n as u64);
    let mut table = Table::new(&["", "", "must be"]);
    let own: BTreeSet<u32> = runs.own.iter().copied().collect();
    for (name, all, ran, letters) in [
        ("theirs", args.messages, runs.theirs.keys().copied().collect::<BTreeSet<u32>>(), &letters[0]),
        ("own", args.ordered, own.clone(), &letters[1]),
    ] {
        let buried: BTreeSet<u32> = letters.iter().filter_map(|(id, _)| id.parse().ok()).collect();
        let (wanted, unmappable): (BTreeSet<u32>, BTreeSet<u32>) = (0..all).partition(|number| is_mappable(*number));
        let lost = (0..all).filter(|number| !ran.contains(number) && !buried.contains(number)).count();
        table.must(lost == 0, &[&format!("{name}: lost"), &count(lost), "0"]);
        table.must(ran == wanted, &[&format!("{name}: became events"), &count(ran.len()), &count(wanted.len())]);
        table.must(
            buried == unmappable,
            &[&format!("{name}: dead-lettered"), &count(buried.len()), &count(unmappable.len())],
        );
        let silent = letters.iter().filter(|(_, reason)| reason.is_none()).count();
        table.must(silent == 0, &[&format!("{name}: of those, without a reason"), &count(silent), "0"]);
        table.tell(&[&format!("{name}: of those, twice"), &count(letters.len() - buried.len()), ""]);
    }
    let twice = runs.theirs.values().filter(|runs| **runs > 1).count() + runs.own.len() - own.len();
    table.must(twice == 0, &["events that ran twice", &count(twice), "0"]);
    table.must(runs.strange == 0, &["events of no message", &grouped(runs.strange), "0"]);
    let overtaken = runs.own.windows(2).filter(|pair| pair[0] > pair[1]).count();
    table.must(overtaken == 0, &["own: out of order", &count(overtaken), "0"]);
    table.must(left == 0, &["in the sources and unrouted", &grouped(left), "0"]);
    table.must(kills >= args.at_least, &["workers killed", &grouped(kills), &format!("at least {}", args.at_least)]);
    table.must(restarted, &["the broker was restarted", if restarted { "yes" } else { "no" }, "yes"]);
    let messages = f64::from(args.messages + args.ordered);
    table.tell(&["messages a second, kills included", &format!("{:.0}", messages / taken.as_secs_f64()), ""]);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_valid_and_maps_what_it_should() {
        let file = hatchery::file::read(&topology(), "topology.yaml").unwrap_or_else(|error| panic!("{error}"));
        let names = Names::new(file.name.clone());
        let (name, spec) = file.sources.get_key_value("theirs").expect("the source");
        for number in 0..1_000 {
            let message = hatchery::internals::wire::Incoming {
                routing_key: String::new(),
                properties: hatchery::internals::wire::Properties::default(),
                body: body(number).into_bytes().into(),
            };
            let mapped = hatchery::internals::source::map(&names, (name, spec), file.max_payload, &message);
            assert_eq!(mapped.map(|events| events.len()).ok(), is_mappable(number).then_some(1), "{number}");
        }
    }
}
