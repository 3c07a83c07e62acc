//! Messages of two sources, with workers that are killed all the time and a broker that is restarted once.

mod messages;

use std::{
    collections::BTreeSet,
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use hatchery::{CancellationToken, Hatchery, Outcome, Run};

use self::messages::{body, is_mappable, rules};
use crate::harness::{
    Account, Common, Console, Crew, Kills, Look, Message, Queues, Stage, Table, backwards, grouped, until_over,
};

/// The queue of somebody else.
const WEBHOOKS: &str = "webhooks";
/// How long nothing may happen before the run gives up.
const PATIENCE: Duration = Duration::from_mins(2);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    kills: Kills,
    /// Messages in the queue of somebody else; one in a hundred becomes no event
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    messages: u32,
    /// Messages in the declared queue, whose order is kept
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    ordered: u32,
}

/// The sources.
const SOURCES: [&str; 2] = ["theirs", "own"];

/// The events that ran.
#[derive(Clone, Default)]
struct Ran(Arc<Mutex<Runs>>);

#[derive(Default)]
struct Runs {
    /// The numbers of the messages of each source, in the order of the runs.
    of: [Vec<u32>; 2],
    strange: usize,
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
    let (mut stage, queues, chance) = args.common.begin(console, &topology()).await?;
    let names = stage.names();
    let own = names.source(&"own".parse()?);

    let (messages, ordered) = (args.messages, args.ordered);
    console.step(&format!("Send {} messages to {WEBHOOKS}, and {} to {own}", grouped(messages), grouped(ordered)));
    queues.declare(WEBHOOKS).await?;
    for (queue, count) in [(WEBHOOKS, messages), (&own, ordered)] {
        let message = |number| Message::new(queue, number, body(number).into_bytes());
        queues.publish("", (0..count).map(message)).await?;
    }

    console.step("Take them, kill a worker again and again, and restart the broker once");
    let (started, ran) = (Instant::now(), Ran::default());
    let hatchery = stage.connect().await?;
    let stop = CancellationToken::new();
    let handling = tokio::spawn(handle(&hatchery, &ran).run(stop.clone()));
    let mut crew = Crew::start(&stage, &args.kills, chance, &["--source", "theirs", "--source", "own"]).await?;
    let all = [messages, ordered].map(mappable).iter().sum();
    let (mut is_restarted, mut taken) = (false, None);
    until_over(console, PATIENCE, async || {
        crew.look()?;
        let done = ran.count();
        if !is_restarted && done >= all / 3 {
            stage.servers.ctl("stop_app").await?;
            stage.servers.ctl("start_app").await?;
            is_restarted = true;
        }
        if taken.is_none() && done < all {
            crew.kill_if_due(&stage).await?;
        }
        // The last dead letters may be on their way after the last event.
        let is_taken = is_restarted && is_taken(&stage, &own).await?;
        if is_taken {
            taken.get_or_insert_with(|| started.elapsed());
        }
        let said = format!(", {} kills", crew.killed.open.len());
        Ok(Look { done, all, said, is_over: done == all && is_taken })
    })
    .await?;
    let taken = taken.unwrap_or_else(|| started.elapsed());
    crew.stop().await?;
    stop.cancel();
    handling.await??;
    hatchery.close().await;

    let table = table(args, &stage, &ran, (crew.killed.open.len(), is_restarted), taken).await?;
    Ok(stage.conclude(console, &[table]).await)
}

/// The worker with the handlers, which is not killed. The register drops what comes twice.
fn handle(hatchery: &Hatchery, ran: &Ran) -> hatchery::Worker {
    ["work", "line"].into_iter().fold(hatchery.worker(), |worker, event_type| {
        let ran = ran.clone();
        worker.handle(event_type, move |run: Run| {
            ran.note(&run);
            ready(Ok::<_, String>(Outcome::Done))
        })
    })
}

impl Ran {
    fn note(&self, run: &Run) {
        let mut runs = self.lock();
        // `theirs:4711:2`
        let mut words = run.event.id.split(':');
        let source = words.next().and_then(|name| SOURCES.iter().position(|source| *source == name));
        match (source, words.next().and_then(|number| number.parse().ok())) {
            (Some(source), Some(number)) => runs.of[source].push(number),
            _ => runs.strange += 1,
        }
    }

