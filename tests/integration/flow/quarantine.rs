//! Types with `register: off`: they need no Redis, and an event that may have killed its worker runs alone, from the
//! quarantine queue.

use std::{
    io::ErrorKind,
    net::TcpListener,
    sync::{Arc, Mutex},
    time::Duration,
};

use hatchery::{NewEvent, Outcome, Run};
use lapin::BasicProperties;

use crate::support::{
    amqp::shown,
    broker::eventually,
    declared::{Declared, publish},
    process::{Place, Process},
    redis::free_port,
    workers::{Runs, Working},
};

const PLAIN: &str = "types: { plain: { register: off, retry: { delays: [50ms], max-attempts: 2 } } }";

async fn put_into_quarantine(declared: &Declared, payload: &str) {
    let amqp = declared.amqp().await;
    amqp.publish("t.aside", "plain.aside", BasicProperties::default(), payload.as_bytes()).await;
}

#[tokio::test]
async fn a_type_without_the_register_never_connects_to_redis() {
    let redis = TcpListener::bind("127.0.0.1:0").unwrap();
    redis.set_nonblocking(true).unwrap();
    let url = format!("redis://{}", redis.local_addr().unwrap());
    let declared = Declared::with_redis(PLAIN, &url).await;
    let place = Place::new(&declared);
    // The first run fails, the second one asks for a requeue.
    let script = place.write(
        "handler.sh",
        "echo \"$EVENT_ATTEMPTS ${EVENT_FENCE-unset}\" >> runs\n\
         case $(wc -l < runs) in\n1) exit 1 ;;\n\
         2) echo '{\"requeue\": {\"after\": \"1s\", \"reason\": \"later\"}}' ;;\nesac\n",
    );
    let published =
        place.run(&mut place.command(&["publish", "plain", "--reference", "1234", "--payload", "{}"])).await;
    assert_eq!(published.expect(0).stderr, "");
    let worker = Process::spawn(place.worker("plain", &script));
    eventually("the event has run three times", async || (place.lines("runs").len() == 3).then_some(())).await;
    declared.amqp().await.expect_empty(&declared.queues()).await;
    let summary = worker.stop().await;
    assert_eq!((&summary["done"], &summary["retried"], &summary["requeued"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(place.lines("runs"), ["0 unset", "1 unset", "0 unset"]);
    assert_eq!(redis.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "something connected to Redis");
}

#[tokio::test]
#[ignore = "waits while Redis is away; scripts/test --all runs it"]
async fn an_absent_redis_stops_only_the_types_with_the_register() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let types = "types: { plain: { register: off }, exact: { register: off, on-failure: block }, mail: {} }";
    let declared = Declared::with_redis(types, &url).await;
    let hatchery = declared.connect().await;
    let runs = Runs::default();
    let note = |runs: Runs| {
        move |run: Run| {
            runs.note(&run);
            std::future::ready(Ok::<_, String>(Outcome::Done))
        }
    };
    let types = ["mail", "plain", "exact"];
    let worker = types.into_iter().fold(hatchery.worker(), |worker, of| worker.handle(of, note(runs.clone())));
    let worker = Working::run(worker, runs);
    publish(&hatchery, NewEvent::new("mail", "registered")).await;
    let amqp = declared.amqp().await;
    amqp.expect_untouched(&declared.processing("mail"), 1).await;
    for n in 0..20 {
        publish(&hatchery, NewEvent::new("plain", n.to_string())).await;
        publish(&hatchery, NewEvent::new("exact", n.to_string())).await;
    }
    worker.runs.reach(40).await;
    put_into_quarantine(&declared, "aside").await;
    worker.runs.reach(41).await;
    assert_eq!(worker.stop().await.done, 41);
    assert_eq!(amqp.filled(&declared.queues()).await, [(declared.processing("mail"), 1)].into());
}

#[tokio::test]
async fn an_event_that_came_back_twice_is_moved_to_the_quarantine_with_a_reason_and_runs() {
    let declared = Declared::new(PLAIN).await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    publish(&hatchery, NewEvent::new("plain", "{}").reason("imported")).await;
    amqp.requeue_first(&declared.processing("plain"), 2).await;
    // While a handler runs, the worker does not consume the quarantine queue.
    let (worker, gate) = Working::gated(hatchery.worker(), "plain");
    publish(&hatchery, NewEvent::new("plain", "first")).await;
    worker.runs.reach(1).await;
    let quarantine = declared.quarantine("plain");
    eventually("the event is in the quarantine queue", async || (amqp.ready(&quarantine).await == 1).then_some(()))
        .await;
    assert_eq!(worker.runs.payloads(), ["first"]);
    let copy = amqp.take(&quarantine).await;
    let reason = shown(&copy, "reason").unwrap();
    assert!(reason.starts_with("crash: its delivery came back 2 times"), "{reason}");
    amqp.publish("t.aside", "plain.aside", copy.properties.clone(), &copy.data).await;
    gate.let_through(2);
    worker.runs.reach(2).await;
    amqp.expect_empty(&declared.queues()).await;
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.put_aside, summary.given_back), (2, 1, 0));
}

