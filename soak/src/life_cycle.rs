//! Compares the stream of the life of events with the notes that handlers write themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::ensure;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hatchery::{EventSelector, Hatchery, LifeCycleRecord, TransitionName};
use hatchery_soak::stage::Stage;
use jiff::Timestamp;
use lapin::types::FieldTable;
use serde_json::json;

use crate::harness::{
    Common, Console, Crew, Killer, Kills, Look, Message, Note, PATIENCE, Queues, Step, Table, grouped, of,
    publish_shuffled, until_over,
};

const TYPE: &str = "work";
const TOPOLOGY: &str = "\
version: 1
name: soak
life-cycle: { events: all, max-size: 4GiB }
defaults: { prefetch: 200, concurrency: 16, retry: { delays: [2s, 5s], max-attempts: 4 } }
types: { work: {} }
";

/// One event in each so many fails, is requeued, is dead-lettered and replayed, or is cancelled.
const FAIL_EVERY: u32 = 101;
const REQUEUE_EVERY: u32 = 103;
const GIVE_UP_EVERY: u32 = 107;
const CANCEL_EVERY: u32 = 109;

/// The delay of an event that is to be cancelled: longer than the run.
const LONG: Duration = Duration::from_hours(1);

/// Cancels at a time.
const CANCELS: usize = 64;

/// The records that one kill may lose: those of the runs under way, and those in the buffer.
const MISSING: usize = 200;

/// The records in a message, as a program tells them that handles 1,000 events a second.
const TOGETHER: u32 = 50;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    kills: Kills,
    /// Events
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    events: u32,
    /// The longest that a handler takes, in milliseconds; each is random
    #[arg(long, default_value_t = 20)]
    pause: u32,
    /// Then records of other events, among which `topology trace` finds one event
    #[arg(long, default_value_t = 0)]
    fill: u32,
}

/// The transitions that a handler's note and a record both tell.
const BOTH: [(Step, TransitionName); 5] = [
    (Step::Begun, TransitionName::Started),
    (Step::Done, TransitionName::Done),
    (Step::Failed, TransitionName::Failed),
    (Step::Requeued, TransitionName::Requeued),
    (Step::Buried, TransitionName::DeadLettered),
];

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let (stage, queues, mut chance) = args.common.begin(console, TOPOLOGY).await?;
    console.step(&format!("Publish {} events, and kill a worker again and again", grouped(args.events)));
    let hatchery = stage.connect().await?;
    let publishing = publish_shuffled(&hatchery, &mut chance, TYPE, args.events, |number, event| {
        if number.is_multiple_of(CANCEL_EVERY) { event.delay(LONG) } else { event }
    });
    let [pause, fail, requeue, give_up] =
        [args.pause, FAIL_EVERY, REQUEUE_EVERY, GIVE_UP_EVERY].map(|number| number.to_string());
    let arguments = [
        "--type",
        TYPE,
        "--pause",
        &pause,
        "--fail-every",
        &fail,
        "--requeue-every",
        &requeue,
        "--give-up-every",
        &give_up,
    ];
    let mut crew = Crew::start(&stage, "worker", args.kills.workers, &arguments)?;
    let mut killer = Killer::new(&stage, &args.kills, chance).await?;
    let cancelled: BTreeSet<u32> = (0..args.events).step_by(CANCEL_EVERY as usize).collect();
    let all = args.events as usize - cancelled.len();
    let given_up =
        (0..args.events).step_by(GIVE_UP_EVERY as usize).filter(|number| !cancelled.contains(number)).count();
    let last = (all / 100).max(200);
    let dead = stage.names().dead_letters(&TYPE.parse()?);
    let mut finished = BTreeSet::new();
    let mut publishing = Some(publishing);
    for goal in [all - given_up, all] {
        until_over(console, PATIENCE, async || {
            finished.extend(of(crew.look()?, Step::Done).map(Note::number));
            let done = finished.len();
            if done + last + given_up < all {
                killer.kill_if_due(&mut crew, &stage).await?;
            }
            // The letters of killed workers come when their leases have ended.
            let is_over =
                done == goal && (goal == all || queues.ready(std::slice::from_ref(&dead)).await? == given_up as u64);
            Ok(Look { done, all: goal, said: killer.said(), is_over })
        })
        .await?;
        if let Some(publishing) = publishing.take() {
            publishing.await??;
            console.step("Cancel what waits, and replay the dead letters");
            cancel(&hatchery, &cancelled).await?;
            let replayed = stage.topology(&["dead-letter", "replay", "--type", TYPE, "--yes"])?.status().await?;
            ensure!(replayed.success(), "dead-letter replay: {replayed}");
        }
    }
    crew.stop().await?;
    console.step("Read the stream");
    let mut records = Vec::new();
    let mut reading = pin!(stage.connect().await?.life_cycle().read());
    hatchery.close().await;
    while let Some(record) = reading.try_next().await? {
        records.push(record);
    }
    let account = Account::take(&crew.notes, &records, &killer.killed.workers);
    let mut tables = vec![table(args, &account, &cancelled, killer.killed.workers.len())];
    if args.fill > 0 {
        console.step(&format!("Publish {} records of other events, and find one event among them", grouped(args.fill)));
        tables.push(search(&stage, &queues, args.fill).await?);
    }
    Ok(stage.conclude(console, &tables).await)
}

