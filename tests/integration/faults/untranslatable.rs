//! RabbitMQ 4 closes the connection of a consumer to whom it has to deliver a message that it cannot translate from
//! AMQP 1.0 to AMQP 0.9.1. The page `docs/operations/untranslatable.md` says how such a message is removed.

use std::{collections::BTreeMap, fs, io::Write as _, time::Instant};

use hatchery::{NewEvent, Outcome, Run};
use lapin::BasicProperties;
use rstest::rstest;
use serde_json::json;

use crate::support::{
    amqp::Amqp,
    amqp10::{self, Untranslatable},
    broker::eventually,
    declared::{Declared, publish},
    held::Held,
    logs::Logs,
    process::Place,
    redis,
    workers::{Runs, Working},
};

const FILE: &str = "\
types: { mail: {}, plain: { register: off }, ordered: { on-failure: block } }
sources: { theirs: { queue: hr-changes, events: [ { type: plain } ] } }
";
const TYPES: [&str; 3] = ["mail", "plain", "ordered"];
const GOOD: usize = 10;
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/untranslatable.md");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/untranslatable.erl");

/// Declares the topology, and the queue of the source with a dead-letter queue of its own. `None` if this RabbitMQ does not
/// speak AMQP 1.0.
async fn declared() -> Option<Declared> {
    let declared = Declared::new(FILE).await;
    if declared.host.overview()["rabbitmq_version"].as_str().unwrap().starts_with("3.") {
        return None;
    }
    declare_source(&declared);
    Some(declared)
}

fn declare_source(declared: &Declared) {
    let quorum = json!({ "durable": true, "arguments": { "x-queue-type": "quorum" } });
    declared.host.put("queues", "hr-dead", &quorum);
    let arguments = json!({
        "x-queue-type": "quorum", "x-delivery-limit": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "hr-dead"
    });
    declared.host.put("queues", "hr-changes", &json!({ "durable": true, "arguments": arguments }));
    // A lower delivery limit than hatchery's own of 100, to reach it soon.
    let limit = json!({ "pattern": "processor.(mail|plain)", "definition": { "delivery-limit": 10 }, "priority": 200 });
    declared.host.put("policies", "lower", &limit);
}

/// Returns whether this RabbitMQ cannot translate a message of this kind.
fn is_untranslatable(declared: &Declared, kind: Untranslatable) -> bool {
    let version = declared.host.overview()["rabbitmq_version"].as_str().unwrap().to_owned();
    kind != Untranslatable::NotANumber || version.starts_with("4.0.")
}

/// Publishes a message of each kind to this address. Returns how many of them RabbitMQ cannot translate.
async fn publish_untranslatable(declared: &Declared, address: &'static str) -> u32 {
    let mut count = 0;
    for kind in Untranslatable::ALL {
        let url = declared.host.amqp();
        let publishing = move || amqp10::publish(&url, address, kind, "\"translated\"");
        tokio::task::spawn_blocking(publishing).await.unwrap();
        count += u32::from(is_untranslatable(declared, kind));
    }
    count
}

/// Starts a worker on all types and the source. All runs are recorded together.
async fn start(declared: &Declared) -> Working {
    let (hatchery, runs) = (declared.connect_patiently().await, Runs::default());
    let worker = TYPES.into_iter().fold(hatchery.worker().source("theirs"), |worker, name| {
        let runs = runs.clone();
        worker.handle(name, move |run: Run| {
            runs.note(&run);
            std::future::ready(Ok::<_, String>(Outcome::Done))
        })
    });
    Working::run(worker, runs)
}

/// Publishes this many events to each type, and messages to the source. Returns their payloads.
async fn publish_good(declared: &Declared, numbers: std::ops::Range<usize>) -> Vec<String> {
    let (hatchery, amqp, mut all) = (declared.connect_patiently().await, declared.amqp().await, Vec::new());
    for n in numbers {
        for name in TYPES {
            publish(&hatchery, NewEvent::new(name, format!("{name}-{n}"))).await;
            all.push(format!("{name}-{n}"));
        }
        let body = format!("\"theirs-{n}\"");
        amqp.publish("", "hr-changes", BasicProperties::default(), body.as_bytes()).await;
        all.push(body);
    }
    all
}