/// The worker has three types; only one of them has events in its quarantine queue.
#[tokio::test]
#[ignore = "handles 30 suspects of each type, one at a time; scripts/test --all runs it"]
async fn nothing_runs_beside_an_event_from_the_quarantine() {
    const EACH: usize = 30;
    let declared = Declared::new("types: { plain: { register: off }, other: { register: off }, mail: {} }").await;
    let hatchery = declared.connect().await;
    let log = Arc::new(Mutex::new(Vec::new()));
    let handler = |log: Arc<Mutex<Vec<String>>>| {
        move |run: Run| {
            let log = Arc::clone(&log);
            async move {
                let payload = String::from_utf8_lossy(&run.event.payload).into_owned();
                log.lock().unwrap().push(format!("begin {payload}"));
                tokio::time::sleep(Duration::from_millis(5)).await;
                log.lock().unwrap().push(format!("end {payload}"));
                Ok::<_, String>(Outcome::Done)
            }
        }
    };
    for n in 0..EACH {
        publish(&hatchery, NewEvent::new("mail", format!("mail-{n}"))).await;
        publish(&hatchery, NewEvent::new("other", format!("other-{n}"))).await;
        put_into_quarantine(&declared, &format!("aside-{n}")).await;
    }
    let worker = ["plain", "other", "mail"]
        .into_iter()
        .fold(hatchery.worker(), |worker, of| worker.handle(of, handler(Arc::clone(&log))));
    let worker = Working::run(worker.stop_when_empty(true), Runs::default());
    assert_eq!(worker.ended().await.unwrap().done, 3 * u64::try_from(EACH).unwrap());
    let log = log.lock().unwrap().clone();
    for (at, entry) in log.iter().enumerate().filter(|(_, entry)| entry.starts_with("begin aside")) {
        assert_eq!(log[at + 1], entry.replace("begin", "end"), "{log:?}");
        let open = log[..at].iter().filter(|it| it.starts_with("begin")).count();
        assert_eq!(open, log[..at].iter().filter(|it| it.starts_with("end")).count(), "{log:?}");
    }
}

#[tokio::test]
async fn an_event_from_the_quarantine_runs_again_after_its_worker_was_killed() {
    let declared = Declared::new(PLAIN).await;
    let place = Place::new(&declared);
    put_into_quarantine(&declared, "innocent").await;
    let script =
        place.write("handler.sh", "echo begin >> runs; while [ ! -e go ]; do sleep 0.05; done; echo end >> runs");
    for n in 1..=2 {
        let worker = Process::spawn(place.worker("plain", &script));
        eventually("the handler runs", async || (place.lines("runs").len() == n).then_some(())).await;
        worker.signal(rustix::process::Signal::KILL);
        assert!(worker.ended().await.killed());
    }
    place.write("go", "");
    let mut last = place.worker("plain", &script);
    place.run(last.arg("--stop-when-empty")).await.expect(0);
    assert_eq!(place.lines("runs").last().map(String::as_str), Some("end"));
    let left = declared.amqp().await.filled(&declared.queues()).await;
    assert!(left.is_empty(), "{left:?}");
}

/// RabbitMQ's versions differ in whether they count a delivery that is given back.
#[tokio::test]
async fn an_event_that_stops_give_back_is_not_counted_as_a_crash() {
    let declared = Declared::new(PLAIN).await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    let quarantine = declared.quarantine("plain");
    put_into_quarantine(&declared, "innocent").await;
    for _ in 0..6 {
        let worker = hatchery.worker().drain_timeout(Duration::ZERO);
        let (worker, _gate) = Working::gated(worker, "plain");
        worker.runs.reach(1).await;
        assert_eq!(worker.stop().await.given_back, 1);
        eventually("the event is back in the quarantine queue", async || {
            (amqp.ready(&quarantine).await == 1).then_some(())
        })
        .await;
    }
    let worker = Working::with(hatchery.worker().stop_when_empty(true), "plain", |_| Outcome::Done);
    assert_eq!(worker.ended().await.unwrap().done, 1);
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}
