//! `status` names strangers that take messages, and bindings that bring them where they do not belong.

use std::collections::BTreeSet;

use hatchery::Outcome;
use lapin::types::{AMQPValue, FieldTable};

use super::{finding, kinds, seen};
use crate::support::{broker::eventually, declared::Declared, process::Place, workers::Working};

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
