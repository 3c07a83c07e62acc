//! Channels and connections that end, or go silent, without the client's doing.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use hatchery::{
    BrokerError, CancellationToken, Hatchery, NewEvent, Outcome, PublishError, Run,
    internals::{
        ports::Broker as _,
        rabbitmq::{RabbitMq, connection::AmqpUrl},
        wire::{Message, Properties},
    },
};
use lapin::BasicProperties;
use rstest::rstest;
use serde_json::json;
use tokio::{io::AsyncReadExt as _, net::TcpListener};

use crate::support::{
    amqp::Amqp,
    broker::{PASSWORD, VirtualHost, eventually, text},
    declared::{Declared, publish},
    logs::Logs,
    private, redis,
    relay::Relay,
    workers::{Runs, Working},
};

/// Runs `slow` for longer than the broker waits for an acknowledgement, and `next` behind it. Up to RabbitMQ 4.0 the broker
/// closes the channel twice meanwhile, the second time about a second before the run ends: a channel that it closes just then
/// would lose the acknowledgement, and the event would rightly run again. From 4.3 on the consumer asks for the time that it needs.
#[rstest]
#[case::registered("mail: { crash-limit: 3 }")]
#[case::registered_in_order("mail: { on-failure: block }")]
#[case::unregistered("mail: { register: off, crash-limit: 3 }")]
#[case::unregistered_one_by_one("mail: { register: off, crash-limit: 3, concurrency: 1, prefetch: 1 }")]
#[case::unregistered_in_order("mail: { register: off, on-failure: block }")]
#[tokio::test]
#[ignore = "waits for the consumer timeout of a RabbitMQ of its own; scripts/test --all runs it"]
async fn a_run_that_outlives_its_consumer_is_no_crash(#[case] types: &str) {
    let mut broker = private::broker().await;
    let declared = Declared::on(broker.host(), &format!("types: {{ {types} }}"), redis::url()).await;
    let hatchery = declared.connect().await;
    broker.wait_for_acknowledgements("2200").await;
    let (worker, ended) = slow_worker(&hatchery);
    publish(&hatchery, NewEvent::new("mail", "slow")).await;
    worker.runs.reach(1).await;
    publish(&hatchery, NewEvent::new("mail", "next")).await;
    ended.reach(2).await;
    let amqp = declared.amqp().await;
    amqp.expect_empty(&declared.queues()).await;
    assert_eq!(worker.runs.payloads(), ["slow", "next"]);
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.put_aside, summary.dead_lettered), (2, 0, 0), "{summary:?}");
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

/// No version lets `basic.get`, which takes an event from the quarantine queue, ask for the time that it needs.
#[tokio::test]
#[ignore = "waits for the consumer timeout of a RabbitMQ of its own; scripts/test --all runs it"]
async fn a_suspect_that_outlives_its_channel_runs_once() {
    let mut broker = private::broker().await;
    let types = "types: { mail: { register: off, crash-limit: 3 } }";
    let declared = Declared::on(broker.host(), types, redis::url()).await;
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    broker.wait_for_acknowledgements("1000").await;
    let properties = BasicProperties::default().with_message_id("suspect".into()).with_timestamp(1_780_000_000);
    amqp.publish("t.aside", "mail.aside", properties, b"slow").await;
    let logs = Logs::capture();
    let (worker, ended) = slow_worker(&hatchery);
    worker.runs.reach(1).await;
    publish(&hatchery, NewEvent::new("mail", "next")).await;
    ended.reach(2).await;
    amqp.expect_empty(&declared.queues()).await;
    assert_eq!(worker.runs.payloads(), ["slow", "next"]);
    assert_eq!(worker.stop().await.done, 2);
    assert!(amqp.filled(&declared.queues()).await.is_empty());
    let told = logs.with(&["RabbitMQ took its delivery back", "id=suspect", "ack-timeout", "30m"]);
    assert_eq!(told.len(), 1, "{:?}", logs.with(&[""]));
}

/// Starts a worker whose handler takes 6 s for `slow`. Returns the runs that have ended beside it.
fn slow_worker(hatchery: &Hatchery) -> (Working, Runs) {
    let (runs, ended) = (Runs::default(), Runs::default());
    let (noted, noted_ends) = (runs.clone(), ended.clone());
    let handler = move |run: Run| {
        noted.note(&run);
        let ends = noted_ends.clone();
        async move {
            if run.event.payload == "slow" {
                tokio::time::sleep(Duration::from_secs(6)).await;
            }
            ends.note(&run);
            Ok::<_, String>(Outcome::Done)
        }
    };
    (Working::run(hatchery.worker().handle("mail", handler), runs), ended)
}