/// Waits until all these events have run, and returns how often each has.
async fn all_run(runs: &Runs, payloads: &[String]) -> BTreeMap<String, usize> {
    eventually(&format!("all of {payloads:?} have run"), async || {
        let mut times = BTreeMap::<String, usize>::new();
        runs.payloads().into_iter().for_each(|payload| *times.entry(payload).or_default() += 1);
        payloads.iter().all(|payload| times.contains_key(payload)).then_some(times)
    })
    .await
}

#[rstest]
#[case::of_a_type("/exchanges/t.processor/mail.now", "t.dead-letter.mail")]
#[case::of_a_source("/queues/hr-changes", "hr-dead")]
#[tokio::test]
#[ignore = "waits until the broker has redelivered messages 20 times; scripts/test --all runs it"]
async fn messages_that_cannot_be_translated_are_dead_lettered_and_no_others(
    #[case] address: &'static str,
    #[case] letters: &str,
) {
    let Some(declared) = declared().await else { return };
    let mut good = publish_good(&declared, 0..GOOD).await;
    let worker = start(&declared).await;
    all_run(&worker.runs, &good).await;
    let expected = publish_untranslatable(&declared, address).await;
    let begun = Instant::now();
    good.extend(publish_good(&declared, GOOD..2 * GOOD).await);
    let own = if letters == "hr-dead" { "\"theirs" } else { "mail" };
    let neighbours: Vec<_> = good.iter().filter(|payload| !payload.starts_with(own)).cloned().collect();
    all_run(&worker.runs, &neighbours).await;
    let delay = begun.elapsed();
    let times = all_run(&worker.runs, &good).await;
    let _ = writeln!(
        std::io::stderr(),
        "{address}: the neighbours have run after {delay:.1?}, the queue's own after {:.1?}",
        begun.elapsed()
    );
    let amqp = declared.amqp().await;
    eventually("they are dead letters", async || (amqp.ready(letters).await == expected).then_some(())).await;
    // What ran when the connection was closed may run again, as after a crash. The messages come one by one, so each may
    // close it.
    let most = 1 + usize::try_from(expected).unwrap();
    let often: Vec<_> = times.iter().filter(|(payload, times)| good.contains(payload) && **times > most).collect();
    assert!(often.is_empty(), "{often:?}");
    worker.stop().await;
    let queues = [declared.queues(), vec!["hr-changes".to_owned(), "hr-dead".to_owned()]].concat();
    let filled = async || Some(amqp.filled(&queues).await).filter(|filled| filled.len() == 1);
    assert_eq!(
        eventually("only the dead-letter queue has messages", filled).await,
        [(letters.into(), expected)].into()
    );
}

/// Puts letters around one that cannot be translated.
async fn put_letters(declared: &Declared) -> Amqp {
    let amqp = declared.amqp().await;
    let put = async |ids: &[&str]| {
        let ids = ids.iter().map(|id| (*id).to_owned());
        amqp.publish_in_order("t.dead-letter", "mail.dead-letter", ids).await;
    };
    put(&["a", "b"]).await;
    let url = declared.host.amqp();
    let publishing = move || amqp10::publish(&url, "/queues/t.dead-letter.mail", Untranslatable::Uuid, "one");
    tokio::task::spawn_blocking(publishing).await.unwrap();
    put(&["c"]).await;
    amqp
}

#[tokio::test]
async fn a_letter_that_cannot_be_translated_is_told_and_hides_no_other_queue() {
    let Some(declared) = declared().await else { return };
    let (amqp, place) = (put_letters(&declared).await, Place::new(&declared));
    amqp.publish_in_order("t.dead-letter", "plain.dead-letter", ["d".to_owned()].into_iter()).await;
    for arguments in [
        &["list", "--events"][..],
        &["replay"],
        &["replay", "--yes", "--type", "mail"],
        &["discard", "--save", "saved.ndjson", "--yes", "--type", "mail"],
    ] {
        let ended = place.run(&mut place.command(&[&["dead-letter"], arguments].concat())).await.expect(1);
        let told = ended.stderr.contains("t.dead-letter.mail") && ended.stderr.contains("RabbitMQ cannot translate");
        assert!(told && !ended.stderr.contains("does not exist"), "{ended:?}");
        let is_done = ["Discarded", "Replayed"].iter().any(|done| ended.stdout.contains(done));
        assert!(!is_done || ended.stdout.contains("d: 0 letters."), "{ended:?}");
        if arguments[0] == "list" {
            assert!(ended.stdout.lines().any(|line| line.starts_with("d  plain")), "{ended:?}");
        }
    }
    eventually("all letters are there", async || (amqp.ready("t.dead-letter.mail").await == 4).then_some(())).await;
}

