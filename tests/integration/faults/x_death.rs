//! Before RabbitMQ 4, one message with a broken `x-death` header stops every message TTL of a node. The page
//! `docs/operations/broken-x-death.md` brings the node back.

use std::{collections::BTreeSet, fs, time::Duration};

use hatchery::{NewEvent, Outcome};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldArray, FieldTable},
};
use tokio::time::timeout;

use crate::support::{
    amqp::{headers, long},
    broker::{FORWARDED, eventually},
    declared::{Declared, publish},
    held::Held,
    logs::Logs,
    process::Place,
    redis,
    workers::Working,
};

const TOPOLOGY: &str = "hatcheries: [500ms, 1s]\ntypes: { mail: {} }";
const SUPERVISOR_IS_GONE: &str = "ctl eval undefined=whereis(rabbit_fifo_dlx_sup).";
/// How often the page may have to be followed: another broken message may come due, or a queue may have been without a
/// leader.
const ROUNDS: usize = 5;
/// How long a round waits for success before the page is followed again.
const ROUND: Duration = Duration::from_secs(30);

fn x_death(deaths: Vec<AMQPValue>) -> BasicProperties {
    headers(&[("x-death", AMQPValue::FieldArray(FieldArray::from(deaths)))])
}

/// Returns an `x-death` of the usual shape, of a message that has been in this queue before, but with its count as
/// text: some clients convert numbers to text.
fn text_as_count(queue: &str) -> BasicProperties {
    let mut death = FieldTable::default();
    for (name, value) in [("count", "1"), ("reason", "expired"), ("queue", queue), ("exchange", "t.scheduler")] {
        death.insert(name.into(), long(value));
    }
    death.insert("time".into(), AMQPValue::Timestamp(1_780_000_000));
    death.insert("routing-keys".into(), AMQPValue::FieldArray(FieldArray::from(vec![long("mail.1s")])));
    x_death(vec![AMQPValue::FieldTable(death)])
}

/// Returns the commands of the page in their order, with the path of the file that it names.
fn page() -> Vec<String> {
    let folder = format!("{}/../docs", env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(format!("{folder}/operations/broken-x-death.md")).unwrap();
    let commands = page.lines().filter_map(|line| line.strip_prefix("$ rabbitmqctl "));
    let file = format!("{folder}/broken-x-death.erl");
    commands.map(|command| command.replace('\'', "").replace("broken-x-death.erl", &file)).collect()
}

#[tokio::test]
#[ignore = "restarts a broker and repeats the page's commands; scripts/test --all runs it"]
async fn the_documented_commands_revive_a_node_whose_timers_a_broken_x_death_stopped() {
    let logs = Logs::capture();
    let mut node = Held::start(None);
    let declared = Declared::on(node.host(), TOPOLOGY, redis::url()).await;
    // The topology of another team on the same broker.
    let other = Declared::on(node.host(), TOPOLOGY, redis::url()).await;
    let is_told = declared.host.overview()["rabbitmq_version"].as_str().unwrap().starts_with("3.");

    // The workers keep running while the page is followed.
    let theirs = Working::start(&other.connect_patiently().await, "mail", |_| Outcome::Done);
    let ours = Working::start(&declared.connect_patiently().await, "mail", |_| Outcome::Done);
    let publish_timed = async |n: &str| {
        let event = || NewEvent::new("mail", n.to_owned()).delay(Duration::from_secs(1));
        for declared in [&declared, &other] {
            publish(&declared.connect_patiently().await, event()).await;
        }
    };
    publish_timed("0").await;
    let amqp = declared.amqp().await;
    for (key, properties, payload) in [
        ("mail.500ms", x_death(vec![AMQPValue::LongLongInt(1)]), "number"),
        ("mail.1s", text_as_count("t.hatchery.1s"), "count"),
    ] {
        amqp.publish("t.scheduler", key, properties, payload.as_bytes()).await;
    }
    publish_timed("1").await;
    if is_told {
        eventually("the supervisor is gone", async || node.ask(SUPERVISOR_IS_GONE).await.then_some(())).await;
        publish_timed("2").await;
        node.restart().await;
        eventually("the supervisor is gone again after the restart", async || {
            node.ask(SUPERVISOR_IS_GONE).await.then_some(())
        })
        .await;
    } else {
        publish_timed("2").await;
        node.restart().await;
        assert!(!node.ask(SUPERVISOR_IS_GONE).await);
    }
    let commands = page();
    assert!(commands.len() >= 2, "{commands:?}");
    // No message is lost, not even the broken ones.
    let have_run = |working: &Working| working.runs.payloads().into_iter().collect::<BTreeSet<_>>();
    let both_have_run = || have_run(&theirs).len() >= 3 && have_run(&ours).len() >= 5;
    // The page restarts RabbitMQ's processes. Where there is nothing to repair, following it again would only cut the
    // workers off; a message that its queue has refused is offered again only after minutes.
    let (most, round) = if is_told { (ROUNDS, ROUND) } else { (1, FORWARDED) };
    let mut rounds = 0;
    while rounds == 0 || !both_have_run() {
        rounds += 1;
        assert!(rounds <= most, "{:?} {:?} {:#?}", have_run(&theirs), have_run(&ours), logs.with(&[]));
        for command in &commands {
            node.ask(&format!("ctl {command}")).await;
        }
        // After a time-out the page is followed once more, as often as `most` allows.
        let _ = timeout(round, eventually("all events have run", async || both_have_run().then_some(()))).await;
    }
    publish_timed("3").await;
    for (working, payloads) in [(&theirs, &["0", "1", "2", "3"][..]), (&ours, &["0", "1", "2", "3", "number", "count"])]
    {
        let expected: BTreeSet<_> = payloads.iter().map(|payload| (*payload).to_owned()).collect();
        eventually("events that are published afterwards run", async || (have_run(working) == expected).then_some(()))
            .await;
    }
    theirs.stop().await;
    ours.stop().await;
    assert!(!node.ask(SUPERVISOR_IS_GONE).await);

    let warning = "stops timers when a publisher sends a broken x-death header";
    assert_eq!(logs.with(&[warning]).len(), if is_told { 2 } else { 0 });
    let place = Place::new(&declared);
    let mut plan = place.command(&["plan"]);
    let planned = place.run(plan.env("RABBITMQ_MANAGEMENT_URL", declared.host.management())).await.expect(0);
    assert_eq!(planned.stderr.contains(warning), is_told, "{planned:?}");
}