#[tokio::test]
#[ignore = "waits until heartbeats are missed; scripts/test --all runs it"]
async fn a_silent_connection_is_replaced_once_heartbeats_are_missed() {
    let declared = Declared::new("types: { mail: {} }").await;
    let relay = Relay::to(&declared.host.amqp()).await;
    let hatchery = Hatchery::builder(declared.topology.clone())
        .amqp_url(format!("{}?heartbeat=1", relay.url))
        .redis_url(&declared.redis_url)
        .connect()
        .await
        .unwrap();
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    publish(&hatchery, NewEvent::new("mail", "before")).await;
    worker.runs.reach(1).await;
    relay.silence();
    publish(&hatchery, NewEvent::new("mail", "after")).await;
    worker.runs.reach(2).await;
    assert_eq!(worker.stop().await.done, 2);
}

#[tokio::test]
#[ignore = "waits for two attempts to connect again; scripts/test --all runs it"]
async fn a_running_worker_keeps_reconnecting_while_its_password_is_refused() {
    let declared = Declared::new("types: { mail: {} }").await;
    let (relay, other) = (Relay::to(&declared.host.amqp()).await, declared.connect().await);
    let hatchery = declared.connect_by(&relay.url).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    publish(&other, NewEvent::new("mail", "before")).await;
    worker.runs.reach(1).await;
    declared.host.set_password("another");
    let before = relay.accepted();
    relay.cut();
    eventually("the worker has tried twice to connect", async || (relay.accepted() > before + 1).then_some(())).await;
    assert!(worker.is_running());
    declared.host.set_password(PASSWORD);
    publish(&other, NewEvent::new("mail", "after")).await;
    worker.runs.reach(2).await;
    assert_eq!(worker.stop().await.done, 2);
}

#[tokio::test]
async fn an_abandoned_connection_attempt_closes_its_socket() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = AmqpUrl::new(&format!("amqp://{}", silent.local_addr().unwrap())).unwrap();
    let connecting = tokio::spawn(async move { url.connect("test").await.map(drop) });
    let (mut peer, _) = silent.accept().await.unwrap();
    let mut said = [0; 8];
    peer.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"AMQP\0\0\x09\x01");
    // A time limit, or the end of the worker, drops the attempt in the same way.
    connecting.abort();
    let ended = tokio::time::timeout(Duration::from_secs(5), peer.read(&mut said)).await;
    assert_eq!(ended.expect("the connection stays open").unwrap(), 0);
}

/// Tasks that share a channel may swap their confirms. Here every other message is refused, so that a swap shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_of_many_tasks_gets_the_confirm_of_its_own_message() {
    const TASKS: usize = 16;
    const MESSAGES: usize = 250;
    let host = VirtualHost::new();
    let full = json!({ "durable": true, "arguments": { "x-max-length": 1, "x-overflow": "reject-publish" } });
    host.put("queues", "full", &full);
    host.put("queues", "open", &json!({ "durable": true }));
    let broker = Arc::new(RabbitMq::new(AmqpUrl::new(&host.amqp()).unwrap(), "publisher"));
    let publish = |queue: &str| {
        let (broker, routing_key) = (Arc::clone(&broker), queue.to_owned());
        let message =
            Message { exchange: String::new(), routing_key, properties: Properties::default(), body: "{}".into() };
        async move { broker.publish(message).await }
    };
    publish("full").await.unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let publishes: Vec<_> = (0..MESSAGES)
                .map(|n| if (task + n) % 2 == 0 { "full" } else { "open" })
                .map(|queue| (queue, publish(queue)))
                .collect();
            tokio::spawn(join_all(publishes.into_iter().map(async |(queue, publish)| (queue, publish.await))))
        })
        .collect();
    for task in tasks {
        for (queue, published) in task.await.unwrap() {
            match published {
                Ok(()) => assert_eq!(queue, "open"),
                Err(BrokerError::Nacked { .. }) => assert_eq!(queue, "full"),
                Err(error) => panic!("{queue}: {error}"),
            }
        }
    }
    let amqp = Amqp::connect(&host.amqp()).await;
    assert_eq!((amqp.ready("full").await, amqp.ready("open").await as usize), (1, TASKS * MESSAGES / 2));
    broker.close().await;
}

