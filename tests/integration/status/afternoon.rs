//! A broken afternoon at a small size: five things are wrong at a time, and are mended.

use std::collections::BTreeSet;

use hatchery::{NewEvent, Outcome};
use lapin::{
    BasicProperties, Connection, ConnectionProperties, Consumer,
    options::{BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use serde_json::json;

use super::{finding, kinds, line, seen, status};
use crate::support::{
    amqp::Amqp,
    broker::eventually,
    declared::{Declared, publish_all},
    process::Place,
    workers::Working,
};

const FILE: &str = "\
hatcheries: [1h]
types:
  mail: {}
  import: {}
  report: { handler-timeout: 1s }
";

/// The deliveries that the connection which does nothing holds.
const HELD: u16 = 200;

/// Takes all messages out of a queue, and publishes them again with another routing key, or with their own.
async fn shovel(amqp: &Amqp, queue: &str, exchange: &str, key: Option<&str>) {
    while let Some(message) = amqp.get(queue).await {
        let key = key.map_or_else(|| message.routing_key.to_string(), str::to_owned);
        amqp.publish(exchange, &key, message.properties.clone(), &message.data).await;
    }
}

/// Consumes a queue, and acknowledges nothing for as long as the consumer lives.
async fn hold(url: &str, queue: &str) -> (Connection, Consumer) {
    let properties = ConnectionProperties::default().with_connection_name("reports @ old-pod".into());
    let connection = Connection::connect(url, properties).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.basic_qos(HELD, BasicQosOptions::default()).await.unwrap();
    let consumer =
        channel.basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default()).await;
    (connection, consumer.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn status_names_all_five_faults_of_a_broken_afternoon_and_is_well_once_they_are_mended() {
    let declared = Declared::new(FILE).await;
    declared.own_register().await;
    let (place, amqp, hatchery) = (Place::new(&declared), declared.amqp().await, declared.connect().await);

    // An outage downstream: dead letters for two reasons.
    let events = |event_type: &'static str, n: u16| (0..n).map(move |n| NewEvent::new(event_type, n.to_string()));
    let failing = Working::start(&hatchery, "mail", |event| {
        let is_even = event.payload.last().is_some_and(|digit| digit % 2 == 0);
        Outcome::dead_letter(if is_even { "no such mailbox" } else { "connection refused" })
    });
    publish_all(&hatchery, events("mail", 6).collect()).await;
    failing.runs.reach(6).await;
    failing.stop().await;
    // A bad deploy: events of a type that is not in the file.
    for n in 0..5 {
        amqp.publish("t.scheduler", "mial.now", BasicProperties::default(), n.to_string().as_bytes()).await;
    }
    // A stranger's policy shadows a hatchery.
    let policy =
        json!({ "pattern": "^t\\.hatchery\\.1h$", "definition": { "message-ttl": 60_000 }, "apply-to": "queues" });
    declared.host.put("policies", "expire-all", &policy);
    // A queue without a consumer.
    publish_all(&hatchery, events("import", 4).collect()).await;
    // A connection that holds deliveries and does nothing.
    publish_all(&hatchery, events("report", HELD).collect()).await;
    let (stuck, consumer) = hold(&declared.host.amqp(), &declared.processing("report")).await;

    let expected = BTreeSet::from(["shadowed", "unrouted", "no-consumer", "not-acknowledging", "dead-letters"]);
    let found = eventually("status names all five", async || {
        let (code, answer) = seen(&place).await;
        let is_known =
            kinds(&answer) == expected && line(&answer, "mail")["dead"] == 6 && line(&answer, "import")["due"] == 4;
        is_known.then_some((code, answer))
    });
    let (code, found) = found.await;
    assert_eq!((code, &found["verdict"]), (Some(4), &json!("stuck")), "{found:#}");
    assert_eq!(finding(&found, "shadowed")["queues"], json!(["t.hatchery.1h"]));
    assert_eq!(finding(&found, "unrouted")["messages"], 5);
    assert_eq!(finding(&found, "no-consumer")["queues"], json!([{ "queue": "t.processor.import", "messages": 4 }]));
    let silent = finding(&found, "not-acknowledging");
    assert_eq!((&silent["held"], &silent["program"]), (&json!(HELD), &json!("reports @ old-pod")), "{silent:#}");
    assert_eq!(silent["queues"], json!(["t.processor.report"]));
    assert!(silent["silent_seconds"].as_u64().unwrap() > 10, "{silent:#}");
    assert_eq!(finding(&found, "dead-letters")["queues"][0]["messages"], 6);

    // The screen says the same in words, in 80 columns.
    let screen = place.run(status(&place, &[]).env("COLUMNS", "80")).await.expect(0).stdout;
    assert!(screen.contains("! 5 events are in t.unrouted: no queue was bound"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80) && !screen.contains('\u{1b}'), "{screen}");
    // A list of events says what it cannot have.
    let list = place.run(&mut place.command(&["events", "list"])).await.expect(0).stdout;
    assert!(list.contains("Messages that the register does not know: at least 5 (t.unrouted 5)."), "{list}");

    declared.host.delete("policies", &["expire-all"]);
    drop(consumer);
    // The broker or lapin may have closed it first. If it stayed open, its deliveries would never be handled below.
    let _ = stuck.close(200, "".into()).await;
    let mail = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let (others, reports) = Working::start_both(&hatchery, ["import", "report"]);
    shovel(&amqp, "t.unrouted", "t.scheduler", Some("mail.now")).await;
    shovel(&amqp, &declared.dead_letters("mail"), "t.processor", None).await;
    mail.runs.reach(11).await;
    others.runs.reach(4).await;
    reports.reach(usize::from(HELD)).await;
    eventually("status is well", async || {
        let (code, answer) = seen(&place).await;
        (code == Some(0) && answer["verdict"] == "well" && kinds(&answer).is_empty()).then_some(())
    })
    .await;
    for working in [mail, others] {
        working.stop().await;
    }
    assert_eq!(reports.count(), usize::from(HELD), "none of the events that were held has run twice");
}
