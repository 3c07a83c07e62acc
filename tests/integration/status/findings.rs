//! One finding of `status` each: an alarm of the broker, a service that is away, a policy that holds events back, a full
//! queue, strangers and their bindings; and letters from before a restart, which are no finding.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hatchery::{NewEvent, Outcome, internals::rabbitmq::connection::AmqpUrl};
use hatchery_admin::management::{ManagementApi, ManagementUrl};
use lapin::types::{AMQPValue, FieldTable};
use rstest::rstest;
use serde_json::json;

use super::{answer, finding, kinds, line, seen, status};
use crate::support::{
    broker::{Rights, eventually, text},
    declared::{Declared, publish_all},
    held::Held,
    private,
    process::Place,
    redis,
    workers::Working,
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "blocks a broker of its own; scripts/test --all runs it"]
async fn status_names_an_alarm_of_the_broker_for_as_long_as_it_lasts() {
    let mut broker = private::broker().await;
    let declared = Declared::on(broker.host(), "types: { mail: {} }\n", redis::url()).await;
    declared.own_register().await;
    let place = Place::new(&declared);
    broker.block().await;
    let answer = eventually("the alarm is named", async || {
        let (code, answer) = seen(&place).await;
        kinds(&answer).contains("broker-alarm").then_some((code, answer))
    });
    let (code, answer) = answer.await;
    assert_eq!((code, &finding(&answer, "broker-alarm")["alarms"][0]["resource"]), (Some(4), &"memory".into()));
    broker.unblock().await;
    let is_over = async || (!kinds(&seen(&place).await.1).contains("broker-alarm")).then_some(());
    eventually("the alarm is over", is_over).await;
}