/// A message for an exchange that does not exist closes the channel, which all publishes share.
#[tokio::test]
async fn a_publish_to_a_missing_exchange_fails_no_other_publish_for_good() {
    let declared = Declared::new("types: { mail: {} }").await;
    let broker = RabbitMq::new(AmqpUrl::new(&declared.host.amqp()).unwrap(), "publisher");
    let publish = |n: u32| {
        let exchange = if n.is_multiple_of(10) { "t.nowhere" } else { "t.scheduler" };
        let (routing_key, properties) = ("mail.now".to_owned(), Properties::default());
        broker.publish(Message { exchange: exchange.to_owned(), routing_key, properties, body: "{}".into() })
    };
    for (n, published) in join_all((0..300).map(publish)).await.into_iter().enumerate() {
        match published {
            Err(BrokerError::Missing { object }) => {
                assert_eq!((object.as_str(), n % 10), ("the exchange t.nowhere", 0));
            }
            Err(error) => assert!(error.is_transient(), "{n}: {error}"),
            Ok(()) => assert_ne!(n % 10, 0),
        }
    }
    broker.close().await;
}

/// Without its binding and without the exchange that catches the rest, the broker confirms and returns what is published.
/// Publishes of many tasks are under way meanwhile, also of another type.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_event_that_the_broker_returns_is_reported_as_published() {
    let declared = Declared::new("types: { mail: {}, lost: {} }").await;
    let (hatchery, queue) = (declared.connect().await, declared.processing("lost"));
    let (stop, returned) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (publisher, stop, returned) = (hatchery.publisher(), stop.clone(), Arc::clone(&returned));
            tokio::spawn(async move {
                let mut published = HashSet::new();
                for round in 0.. {
                    if stop.is_cancelled() {
                        break;
                    }
                    let publish = |n: u32| {
                        let (id, event_type) = (format!("{task}-{round}-{n}"), ["mail", "lost"][n as usize % 2]);
                        let publishing = publisher.publish(NewEvent::new(event_type, "{}").id(id.clone()));
                        async move { (id, event_type, publishing.await) }
                    };
                    for (id, event_type, told) in join_all((0..20).map(publish)).await {
                        match told {
                            Ok(_) if event_type == "lost" => drop(published.insert(id)),
                            Err(PublishError::Broker(BrokerError::Unroutable { exchange, routing_key }))
                                if event_type == "lost" =>
                            {
                                assert_eq!((exchange.as_str(), routing_key.as_str()), ("t.scheduler", "lost.now"));
                                returned.fetch_add(1, Ordering::Relaxed);
                            }
                            told => assert!(told.is_ok(), "{event_type}: {told:?}"),
                        }
                    }
                }
                published
            })
        })
        .collect();
    let amqp = declared.amqp().await;
    eventually("events arrive", async || (amqp.ready(&queue).await > 100).then_some(())).await;
    declared.host.delete("exchanges", &["t.unrouted"]);
    let bindings = declared.host.list("bindings");
    let binding = bindings.iter().find(|it| it["destination"] == queue && it["source"] == "t.processor").unwrap();
    declared.host.delete("bindings", &["e", "t.processor", "q", &queue, text(binding, "properties_key")]);
    eventually("events are returned", async || (returned.load(Ordering::Relaxed) > 100).then_some(())).await;
    stop.cancel();
    let mut published = HashSet::new();
    for task in tasks {
        published.extend(task.await.unwrap());
    }
    while let Some(message) = amqp.get(&queue).await {
        published.remove(message.properties.message_id().as_ref().unwrap().as_str());
    }
    assert!(published.is_empty(), "{} were reported as published, and are gone", published.len());

    declared.apply().await;
    publish(&hatchery, NewEvent::new("lost", "{}")).await;
}

/// Somebody has declared exchanges anew, without bindings and alternate exchanges.
#[tokio::test]
async fn a_letter_that_the_broker_returns_stays_with_its_worker() {
    let declared = Declared::new("types: { mail: {} }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "{}")).await;
    for exchange in ["t.scheduler", "t.dead-letter"] {
        declared.host.delete("exchanges", &[exchange]);
        declared.host.put("exchanges", exchange, &json!({ "type": "topic", "durable": true }));
    }
    let told = hatchery.publisher().publish(NewEvent::new("mail", "{}")).await;
    assert!(matches!(told, Err(PublishError::Broker(BrokerError::Unroutable { .. }))), "{told:?}");
    let worker = Working::start(&hatchery, "mail", |_| Outcome::DeadLetter { reason: "never".into() });
    worker.runs.reach(1).await;
    let (amqp, letters) = (declared.amqp().await, declared.dead_letters("mail"));
    declared.host.bind("t.dead-letter", &letters, "mail.#");
    amqp.take(&letters).await;
    assert_eq!(worker.stop().await.dead_lettered, 1);
}