/// Publishes records of other events, and measures how long `topology trace` takes to find an event in the middle of them.
async fn search(stage: &Stage, queues: &Queues, fill: u32) -> anyhow::Result<Table> {
    let exchange = stage.names().life_cycle();
    let record = |number: u32| {
        // One event has a reference and one has none.
        let (id, reference) = match number {
            number if number == fill / 2 => ("alone".to_owned(), None),
            number => (format!("other-{number}"), Some(number.to_string())),
        };
        let mut record = json!({
            "at": Timestamp::now(), "transition": "done", "type": TYPE, "id": id, "attempt": 1, "took": 12, "by": "mailer @ worker-7",
            "trace": "4bf92f3577b34da6a3ce929d0e0e4736",
        });
        if let Some(reference) = reference {
            record["reference"] = json!(reference);
        }
        record.to_string()
    };
    let message = |first: u32| {
        let records: Vec<_> = (first..fill.min(first + TOGETHER)).map(record).collect();
        let body = records.join("\n").into_bytes();
        Message::new("work.done", first, body).of_type(TYPE, FieldTable::default())
    };
    queues.publish(&exchange, (0..fill).step_by(TOGETHER as usize).map(message)).await?;
    let mut table = Table::new(&["topology trace", "s", ""]);
    let middle = (fill / 2 + 1).to_string();
    let with_a_reference = format!("other-{middle}");
    for (what, arguments) in [
        ("of a reference", &["--reference", &middle][..]),
        ("of an id without a reference", &["alone"]),
        ("of an id with a reference that Redis does not know", &[&with_a_reference]),
    ] {
        let began = Instant::now();
        let ended = stage.topology(&["trace"])?.args(arguments).stdout(Stdio::piped()).output().await?;
        let took = began.elapsed().as_secs_f64();
        let found = String::from_utf8_lossy(&ended.stdout).matches("done").count();
        table.must(found == 1, &[what, &format!("{took:.1}"), "found"]);
    }
    Ok(table)
}

/// Cancels events by their ids.
async fn cancel(hatchery: &Hatchery, which: &BTreeSet<u32>) -> anyhow::Result<()> {
    let events = hatchery.events();
    let one = |number: &u32| {
        let (events, which) = (events.clone(), EventSelector::id(TYPE, number.to_string()));
        async move { events.cancel(&which).await }
    };
    stream::iter(which).map(one).buffer_unordered(CANCELS).try_collect::<Vec<_>>().await?;
    Ok(())
}

/// The notes and the records of the same runs, compared.
#[derive(Debug, Default, PartialEq, Eq)]
struct Account {
    records: usize,
    /// For each transition that people and publishers tell, how often each event had it.
    others: BTreeMap<String, BTreeMap<u32, usize>>,
    /// Records whose attempt is not that of a note.
    wrong_attempts: usize,
    /// The differences at workers that were not killed.
    different: Vec<String>,
    /// The transitions that only a note tells, of workers that were killed.
    missing: usize,
    /// The transitions that only a record tells, of workers that were killed.
    only_recorded: usize,
}

impl Account {
    fn take(notes: &[Note], records: &[LifeCycleRecord], killed: &[u32]) -> Self {
        let mut account = Self { records: records.len(), ..Self::default() };
        // Of a worker, an event and a transition, the notes and the records.
        let mut counts: BTreeMap<(u32, u32, &str), (usize, usize)> = BTreeMap::new();
        for note in notes {
            if let Some((_, name)) = BOTH.iter().find(|(step, _)| *step == note.step) {
                counts.entry((note.by, note.number(), name.as_str())).or_default().0 += 1;
            }
        }
        let attempts: BTreeSet<(u32, u32)> = notes.iter().map(|note| (note.number(), note.attempts + 1)).collect();
        for record in records {
            let number = record.id.as_deref().and_then(|id| id.parse().ok()).unwrap_or(u32::MAX);
            let child = record.by.as_deref().and_then(|by| by.strip_prefix("soak child ")?.parse::<u32>().ok());
            match (child, BOTH.iter().find(|(_, name)| *name == record.transition)) {
                (Some(by), Some((_, name))) => {
                    counts.entry((by, number, name.as_str())).or_default().1 += 1;
                    let is_wrong = record.attempt.is_some_and(|attempt| !attempts.contains(&(number, attempt)));
                    account.wrong_attempts += usize::from(is_wrong && !killed.contains(&by));
                }
                _ => *account.others.entry(record.transition.to_string()).or_default().entry(number).or_default() += 1,
            }
        }
        for ((by, number, name), (noted, recorded)) in counts {
            if killed.contains(&by) {
                account.missing += noted.saturating_sub(recorded);
                account.only_recorded += recorded.saturating_sub(noted);
            } else if noted != recorded {
                account.different.push(format!("{name} of {number} by {by}: {noted} notes, {recorded} records"));
            }
        }
        account
    }

