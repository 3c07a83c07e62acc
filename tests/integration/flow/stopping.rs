//! Stopping a worker, and workers that end by themselves.

use std::{collections::BTreeSet, time::Duration};

use hatchery::{BrokerError, NewEvent, Outcome, PublishError, Run, WorkError};

use crate::support::{
    broker::{PATIENCE, eventually},
    declared::{Declared, publish},
    workers::{Runs, Working},
};

async fn ten_events(text: &str) -> (Declared, hatchery::Hatchery) {
    let declared = Declared::new(text).await;
    let hatchery = declared.connect().await;
    for n in 0..10 {
        publish(&hatchery, NewEvent::new("mail", n.to_string())).await;
    }
    (declared, hatchery)
}

#[tokio::test]
async fn a_stop_lets_handlers_finish_and_gives_prefetched_events_back() {
    let (declared, hatchery) = ten_events("types: { mail: { prefetch: 8, concurrency: 2 } }").await;
    let (worker, gate) = Working::gated(hatchery.worker(), "mail");
    let runs = worker.runs.clone();
    worker.runs.reach(2).await;
    let amqp = declared.amqp().await;
    let queue = declared.processing("mail");
    eventually("the worker holds eight events", async || (amqp.ready(&queue).await == 2).then_some(())).await;
    let stopping = tokio::spawn(worker.stop());
    eventually("six events are given back", async || (amqp.ready(&queue).await == 8).then_some(())).await;
    assert!(!stopping.is_finished(), "the worker has stopped while two handlers run");
    gate.let_through(10);
    let summary = stopping.await.unwrap();
    assert_eq!((summary.done, summary.given_back), (2, 6));
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(8).await;
    let mut payloads = [runs.payloads(), worker.runs.payloads()].concat();
    payloads.sort();
    assert_eq!(payloads.concat(), "0123456789");
    assert_eq!(worker.stop().await.done, 8);
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn an_event_that_runs_beyond_the_drain_timeout_is_given_back_without_an_attempt() {
    let (declared, hatchery) = ten_events("types: { mail: { prefetch: 8, concurrency: 2 } }").await;
    let worker = hatchery.worker().drain_timeout(Duration::ZERO);
    let (worker, _gate) = Working::gated(worker, "mail");
    worker.runs.reach(2).await;
    let summary = worker.stop().await;
    assert_eq!(summary.done, 0);
    let amqp = declared.amqp().await;
    let back = [(declared.processing("mail"), 10)].into();
    eventually("all events are back in the queue", async || {
        (amqp.filled(&declared.queues()).await == back).then_some(())
    })
    .await;
    // They run at once: no lease has to end first, and none waits as busy.
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let runs = worker.runs.reach(10).await;
    assert!(runs.iter().all(|run| run.event.attempts == 0 && run.event.busy == 0), "{runs:?}");
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.busy), (10, 0));
}

#[tokio::test]
async fn a_worker_with_stop_when_empty_ends_once_its_own_queues_are_empty() {
    let (declared, hatchery) = ten_events("types: { mail: { prefetch: 10, concurrency: 2 }, other: {} }").await;
    publish(&hatchery, NewEvent::new("other", "not mine")).await;
    publish(&hatchery, NewEvent::new("mail", "later").delay(Duration::from_mins(1))).await;
    let worker = Working::with(hatchery.worker().stop_when_empty(true), "mail", |_| Outcome::Done);
    assert_eq!(worker.ended().await.unwrap().done, 10);
    assert_eq!(declared.amqp().await.ready(&declared.processing("other")).await, 1);
    let worker = Working::with(hatchery.worker().stop_when_empty(true), "mail", |_| Outcome::Done);
    let summary = worker.ended().await.unwrap();
    assert_eq!(summary.done, 0);
}