    /// Returns how many messages have become an event that ran.
    fn count(&self) -> usize {
        self.lock().of.iter().map(|of| of.iter().collect::<BTreeSet<_>>().len()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether no message of a source is ready. A worker may hold some.
async fn is_taken(stage: &Stage, own: &str) -> anyhow::Result<bool> {
    let queues = Queues::connect(stage).await?;
    Ok(queues.ready(&[WEBHOOKS.to_owned(), own.to_owned()]).await? == 0)
}

fn mappable(messages: u32) -> usize {
    (0..messages).filter(|number| is_mappable(*number)).count()
}

async fn table(
    args: &Args,
    stage: &Stage,
    ran: &Ran,
    (kills, is_restarted): (usize, bool),
    taken: Duration,
) -> anyhow::Result<Table> {
    // The broker was restarted.
    let (queues, names) = (Queues::connect(stage).await?, stage.names());
    let (of, strange) = {
        let runs = ran.lock();
        (runs.of.clone(), runs.strange)
    };
    let (mut table, mut twice) = (Table::new(&["", "", "must be"]), 0);
    for ((name, all), ran) in SOURCES.into_iter().zip([args.messages, args.ordered]).zip(&of) {
        let letters = queues.reasons(&names.source_dead_letters(&name.parse()?)).await?;
        twice += tell(&mut table, name, all, ran, &letters);
    }
    table.none("events that ran twice", twice);
    table.none("events of no message", strange);
    table.none("own: out of order", backwards(&of[1]));
    let queued = [WEBHOOKS.to_owned(), names.source(&"own".parse()?), names.unrouted()];
    table.none("in the sources and unrouted", queues.ready(&queued).await?);
    table.at_least("workers killed", kills, args.kills.at_least);
    table.must(is_restarted, &["the broker was restarted", if is_restarted { "yes" } else { "no" }, "yes"]);
    let messages = f64::from(args.messages + args.ordered);
    table.tell(&["messages a second, kills included", &format!("{:.0}", messages / taken.as_secs_f64()), ""]);
    Ok(table)
}

/// Adds the messages of a source, by the numbers of those whose events ran, and by the dead letters with their reasons.
/// Returns how many events ran twice.
fn tell(table: &mut Table, name: &str, all: u32, ran: &[u32], letters: &[(String, Option<String>)]) -> usize {
    let buried: BTreeSet<u32> = letters.iter().filter_map(|(id, _)| id.parse().ok()).collect();
    let unmappable: BTreeSet<u32> = (0..all).filter(|number| !is_mappable(*number)).collect();
    let account = Account::take(0..all, ran.iter().copied());
    table.none(&format!("{name}: lost"), account.missing.iter().filter(|number| !buried.contains(number)).count());
    let holds = account.strangers == 0 && account.missing.iter().eq(&unmappable);
    let must = all as usize - unmappable.len();
    table.must(holds, &[&format!("{name}: became events"), &grouped(account.handled), &grouped(must)]);
    table.must(
        buried == unmappable,
        &[&format!("{name}: dead-lettered"), &grouped(buried.len()), &grouped(unmappable.len())],
    );
    let silent = letters.iter().filter(|(_, reason)| reason.is_none()).count();
    table.none(&format!("{name}: of those, without a reason"), silent);
    table.tell(&[&format!("{name}: of those, twice"), &grouped(letters.len() - buried.len()), ""]);
    account.twice.len()
}

#[cfg(test)]
mod tests {
    use hatchery::internals::names::Names;

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

    #[test]
    fn each_message_has_to_become_an_event_or_a_dead_letter_with_a_reason() {
        let holds = |ran: &[u32], letters: &[(&str, Option<&str>)]| {
            let mut table = Table::new(&["", "", "must be"]);
            let letters: Vec<_> = letters.iter().map(|(id, why)| ((*id).to_owned(), why.map(str::to_owned))).collect();
            let twice = tell(&mut table, "own", 100, ran, &letters);
            (table.holds(), twice)
        };
        let (all, letter): (Vec<u32>, _) = ((0..99).collect(), ("99", Some("unmappable")));
        assert_eq!(holds(&all, &[letter]), (true, 0));
        assert_eq!(holds(&all[1..], &[letter]), (false, 0), "a lost message");
        assert_eq!(holds(&all[1..], &[letter, ("0", Some("why"))]), (false, 0), "a message that should be an event");
        assert_eq!(holds(&all, &[]), (false, 0), "a lost letter");
        assert_eq!(holds(&all, &[("99", None)]), (false, 0), "a letter without a reason");
        assert_eq!(holds(&[&all[..], &[7]].concat(), &[letter]), (true, 1));
        assert_eq!(holds(&[&all[..], &[700]].concat(), &[letter]), (false, 0), "an event of no message");
    }
}