#[rstest]
#[case::any_order("{}")]
#[case::ordered("{ on-failure: block }")]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits for figures of RabbitMQ, which come every few seconds; scripts/test --all runs it"]
async fn status_says_why_a_handler_is_unavailable_until_it_is_back(#[case] settings: &str) {
    let declared = Declared::new(&format!("types: {{ mail: {settings} }}\n")).await;
    declared.own_register().await;
    let (place, hatchery) = (Place::new(&declared), declared.connect().await);
    let is_away = Arc::new(AtomicBool::new(true));
    let service = Arc::clone(&is_away);
    let worker = Working::start(&hatchery, "mail", move |_| {
        if service.load(Ordering::SeqCst) {
            Outcome::unavailable("mail.internal:587: connection refused")
        } else {
            Outcome::Done
        }
    });
    publish_all(&hatchery, (0..20).map(|n| NewEvent::new("mail", n.to_string())).collect()).await;
    let named = eventually("status names it", async || {
        let (code, answer) = seen(&place).await;
        kinds(&answer).contains("handler-unavailable").then_some((code, answer))
    });
    let (code, answer) = named.await;
    let found = finding(&answer, "handler-unavailable");
    assert_eq!((code, &found["types"], &found["workers"]), (Some(4), &json!(["mail"]), &json!(1)), "{found:#}");
    assert_eq!(found["why"], "mail.internal:587: connection refused");
    assert_eq!(answer["types"][0]["dead"], 0, "no attempt is spent");
    let screen = place.run(&mut status(&place, &[])).await.expect(0).stdout;
    assert!(screen.contains("! the handler of mail is unavailable: mail.internal:587"), "{screen}");
    is_away.store(false, Ordering::SeqCst);
    eventually("status is well", async || {
        let (code, answer) = seen(&place).await;
        (code == Some(0) && kinds(&answer).is_empty()).then_some(())
    })
    .await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits for the broker's statistics; scripts/test --all runs it"]
async fn status_counts_events_that_a_delayed_retry_holds_back_and_names_the_policy() {
    const EVENTS: u32 = 3;
    let declared = Declared::new("types: { mail: { register: off } }").await;
    let overview = declared.host.overview();
    // Earlier ones refuse the policy.
    if ["3.", "4.0.", "4.1.", "4.2."].iter().any(|before| text(&overview, "rabbitmq_version").starts_with(before)) {
        return;
    }
    let (place, hatchery, amqp) = (Place::new(&declared), declared.connect().await, declared.amqp().await);
    let delay = json!({ "delayed-retry-type": "all", "delayed-retry-min": 3_600_000 });
    let policy = json!({ "pattern": "^t\\.processor\\.", "definition": delay, "apply-to": "queues", "priority": 200 });
    declared.host.put("policies", "delay", &policy);
    publish_all(&hatchery, (0..EVENTS).map(|n| NewEvent::new("mail", n.to_string())).collect()).await;
    let queue = declared.processing("mail");
    amqp.requeue_first(&queue, 3).await;
    assert_eq!(amqp.ready(&queue).await, 0);
    let answer = eventually("the events that are held back count as due", async || {
        let (_, answer) = seen(&place).await;
        // A Redis that has just started may have workers.
        (line(&answer, "mail")["due"] == EVENTS && kinds(&answer).contains("no-consumer")).then_some(answer)
    })
    .await;
    let shadowed = finding(&answer, "shadowed");
    assert_eq!(
        (&shadowed["policy"], &shadowed["keys"]),
        (&json!("delay"), &json!(["delayed-retry-type"])),
        "{answer:#}"
    );
    assert_eq!(finding(&answer, "no-consumer")["queues"][0]["messages"], EVENTS, "{answer:#}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits until a timer is wedged; scripts/test --all runs it"]
async fn status_names_a_hatchery_that_a_full_queue_has_wedged() {
    let declared = Declared::new("hatcheries: [500ms]\ntypes: { mail: {} }\n").await;
    declared.own_register().await;
    let (place, hatchery) = (Place::new(&declared), declared.connect().await);
    let policy = json!({ "pattern": "^t\\.processor\\.", "definition": { "max-length": 1 }, "apply-to": "queues", "priority": 200 });
    declared.host.put("policies", "short", &policy);
    let delay = std::time::Duration::from_millis(500);
    publish_all(&hatchery, (0..120).map(|n| NewEvent::new("mail", n.to_string()).delay(delay)).collect()).await;
    let wedged = eventually("the hatchery is named", async || {
        let (code, answer) = seen(&place).await;
        kinds(&answer).contains("wedged").then_some((code, answer))
    });
    let (code, answer) = wedged.await;
    assert_eq!(code, Some(4));
    assert!(kinds(&answer).is_superset(&BTreeSet::from(["shadowed", "wedged"])), "{answer:#}");
    let stuck = &finding(&answer, "wedged")["queues"][0];
    assert_eq!(stuck["queue"], "t.hatchery.500ms", "{answer:#}");
    assert!(stuck["messages"].as_u64().unwrap() >= 32, "{answer:#}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits for figures of RabbitMQ, which come every few seconds; scripts/test --all runs it"]
async fn status_names_strangers_that_consume_and_no_worker() {
    let types = "hatcheries: [1h]\ntypes: { mail: {}, log: { register: off }, pay: { on-failure: block } }\n";
    let declared = Declared::new(types).await;
    declared.own_register().await;
    let (hatchery, amqp, place) = (declared.connect().await, declared.amqp().await, Place::new(&declared));
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let mut ours = FieldTable::default();
    ours.insert("x-hatchery-owner".into(), AMQPValue::LongString("t".into()));
    let other = declared.amqp().await;
    let mut consumers = vec![other.hold_as(&declared.processing("log"), 1, ours.clone()).await];
    eventually("both consumers are counted", async || {
        let (_, answer) = seen(&place).await;
        let workers = answer["types"].as_array().unwrap().iter().filter_map(|line| line["workers"].as_u64());
        (workers.sum::<u64>() == 2).then_some(())
    })
    .await;
    assert!(!kinds(&seen(&place).await.1).contains("stranger"));
    // The label makes a worker of nobody who consumes a timer.
    consumers.push(amqp.hold_as("t.hatchery.1h", 1, ours).await);
    for queue in ["t.dead-letter.mail", "t.retry.mail.10s", "t.unrouted", "t.processor.pay"] {
        consumers.push(amqp.hold(queue, 1).await);
    }
    let expected =
        BTreeSet::from(["t.dead-letter.mail", "t.hatchery.1h", "t.processor.pay", "t.retry.mail.10s", "t.unrouted"]);
    let named = eventually("the stranger is named", async || {
        let (code, answer) = seen(&place).await;
        let found = kinds(&answer).contains("stranger").then(|| finding(&answer, "stranger").clone())?;
        let queues: BTreeSet<_> = found["queues"].as_array()?.iter().filter_map(|queue| queue.as_str()).collect();
        (queues == expected).then_some((code, found.clone()))
    });
    let (code, found) = named.await;
    assert_eq!(code, Some(4));
    assert!(found["connection"].as_str().unwrap().contains("127.0.0.1"), "{found}");
    assert_eq!(found["keeps_out"], serde_json::json!(["pay"]), "{found}");
    drop(consumers);
    worker.stop().await;
}

#[tokio::test]
async fn status_names_a_binding_that_the_file_does_not_ask_for() {
    let declared = Declared::new("types: { mail: {}, pay: {} }\n").await;
    declared.own_register().await;
    let place = Place::new(&declared);
    assert!(!kinds(&seen(&place).await.1).contains("misrouting"));
    declared.host.put("exchanges", "shop", &serde_json::json!({ "type": "topic", "durable": true }));
    // Somebody else's exchange may bring a type its own events.
    declared.host.bind("shop", "t.processor.pay", "pay.#");
    assert!(!kinds(&seen(&place).await.1).contains("misrouting"));
    declared.host.bind("t.processor", "t.processor.pay", "#");
    let (_, answer) = seen(&place).await;
    let found = finding(&answer, "misrouting");
    assert_eq!(found["bindings"], serde_json::json!(["t.processor -> t.processor.pay (#)"]));
    assert_eq!(found["command"], "topology plan --prune");
    // So may it bring what is of no type of the file.
    declared.host.bind("shop", "t.processor.pay", "order.#");
    declared.host.bind("shop", "t.processor.pay", "mail.#");
    let (_, answer) = seen(&place).await;
    assert_eq!(finding(&answer, "misrouting")["bindings"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "restarts a broker of its own; scripts/test --all runs it"]
async fn letters_of_before_a_restart_are_not_new() {
    let mut node = Held::start(None);
    let declared = Declared::on(node.host(), "types: { mail: {} }\n", redis::url()).await;
    declared.own_register().await;
    let (place, hatchery) = (Place::new(&declared), declared.connect().await);
    let worker = Working::start(&hatchery, "mail", |_| Outcome::dead_letter("550"));
    publish_all(&hatchery, (0..2).map(|n| NewEvent::new("mail", n.to_string())).collect()).await;
    let queue = declared.dead_letters("mail");
    declared.amqp().await.expect_untouched(&queue, 2).await;
    worker.stop().await;
    node.restart().await;

    let url = ManagementUrl::new(&declared.host.management(), &AmqpUrl::new(&declared.host.amqp()).unwrap()).unwrap();
    let management = ManagementApi::new(url, &declared.host.name).unwrap();
    // Only one of these users may see for how long the broker runs.
    let all = || ".*".to_owned();
    let rights = Rights { tag: "monitoring".to_owned(), configure: all(), write: all(), read: all() };
    let monitoring = declared.host.user("monitoring", &rights);
    let letters = async |url: &str| {
        let mut command = status(&place, &["--detailed-exitcode", "-o", "json"]);
        let (_, answer) = answer(&place.run(command.env("RABBITMQ_MANAGEMENT_URL", url)).await);
        kinds(&answer).contains("dead-letters").then(|| finding(&answer, "dead-letters")["queues"][0].clone())
    };
    let mut looks = 0;
    eventually("the statistics have both letters now, and none before", async || {
        let samples = management.lengths(&queue).await?;
        let is_misleading = samples.first()?.sample == 2 && samples.last()?.sample == 0;
        for url in [declared.host.management(), monitoring.management()] {
            let Some(found) = letters(&url).await else { continue };
            // The growth is not known at first, and 0 once the statistics are old enough.
            assert_eq!(found["more"].as_u64().unwrap_or_default(), 0, "{found:#}");
            looks += u32::from(is_misleading && found["messages"] == 2);
        }
        (looks >= 6).then_some(())
    })
    .await;
}