#[tokio::test]
async fn a_worker_fails_at_its_start_and_names_a_missing_queue_or_exchange() {
    let ladder = "ladder: { resolution: 1s, horizon: 3s }";
    let declared =
        Declared::new(&format!("{ladder}\ntypes: {{ mail: {{ retry: {{ delays: [50ms] }} }}, other: {{}} }}")).await;
    let hatchery = declared.connect().await;
    let error = Working::start(&hatchery, "post", |_| Outcome::Done).ended().await.unwrap_err();
    assert!(matches!(error, WorkError::UnknownType(_)), "{error}");
    let amqp = declared.amqp().await;
    // The queues that an event or its copies may need, from the last to the first.
    let refused = async || {
        let ended = Working::start(&hatchery, "mail", |_| Outcome::Done).ended();
        tokio::time::timeout(PATIENCE, ended)
            .await
            .expect("the worker did not fail at its start")
            .unwrap_err()
            .to_string()
    };
    for queue in [
        "t.unrouted",
        "t.hatchery.250ms",
        "t.ladder.1s-2.00-1s",
        "t.retry.mail.50ms",
        "t.dead-letter.mail",
        "t.processor.mail",
    ] {
        amqp.delete_queue(queue).await;
        let error = refused().await;
        assert!(error.contains(&format!("the queue {queue}")) && error.contains("topology apply"), "{error}");
        declared.apply().await;
    }
    declared.host.delete("exchanges", &["t.ladder.1s-2.01-2s"]);
    let error = refused().await;
    assert!(error.contains("the exchange t.ladder.1s-2.01-2s"), "{error}");
    declared.apply().await;
    // A missing queue of another type does not matter to the worker.
    amqp.delete_queue("t.processor.other").await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    publish(&hatchery, NewEvent::new("mail", "")).await;
    worker.runs.reach(1).await;
    assert_eq!(worker.stop().await.done, 1);
}

#[tokio::test]
async fn a_closed_connection_ends_its_workers_and_loses_nothing() {
    let types = "mail: { retry: { delays: [50ms] }, prefetch: 8, concurrency: 2 }";
    let (declared, hatchery) = ten_events(&format!("types: {{ {types} }}")).await;
    let publisher = hatchery.publisher();
    let again = Outcome::Retry { reason: "again".into(), after: None };
    let (worker, gate) = Working::gated_with(hatchery.worker(), "mail", again);
    worker.runs.reach(2).await;
    hatchery.close().await;
    assert!(worker.is_running(), "the worker has ended while two handlers run");
    gate.let_through(10);
    let ended = worker.ended().await;
    assert!(matches!(ended, Err(WorkError::Broker(BrokerError::Closed))), "{ended:?}");
    let refused = publisher.publish(NewEvent::new("mail", "late")).await.unwrap_err();
    assert!(matches!(refused, PublishError::Broker(BrokerError::Closed)), "{refused:?}");
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    // The events run at once: they were released, and no lease has to end first.
    let runs = worker.runs.reach(10).await;
    let mut payloads = worker.runs.payloads();
    payloads.sort();
    assert_eq!(payloads.concat(), "0123456789");
    assert!(runs.iter().all(|run| run.event.attempts == 0), "{runs:?}");
    assert_eq!(worker.stop().await.done, 10);
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

/// RabbitMQ forgets the acknowledgements that a channel holds back when the channel closes.
#[tokio::test]
#[ignore = "works through a long queue with workers that stop; scripts/test --all runs it"]
async fn workers_that_stop_in_the_middle_of_a_backlog_repeat_no_run() {
    const EVENTS: usize = 6_000;
    let declared = Declared::new("types: { mail: { prefetch: 1000, concurrency: 500, register: off } }").await;
    let hatchery = declared.connect().await;
    let batch = (0..EVENTS).map(|n| NewEvent::new("mail", n.to_string())).collect();
    assert!(hatchery.publisher().publish_batch(batch).await.iter().all(Result::is_ok));
    let (runs, mut stopped) = (Runs::default(), 0);
    while runs.count() < EVENTS {
        // With a connection of its own, which ends with the worker.
        let pod = declared.connect().await;
        let noted = runs.clone();
        let worker = pod.worker().handle("mail", move |run: Run| {
            noted.note(&run);
            // The runs end in another order than they begin.
            let millis = u64::from(run.event.payload.last().copied().unwrap_or_default() % 8);
            async move {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                Ok::<_, String>(Outcome::Done)
            }
        });
        let worker = Working::run(worker, runs.clone());
        runs.reach((runs.count() + 700).min(EVENTS)).await;
        worker.stop().await;
        stopped += 1;
    }
    assert!(stopped > 3, "{stopped} workers were stopped");
    let repeated = runs.count() - runs.payloads().into_iter().collect::<BTreeSet<_>>().len();
    assert_eq!(repeated, 0, "{repeated} runs were repeated");
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}
