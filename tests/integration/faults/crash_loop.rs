//! An event that kills its worker again and again (the culprit), among events that do not (its neighbours).

use std::collections::BTreeSet;

use futures_util::future::join_all;
use hatchery::{Hatchery, NewEvent};
use lapin::BasicProperties;
use rstest::rstest;

use crate::support::{
    amqp::{Amqp, shown},
    broker::eventually,
    declared::{Declared, publish},
    process::{Place, Process},
};

const LIMIT: usize = 4;
const NEIGHBOURS: usize = 20;

/// The culprit kills its worker.
const SCRIPT: &str = r#"
payload=$(cat)
echo "begin $PPID $payload" >> runs
if [ "$payload" = culprit ]; then kill -9 $PPID; exit; fi
echo "end $PPID $payload" >> runs
"#;

#[tokio::test]
#[ignore = "kills four workers of each of three types; scripts/test --all runs it"]
async fn a_culprit_runs_alone_and_is_dead_lettered_at_the_crash_limit_and_its_neighbours_are_handled() {
    let declared = Declared::new(&format!(
        "defaults: {{ lease: 500ms, prefetch: 30, concurrency: 5, crash-limit: {LIMIT} }}
types:
  off: {{}}
  latest: {{ coalesce: latest }}
  plain: {{ register: off }}"
    ))
    .await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    join_all(["off", "latest", "plain"].map(|event_type| case(&declared, &hatchery, &amqp, event_type))).await;
    let left = amqp.filled(&declared.queues()).await;
    assert!(left.is_empty(), "{left:?}");
}

async fn case(declared: &Declared, hatchery: &Hatchery, amqp: &Amqp, event_type: &str) {
    let place = Place::new(declared);
    let script = place.write("handler.sh", SCRIPT);
    let event = |payload: String| NewEvent::new(event_type, payload.clone()).reference(payload);
    for n in 0..NEIGHBOURS {
        if n == 3 {
            publish(hatchery, event("culprit".to_owned())).await;
        }
        publish(hatchery, event(n.to_string())).await;
    }
    for _ in 0..LIMIT {
        let ended = Process::spawn(place.worker(event_type, &script)).ended().await;
        assert!(ended.killed(), "{ended:?}");
    }
    let last = Process::spawn(place.worker(event_type, &script));
    let letter = amqp.take(&declared.dead_letters(event_type)).await;
    assert_eq!(letter.data, b"culprit");
    let reason = shown(&letter, "reason").unwrap();
    let expected = match event_type {
        "plain" => "crash: it came back 2 times when it ran alone, and 2 times before".into(),
        _ => format!("crash: it was started {LIMIT} times and never settled"),
    };
    assert_eq!(reason, expected);
    assert_eq!(shown(&letter, "attempts").as_deref(), Some("0"));

    let neighbours: BTreeSet<String> = (0..NEIGHBOURS).map(|n| n.to_string()).collect();
    let ended = |lines: &[String]| -> BTreeSet<String> {
        lines.iter().filter(|line| line.starts_with("end ")).map(|line| word(line, 2).to_owned()).collect()
    };
    eventually("the neighbours are handled", async || (ended(&place.lines("runs")) == neighbours).then_some(())).await;
    // A crash leaves copies of events that had finished. The next worker drops them; a stop would give them back.
    last.stop().await;
    let mut rest = place.worker(event_type, &script);
    place.run(rest.arg("--stop-when-empty")).await.expect(0);
    assert_eq!(amqp.ready(&declared.dead_letters(event_type)).await, 0, "a neighbour is a dead letter");
    assert_runs_alone(&place.lines("runs"));
}

