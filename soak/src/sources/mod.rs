//! Messages of two sources, with workers that are killed all the time and a broker that is restarted once.

mod messages;

use std::{
    collections::BTreeSet,
    ops::Range,
    time::{Duration, Instant},
};

use self::messages::{body, is_mappable, rules};
use crate::harness::{
    Account, Common, Console, Crew, Killer, Kills, Look, Message, PATIENCE, Queues, Run, Stage, Table, Working,
    backwards, grouped, until_over,
};

/// The queue of somebody else.
const WEBHOOKS: &str = "webhooks";

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

impl Args {
    /// Returns the sources, with the numbers of their messages.
    fn sources(&self) -> [(&'static str, Range<u32>); 2] {
        let all = self.messages + self.ordered;
        [("theirs", 0..self.messages), ("own", self.messages..all)]
    }
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

    let (messages, ordered) = (grouped(args.messages), grouped(args.ordered));
    console.step(&format!("Send {messages} messages to {WEBHOOKS}, and {ordered} to {own}"));
    queues.declare(WEBHOOKS).await?;
    for (queue, (_, numbers)) in [WEBHOOKS, &own].into_iter().zip(args.sources()) {
        let message = |number| Message::new(queue, number, body(number).into_bytes());
        queues.publish("", numbers.map(message)).await?;
    }

    console.step("Take them, kill a worker again and again, and restart the broker once");
    let (started, hatchery) = (Instant::now(), stage.connect().await?);
    // The worker with the handlers is not killed. The register drops what comes twice.
    let working = Working::start(&hatchery, &["work", "line"]);
    let mut crew = Crew::start(&stage, "worker", args.kills.workers, &["--source", "theirs", "--source", "own"])?;
    let mut killer = Killer::new(&stage, &args.kills, chance).await?;
    let all = (0..args.messages + args.ordered).filter(|number| is_mappable(*number)).count();
    let (mut is_restarted, mut taken) = (false, None);
    until_over(console, PATIENCE, async || {
        crew.look()?;
        let done = working.runs.all().iter().map(|run| run.number).collect::<BTreeSet<_>>().len();
        if !is_restarted && done >= all / 3 {
            stage.servers.ctl("stop_app").await?;
            stage.servers.ctl("start_app").await?;
            is_restarted = true;
        }
        if taken.is_none() && done < all {
            killer.kill_if_due(&mut crew, &stage).await?;
        }
        // The last dead letters may be on their way after the last event.
        let is_taken = is_restarted && is_taken(&stage, &own).await?;
        if is_taken {
            taken.get_or_insert_with(|| started.elapsed());
        }
        Ok(Look { done, all, said: killer.said(), is_over: done == all && is_taken })
    })
    .await?;
    let taken = taken.unwrap_or_else(|| started.elapsed());
    crew.stop().await?;
    let runs = working.stop().await?;
    hatchery.close().await;

    let table = table(args, &stage, &runs, (killer.killed.open.len(), is_restarted), taken).await?;
    Ok(stage.conclude(console, &[table]).await)
}

/// Whether no message of a source is ready. A worker may hold some.
async fn is_taken(stage: &Stage, own: &str) -> anyhow::Result<bool> {
    let queues = Queues::connect(stage).await?;
    Ok(queues.ready(&[WEBHOOKS.to_owned(), own.to_owned()]).await? == 0)
}

async fn table(
    args: &Args,
    stage: &Stage,
    runs: &[Run],
    (kills, is_restarted): (usize, bool),
    taken: Duration,
) -> anyhow::Result<Table> {
    // The broker was restarted.
    let (queues, names) = (Queues::connect(stage).await?, stage.names());
    let account = Account::of(0..args.messages + args.ordered, runs);
    let mut table = Table::new(&["", "", "must be"]);
    for (name, all) in args.sources() {
        let letters = queues.reasons(&names.source_dead_letters(&name.parse()?)).await?;
        let ran: Vec<u32> = runs.iter().map(|run| run.number).filter(|number| all.contains(number)).collect();
        tell(&mut table, name, all, &ran, &letters);
        if name == "own" {
            table.none("own: out of order", backwards(&ran));
        }
    }
    table.none("events that ran twice", account.twice.len());
    table.none("events of no message", account.strangers);
    let queued = [WEBHOOKS.to_owned(), names.source(&"own".parse()?), names.unrouted()];
    table.none("in the sources and unrouted", queues.ready(&queued).await?);
    table.at_least("workers killed", kills, args.kills.at_least);
    table.must(is_restarted, &["the broker was restarted", if is_restarted { "yes" } else { "no" }, "yes"]);
    let messages = f64::from(args.messages + args.ordered);
    table.tell(&["messages a second, kills included", &format!("{:.0}", messages / taken.as_secs_f64()), ""]);
    Ok(table)
}

/// Adds the messages of a source, by the numbers of those whose events ran, and by the dead letters with their reasons.
fn tell(table: &mut Table, name: &str, all: Range<u32>, ran: &[u32], letters: &[(String, Option<String>)]) {
    let buried: BTreeSet<u32> = letters.iter().filter_map(|(id, _)| id.parse().ok()).collect();
    let unmappable: BTreeSet<u32> = all.clone().filter(|number| !is_mappable(*number)).collect();
    let account = Account::take(all.clone(), ran.iter().copied());
    table.none(&format!("{name}: lost"), account.missing.iter().filter(|number| !buried.contains(number)).count());
    let holds = account.missing.iter().eq(&unmappable);
    let must = all.len() - unmappable.len();
    table.must(holds, &[&format!("{name}: became events"), &grouped(account.handled), &grouped(must)]);
    table.must(
        buried == unmappable,
        &[&format!("{name}: dead-lettered"), &grouped(buried.len()), &grouped(unmappable.len())],
    );
    let silent = letters.iter().filter(|(_, reason)| reason.is_none()).count();
    table.none(&format!("{name}: of those, without a reason"), silent);
    table.tell(&[&format!("{name}: of those, twice"), &grouped(letters.len() - buried.len()), ""]);
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
            tell(&mut table, "own", 100..200, ran, &letters);
            table.holds()
        };
        let (all, letter): (Vec<u32>, _) = ((100..199).collect(), ("199", Some("unmappable")));
        assert!(holds(&all, &[letter]));
        assert!(!holds(&all[1..], &[letter]), "a lost message");
        assert!(!holds(&all[1..], &[letter, ("100", Some("why"))]), "a message that should be an event");
        assert!(!holds(&all, &[]), "a lost letter");
        assert!(!holds(&all, &[("199", None)]), "a letter without a reason");
    }
}