/// Returns the commands of the page in their order, for this virtual host and the type `ordered`.
fn page(declared: &Declared, place: &Place<'_>) -> Vec<String> {
    let script = fs::read_to_string(SCRIPT).unwrap().replace("<<\"/\">>", &format!("<<\"{}\">>", declared.host.name));
    let script =
        place.write("untranslatable.erl", &script.replace("billing.dead-letter.mail", "t.dead-letter.ordered"));
    let page = fs::read_to_string(PAGE).unwrap().replace("billing", "t").replace("mail", "ordered");
    let commands = page.lines().filter_map(|line| line.strip_prefix("$ rabbitmqctl "));
    let here = |command: &str| {
        let command = command.replace('\'', "").replace("-p /", &format!("-p {}", declared.host.name));
        command.replace("untranslatable.erl", script.to_str().unwrap())
    };
    commands.map(here).collect()
}

#[tokio::test]
#[ignore = "starts a broker of its own and waits for its statistics; scripts/test --all runs it"]
async fn the_page_frees_a_type_that_keeps_its_order() {
    let logs = Logs::capture();
    let mut node = Held::start(None);
    let declared = Declared::on(node.host(), FILE, redis::url()).await;
    if declared.host.overview()["rabbitmq_version"].as_str().unwrap().starts_with("3.") {
        return;
    }
    declare_source(&declared);
    let good = publish_good(&declared, 0..GOOD).await;
    let url = declared.host.amqp();
    let publishing =
        move || amqp10::publish(&url, "/exchanges/t.processor/ordered.now", Untranslatable::Uuid, "forty-two");
    tokio::task::spawn_blocking(publishing).await.unwrap();
    let later = publish_good(&declared, GOOD..3 * GOOD).await;
    let worker = start(&declared).await;
    let (behind, neighbours): (Vec<_>, Vec<_>) = later.into_iter().partition(|payload| payload.starts_with("ordered"));
    all_run(&worker.runs, &[good, neighbours].concat()).await;
    eventually("the log names the queue", async || {
        (!logs.with(&["t.processor.ordered", "blocks the queue", "RabbitMQ cannot translate"]).is_empty()).then_some(())
    })
    .await;

    let place = Place::new(&declared);
    let mut status = place.command(&["status", "--detailed-exitcode"]);
    status.env("RABBITMQ_MANAGEMENT_URL", declared.host.management());
    eventually("status says why", async || {
        let ended = place.run(&mut status).await;
        ended.stdout.contains("operations/untranslatable.md").then_some(())
    })
    .await;

    let [release, clear, remove] = page(&declared, &place).try_into().unwrap();
    node.ctl(&release).await;
    let times = all_run(&worker.runs, &behind).await;
    assert!(times.values().all(|times| *times <= 2), "{times:?}");
    let amqp = declared.amqp().await;
    let letters = declared.dead_letters("ordered");
    eventually("it is a dead letter", async || (amqp.ready(&letters).await == 1).then_some(())).await;
    node.ctl(&clear).await;
    amqp.publish_in_order("t.dead-letter", "ordered.dead-letter", (0..100).map(|n| format!("n{n}"))).await;
    let list = ["dead-letter", "list", "--type", "ordered", "--events", "-o", "ndjson"];
    let ended = place.run(&mut place.command(&list)).await.expect(1);
    assert!(ended.stderr.contains(&letters), "{ended:?}");
    let printed = node.ctl(&remove).await;
    assert_eq!(printed.last().unwrap(), "[{removed,1},{left,100}]");
    assert!(printed[0].contains("forty-two"), "{printed:?}");
    let ended = place.run(&mut place.command(&list)).await.expect(0);
    let ids: Vec<_> =
        ended.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()).collect();
    let ids: Vec<_> = ids.iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, (0..100).map(|n| format!("n{n}")).collect::<Vec<_>>());
    worker.stop().await;
}