/// Without an id, only the broker's `redelivered` flag shows that the event was delivered before.
#[rstest]
#[case::quorum("")]
#[case::classic("queue-type: classic\n")]
#[tokio::test]
#[ignore = "kills up to four workers; scripts/test --all runs it"]
async fn a_culprit_without_an_id_is_started_no_more_often_than_the_crash_limit(#[case] queues: &str) {
    let declared = Declared::new(&format!(
        "{queues}types: {{ off: {{ lease: 500ms, prefetch: 30, concurrency: 5, crash-limit: {LIMIT} }} }}"
    ))
    .await;
    let (amqp, place) = (declared.amqp().await, Place::new(&declared));
    let script = place.write("handler.sh", SCRIPT);
    for n in 0..NEIGHBOURS {
        let payload = if n == 3 { "culprit".to_owned() } else { n.to_string() };
        amqp.publish("t.scheduler", "off.now", BasicProperties::default(), payload.as_bytes()).await;
    }
    let dead_letters = declared.dead_letters("off");
    let starts =
        || place.lines("runs").iter().filter(|line| line.starts_with("begin ") && word(line, 2) == "culprit").count();
    let mut kills = 0;
    let last = loop {
        let worker = Process::spawn(place.worker("off", &script));
        let buried = async || (starts() > kills || amqp.ready(&dead_letters).await == 1).then_some(());
        eventually("the culprit is started or a dead letter", buried).await;
        if starts() == kills {
            break worker;
        }
        assert!(worker.ended().await.killed());
        kills += 1;
        assert!(kills <= LIMIT, "the culprit was started {kills} times");
    };
    let letter = amqp.take(&dead_letters).await;
    assert_eq!(letter.data, b"culprit");
    let reason = shown(&letter, "reason").unwrap();
    assert!(reason.starts_with("crash: it "), "{reason}");
    let handled = || -> BTreeSet<String> {
        place
            .lines("runs")
            .iter()
            .filter(|line| line.starts_with("end "))
            .map(|line| word(line, 2).to_owned())
            .collect()
    };
    let all = (0..NEIGHBOURS).filter(|n| *n != 3).map(|n| n.to_string()).collect();
    eventually("the culprit's neighbours are handled", async || (handled() == all).then_some(())).await;
    last.stop().await;
    place.run(place.worker("off", &script).arg("--stop-when-empty")).await.expect(0);
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

/// A type with `on-failure: block` has no crash limit, with the register and without.
#[tokio::test]
#[ignore = "kills five workers of each of two types; scripts/test --all runs it"]
async fn an_ordered_culprit_is_started_again_however_often_its_worker_dies() {
    let declared = Declared::new(
        "defaults: { on-failure: block, lease: 500ms, crash-limit: 3 }
types: { claimed: {}, plain: { register: off } }",
    )
    .await;
    assert!(!declared.queues().iter().any(|queue| queue.contains(".aside.")), "{:?}", declared.queues());
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    let script = r#"
payload=$(cat)
echo "$payload" >> runs
if [ "$payload" = culprit ] && [ ! -e mended ]; then kill -9 $PPID; fi
"#;
    join_all(["claimed", "plain"].map(async |event_type| {
        let place = Place::new(&declared);
        let script = place.write("handler.sh", script);
        for payload in ["before", "culprit", "after"] {
            publish(&hatchery, NewEvent::new(event_type, payload)).await;
        }
        for _ in 0..5 {
            let ended = Process::spawn(place.worker(event_type, &script)).ended().await;
            assert!(ended.killed(), "{ended:?}");
        }
        place.write("mended", "");
        place.run(place.worker(event_type, &script).arg("--stop-when-empty")).await.expect(0);
        let runs = place.lines("runs");
        let expected = [&["before"][..], &["culprit"; 6], &["after"]].concat();
        assert_eq!(runs, expected, "{event_type}");
    }))
    .await;
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

/// A worker that dies between publishing the copy and acknowledging the original leaves both in the broker: at least
/// once.
#[tokio::test]
#[ignore = "kills a worker between a copy and its acknowledgement; scripts/test --all runs it"]
async fn a_crash_while_a_suspect_is_moved_to_the_quarantine_loses_nothing() {
    let declared = Declared::new("types: { plain: { register: off } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    for payload in ["suspect", "one", "two"] {
        publish(&hatchery, NewEvent::new("plain", payload)).await;
    }
    let amqp = declared.amqp().await;
    amqp.requeue_first(&declared.processing("plain"), 2).await;
    let script = place.write("handler.sh", "echo \"$(cat)\" >> runs");
    let mut doomed = place.worker("plain", &script);
    doomed.env("HATCHERY_KILL_AT", "work.put-aside:1");
    assert!(Process::spawn(doomed).ended().await.killed());
    let mut second = place.worker("plain", &script);
    place.run(second.arg("--stop-when-empty")).await.expect(0);
    let ran: BTreeSet<String> = place.lines("runs").into_iter().collect();
    assert_eq!(ran, ["one", "suspect", "two"].map(str::to_owned).into());
    let left = amqp.filled(&declared.queues()).await;
    assert!(left.is_empty(), "{left:?}");
}

/// Asserts that from its third start on the culprit runs while nothing else runs in its worker.
fn assert_runs_alone(runs: &[String]) {
    let starts: Vec<usize> = (0..runs.len()).filter(|n| word(&runs[*n], 2) == "culprit").collect();
    assert_eq!(starts.len(), LIMIT, "{runs:?}");
    for start in &starts[2..] {
        let worker = word(&runs[*start], 1);
        let open = runs[..*start].iter().fold(BTreeSet::new(), |mut open, line| {
            if word(line, 1) == worker {
                match word(line, 0) {
                    "begin" => drop(open.insert(word(line, 2))),
                    _ => drop(open.remove(word(line, 2))),
                }
            }
            open
        });
        assert!(open.is_empty(), "{open:?} ran beside the culprit: {runs:?}");
        let after = runs[start + 1..].iter().find(|line| word(line, 1) == worker);
        assert_eq!(after, None, "{runs:?}");
    }
}

fn word(line: &str, n: usize) -> &str {
    line.split(' ').nth(n).unwrap()
}
