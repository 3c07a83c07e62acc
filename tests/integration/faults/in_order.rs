//! Workers of a type with `on-failure: block` are killed with `kill -9`. The next worker goes on at the same event.

use std::collections::BTreeMap;

use hatchery::{Hatchery, NewEvent};

use crate::support::{
    broker::eventually,
    declared::{Declared, publish},
    process::{Place, Process},
};

const EVENTS: usize = 60;
/// How often the culprit kills its worker: more often than `crash-limit`.
const CRASHES: usize = 5;

/// Event 25 kills its worker five times and then succeeds. Every tenth event fails at first.
const SCRIPT: &str = r#"
payload=$(cat)
echo "$payload" >> runs
so_often=$(grep -c "^$payload$" runs)
if [ "$payload" = 25 ] && [ "$so_often" -le 5 ]; then kill -9 $PPID; fi
case $payload in *3) test "$so_often" -gt 1 ;; esac
"#;

/// Publishes one event after the other. The order of events that are published at the same time is undefined.
async fn publish_in_order(hatchery: &Hatchery, event_type: &str, events: usize) {
    for n in 0..events {
        publish(hatchery, NewEvent::new(event_type, n.to_string()).id(n.to_string())).await;
    }
}

#[tokio::test]
#[ignore = "kills workers five times; scripts/test --all runs it"]
async fn the_next_worker_continues_at_the_event_of_the_killed_one_and_dead_letters_nothing() {
    let declared = Declared::new(
        "types: { mail: { on-failure: block, lease: 300ms, crash-limit: 3, retry: { delays: [20ms] } } }",
    )
    .await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    publish_in_order(&hatchery, "mail", EVENTS).await;

    let place = Place::new(&declared);
    let script = place.write("handler.sh", SCRIPT);
    // Two pods: one works, and the other takes over when the first ends.
    let mut pods = vec![Process::spawn(place.worker("mail", &script)), Process::spawn(place.worker("mail", &script))];
    let mut killed = 0;
    eventually("every event has run", async || {
        for pod in &mut pods {
            if let Some(status) = pod.try_ended() {
                assert!(!status.success(), "{status}");
                killed += 1;
                *pod = Process::spawn(place.worker("mail", &script));
            }
        }
        (place.lines("runs").last().map(String::as_str) == Some("59")).then_some(())
    })
    .await;
    amqp.expect_empty(&declared.queues()).await;
    for pod in pods {
        pod.stop().await;
    }
    assert_eq!(killed, CRASHES);
    let runs: Vec<usize> = place.lines("runs").iter().map(|line| line.parse().unwrap()).collect();
    assert!(runs.is_sorted(), "the events ran out of order: {runs:?}");
    let mut times = BTreeMap::new();
    for run in runs {
        *times.entry(run).or_insert(0) += 1;
    }
    let expected = |event| match event {
        25 => CRASHES + 1,
        event if event % 10 == 3 => 2,
        _ => 1,
    };
    assert_eq!(times, (0..EVENTS).map(|event| (event, expected(event))).collect::<BTreeMap<_, _>>());
    assert!(amqp.filled(&declared.queues()).await.is_empty(), "an event is left in a queue");
}

/// Only the event at the head may run twice.
#[tokio::test]
#[ignore = "kills a worker at each of five fail points; scripts/test --all runs it"]
async fn an_ordered_type_keeps_its_order_wherever_its_worker_is_killed() {
    const POINTS: [&str; 5] = ["work.delivered", "work.claimed", "work.handled", "work.settled", "work.acknowledged"];
    let types = POINTS.map(super::event_type).map(|name| format!("{name}: {{ on-failure: block, lease: 300ms }}"));
    let declared = Declared::new(&format!("types: {{ {} }}", types.join(", "))).await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    for point in POINTS {
        publish_in_order(&hatchery, &super::event_type(point), 20).await;
    }
    let cases = POINTS.iter().map(async |point| {
        let event_type = super::event_type(point);
        let place = Place::new(&declared);
        let script = place.write("handler.sh", "cat >> runs; echo >> runs");
        let mut doomed = place.worker(&event_type, &script);
        doomed.env("HATCHERY_KILL_AT", format!("{point}:10"));
        assert!(Process::spawn(doomed).ended().await.killed(), "{point}");
        let second = Process::spawn(place.worker(&event_type, &script));
        eventually(&format!("{point}: the last event has run"), async || {
            (place.lines("runs").last().map(String::as_str) == Some("19")).then_some(())
        })
        .await;
        second.stop().await;
        let runs: Vec<usize> = place.lines("runs").iter().map(|line| line.parse().unwrap()).collect();
        let mut once = runs.clone();
        once.dedup();
        assert_eq!(once, (0..20).collect::<Vec<_>>(), "{point}: {runs:?}");
        // Deliveries arrive while the head runs. Where the head is claimed or settled, no handler runs.
        let twice = match *point {
            "work.delivered" => 0..=1,
            "work.handled" => 1..=1,
            _ => 0..=0,
        };
        assert!(twice.contains(&(runs.len() - 20)), "{point}: {runs:?}");
    });
    futures_util::future::join_all(cases).await;
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}