    /// Returns how many of these events have this transition once, and how often it is told of others or again.
    fn once(&self, name: &TransitionName, of: impl Fn(u32) -> bool) -> (usize, usize) {
        let told = self.others.get(name.as_str());
        let once = told.into_iter().flatten().filter(|(number, times)| of(**number) && **times == 1).count();
        let all: usize = told.into_iter().flat_map(BTreeMap::values).sum();
        (once, all - once)
    }
}

fn table(args: &Args, account: &Account, cancelled: &BTreeSet<u32>, kills: usize) -> Table {
    let mut table = Table::new(&["", "", "must be"]);
    let given_up = |number: u32| number.is_multiple_of(GIVE_UP_EVERY) && !cancelled.contains(&number);
    let all: BTreeSet<u32> = (0..args.events).collect();
    let given_up: BTreeSet<u32> = all.iter().copied().filter(|number| given_up(*number)).collect();
    let expected = [
        ("published", TransitionName::Published, &all),
        ("cancelled", TransitionName::Cancelled, cancelled),
        ("replayed", TransitionName::Replayed, &given_up),
    ];
    table.tell(&["records", &grouped(account.records), ""]);
    for (what, name, of) in expected {
        let (once, more) = account.once(&name, |number| of.contains(&number));
        let all = of.len();
        if name == TransitionName::Replayed {
            // A worker that was killed after its dead letter was confirmed leaves two of the event.
            let told = account.others.get(name.as_str());
            let replayed = told.into_iter().flatten().filter(|(number, _)| of.contains(*number)).count();
            table.must(
                replayed == all,
                &[&format!("{what}, told"), &grouped(replayed), &format!("{}, all", grouped(all))],
            );
            table.tell(&["of those, with two letters after a kill", &grouped(replayed - once), ""]);
            continue;
        }
        table.must(once == all, &[&format!("{what}, told once"), &grouped(once), &format!("{}, all", grouped(all))]);
        table.none("told twice, or of another event", more);
    }
    // A lease of a killed worker may end while its event waits elsewhere.
    let known = ["published", "cancelled", "replayed", "put-off", "lease-lost"];
    let strange: usize =
        account.others.iter().filter(|(name, _)| !known.contains(&&***name)).map(|(_, of)| of.len()).sum();
    table.none("other transitions", strange);
    table.none("attempts told otherwise than noted", account.wrong_attempts);
    table.at_least("workers killed", kills, args.kills.at_least);
    table.none("runs told otherwise than noted, of workers that lived", account.different.len());
    for line in account.different.iter().take(10) {
        table.tell(&[line, "", ""]);
    }
    let most = kills * MISSING;
    let missing =
        &["noted and not told, of killed workers", &grouped(account.missing), &format!("at most {}", grouped(most))];
    table.must(account.missing <= most, missing);
    table.tell(&["told and not noted, of killed workers", &grouped(account.only_recorded), ""]);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_and_records_of_the_same_runs_are_compared() {
        let note =
            |by, step, id: &str| Note { by, step, event_type: TYPE.to_owned(), id: id.to_owned(), attempts: 0, at: 0 };
        let record = |by: &str, transition: &str, id: &str| {
            let text =
                format!(r#"{{"at":"2026-06-01T09:00:00Z","transition":"{transition}","id":"{id}","by":"{by}"}}"#);
            LifeCycleRecord::parse(text.as_bytes()).expect("a record")
        };
        let notes =
            [note(1, Step::Begun, "7"), note(1, Step::Done, "7"), note(2, Step::Begun, "8"), note(3, Step::Begun, "9")];
        let records = [
            record("soak", "published", "7"),
            record("soak child 1", "started", "7"),
            record("soak child 2", "started", "8"),
            record("soak child 2", "done", "8"),
        ];
        let account = Account::take(&notes, &records, &[2, 3]);
        assert_eq!(account.different, ["done of 7 by 1: 1 notes, 0 records"]);
        assert_eq!((account.missing, account.only_recorded), (1, 1));
        assert_eq!(account.once(&TransitionName::Published, |number| number == 7), (1, 0));
        assert_eq!(account.once(&TransitionName::Published, |_| false), (0, 1));
    }
}
