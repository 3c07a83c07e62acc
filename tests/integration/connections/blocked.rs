//! A broker that takes no messages for now (out of memory or disk) still delivers, and takes acknowledgements.

use std::{fs, time::Duration};

use bytes::Bytes;
use hatchery::{NewEvent, Outcome};
use rustix::process::Signal;

use crate::support::{
    broker::eventually,
    declared::{Declared, publish},
    private,
    process::{Place, Process},
    redis,
    workers::Working,
};

/// Megabytes of this process.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/test --all runs it"]
async fn publishing_waits_in_bounded_memory_and_consuming_goes_on() {
    const PUBLISHES: usize = 2_000;
    let mut broker = private::broker().await;
    let declared = Declared::on(broker.host(), "types: { mail: { prefetch: 10 }, big: {} }", redis::url()).await;
    let hatchery = declared.connect().await;
    for n in 0..100 {
        publish(&hatchery, NewEvent::new("mail", n.to_string())).await;
    }
    broker.block();
    // Half a gigabyte, were each of them copied.
    let (payload, before) = (Bytes::from(vec![b'x'; 256 * 1024]), resident());
    let publishing: Vec<_> = (0..PUBLISHES)
        .map(|_| tokio::spawn(hatchery.publisher().publish(NewEvent::new("big", payload.clone()))))
        .collect();
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(100).await;
    let amqp = declared.amqp().await;
    // Nothing is left unacknowledged either: a second worker would find nothing.
    amqp.left_alone(&declared.processing("mail"), 0).await;
    assert_eq!(worker.stop().await.done, 100);
    assert!(publishing.iter().all(|publish| !publish.is_finished()), "they wait");
    let grown = resident().saturating_sub(before);
    assert!(grown < 250, "{grown} MB more");
    for publish in &publishing {
        publish.abort();
    }
    broker.unblock();
    // Whoever publishes now does not wait for those who have given up.
    publish(&hatchery, NewEvent::new("mail", "after")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/test --all runs it"]
async fn a_worker_says_so_once_and_stops_within_its_limit() {
    let mut broker = private::broker().await;
    let text = "types: { mail: { lease: 1s, retry: { delays: [50ms] } } }";
    let declared = Declared::on(broker.host(), text, redis::url()).await;
    let hatchery = declared.connect().await;
    for n in 0..5 {
        publish(&hatchery, NewEvent::new("mail", n.to_string())).await;
    }
    let place = Place::new(&declared);
    let script = place.write("handler.sh", "echo $(cat) $EVENT_ATTEMPTS >> runs; [ $EVENT_ATTEMPTS = 1 ]");
    broker.block();
    let worker = Process::spawn(place.worker("mail", &script));
    let said = |what: &str| place.lines("log").iter().filter(|line| line.contains(what)).count();
    let blocked = "the broker takes no messages for now";
    eventually("it says so", async || (said(blocked) > 0).then_some(())).await;
    eventually("all have run", async || (place.lines("runs").len() >= 5).then_some(())).await;
    broker.unblock();
    eventually("it says so", async || (said("the broker takes messages again") > 0).then_some(())).await;
    eventually("all have run twice", async || (place.lines("runs").len() >= 10).then_some(())).await;
    let summary = worker.stop().await;
    assert_eq!((&summary["retried"], &summary["done"]), (&5.into(), &5.into()), "{summary}");
    assert_eq!((said(blocked), said("takes messages again")), (1, 1), "{:?}", place.lines("log"));
    assert!(
        place.lines("log").iter().any(|line| line.contains(blocked) && line.contains("low on")),
        "the broker's reason"
    );

    publish(&hatchery, NewEvent::new("mail", "last")).await;
    broker.block();
    let mut command = place.worker("mail", &script);
    command.args(["--drain-timeout", "1s"]);
    let worker = Process::spawn(command);
    eventually("it has run", async || (place.lines("runs").len() == 11).then_some(())).await;
    worker.signal(Signal::TERM);
    tokio::time::timeout(Duration::from_secs(15), worker.ended()).await.expect("within its limit").expect(0);
    broker.unblock();
    // The event itself is still there, its follow-up may be there too.
    let worker = Process::spawn(place.worker("mail", &script));
    eventually("it has come to its end", async || place.lines("runs").contains(&"last 1".to_owned()).then_some(()))
        .await;
    declared.amqp().await.emptied(&declared.queues()).await;
    worker.stop().await;
    assert_eq!(said("its worker died while it ran"), 0, "{:?}", place.lines("log"));
}
