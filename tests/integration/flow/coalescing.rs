//! Coalescing: which events of one reference become one run.

use std::time::Duration;

use hatchery::{NewEvent, Outcome};
use jiff::Timestamp;

use crate::support::{
    broker::eventually,
    declared::{Declared, publish},
    workers::Working,
};

fn change(payload: &str) -> NewEvent {
    NewEvent::new("import", payload.to_owned()).reference("1234")
}

async fn import(coalesce: &str) -> Declared {
    Declared::new(&format!("types: {{ import: {{ coalesce: {coalesce} }} }}")).await
}

/// Returns the payloads of the runs. Events that are due at nearly the same time may run in any order.
fn sorted(worker: &Working) -> Vec<String> {
    let mut payloads = worker.runs.payloads();
    payloads.sort_unstable();
    payloads
}

#[tokio::test]
async fn ten_changes_within_a_window_are_one_run_with_the_last_payload() {
    let declared = import("{ immediate: latest, delayed: each-time, window: 3s }").await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    let changes = (1..=10).map(|n| change(&n.to_string())).collect();
    assert!(hatchery.publisher().publish_batch(changes).await.iter().all(Result::is_ok));
    publish(&hatchery, NewEvent::new("import", "another").reference("5678")).await;
    worker.runs.reach(2).await;
    assert_eq!(sorted(&worker), ["10", "another"]);
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.replaced), (2, 9));
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

/// Each change is replaced by the next one within its window, until the reference has waited for `max-wait`.
#[tokio::test]
#[ignore = "waits for a `max-wait` of 8 s to end; scripts/test --all runs it"]
async fn a_stream_of_changes_without_a_pause_runs_after_max_wait() {
    // The window is long enough for a busy machine to publish again within it. The default of `max-wait`, ten windows, is
    // longer than the test waits.
    let declared = import("{ immediate: latest, delayed: each-time, window: 7s, max-wait: 8s }").await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    let mut published = 0;
    eventually("a change runs", async || {
        publish(&hatchery, change(&published.to_string())).await;
        published += 1;
        (!worker.runs.seen().is_empty()).then_some(())
    })
    .await;
    let first: usize = worker.runs.payloads()[0].parse().unwrap();
    assert!(
        first > 0 && first < published - 1,
        "the first run was of change {first} of {published}: it neither waited nor left a newer one waiting"
    );
    // The last change runs, too.
    let last = (published - 1).to_string();
    eventually("the last change runs", async || worker.runs.payloads().contains(&last).then_some(())).await;
    let amqp = declared.amqp().await;
    amqp.expect_empty(&declared.queues()).await;
    let summary = worker.stop().await;
    assert_eq!(summary.done + summary.replaced + summary.stale, u64::try_from(published).unwrap(), "{summary:?}");
    assert!(summary.done <= 4, "{summary:?}");
}

#[tokio::test]
async fn dated_changes_run_once_for_each_date() {
    let declared = import("latest").await;
    let hatchery = declared.connect().await;
    let at = |millis| Timestamp::now().checked_add(Duration::from_millis(millis)).unwrap();
    let (first, second) = (at(500), at(900));
    for (payload, at) in [("first", first), ("second", second), ("first, repeated", first)] {
        publish(&hatchery, change(payload).at(at)).await;
    }
    // An immediate change never replaces a dated one.
    publish(&hatchery, change("now")).await;
    // The worker starts last, because on a busy machine a date may have passed before the next change is published.
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(3).await;
    assert_eq!(sorted(&worker), ["first, repeated", "now", "second"]);
    declared.amqp().await.expect_empty(&declared.queues()).await;
    let summary = worker.stop().await;
    // The repeated change makes the first one replaced, or stale if that is delivered last.
    assert_eq!((summary.done, summary.replaced + summary.stale), (3, 1));
}

#[tokio::test]
async fn only_the_newest_dated_change_runs_with_delayed_latest() {
    let declared = import("{ delayed: latest }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, change("early").delay(Duration::from_millis(300))).await;
    publish(&hatchery, change("late").delay(Duration::from_millis(600))).await;
    publish(&hatchery, change("now")).await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(2).await;
    assert_eq!(sorted(&worker), ["late", "now"]);
    declared.amqp().await.expect_empty(&declared.queues()).await;
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.replaced + summary.stale), (2, 1));
}

#[tokio::test]
async fn a_change_that_arrives_while_its_reference_runs_gets_its_own_run() {
    let declared = import("latest").await;
    let hatchery = declared.connect().await;
    let (worker, gate) = Working::gated(hatchery.worker(), "import");
    publish(&hatchery, change("first")).await;
    worker.runs.reach(1).await;
    for payload in ["second", "third"] {
        publish(&hatchery, change(payload)).await;
    }
    gate.let_through(2);
    worker.runs.reach(2).await;
    assert_eq!(worker.runs.payloads(), ["first", "third"]);
    let summary = worker.stop().await;
    assert_eq!(summary.done, 2);
    assert!(summary.replaced <= 1, "the second change is replaced, or still waits as busy: {summary:?}");
}

#[tokio::test]
async fn one_run_serves_all_changes_published_before_it_with_immediate_first() {
    let declared = import("{ immediate: first, window: 3s }").await;
    let hatchery = declared.connect().await;
    let (worker, gate) = Working::gated(hatchery.worker(), "import");
    for payload in ["first", "second", "third"] {
        publish(&hatchery, change(payload)).await;
    }
    worker.runs.reach(1).await;
    publish(&hatchery, change("fourth")).await;
    gate.let_through(2);
    worker.runs.reach(2).await;
    assert_eq!(worker.runs.payloads(), ["first", "fourth"]);
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.replaced), (2, 2));
}

#[tokio::test]
async fn a_failed_change_that_was_replaced_meanwhile_is_not_retried() {
    let declared =
        Declared::new("types: { import: { coalesce: latest, retry: { delays: [2s], max-attempts: 3 } } }").await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "import", |event| match &event.payload[..] {
        b"old" => Outcome::Retry { reason: "no luck".into(), after: None },
        _ => Outcome::Done,
    });
    publish(&hatchery, change("old")).await;
    worker.runs.reach(1).await;
    publish(&hatchery, change("new")).await;
    worker.runs.reach(2).await;
    // This event passes the same retry queue behind the copy of the old one.
    publish(&hatchery, NewEvent::new("import", "old").reference("5678")).await;
    worker.runs.reach(4).await;
    assert_eq!(worker.runs.payloads()[..2], ["old", "new"]);
    assert!(worker.runs.seen()[2..].iter().all(|run| run.event.reference.as_ref().unwrap().to_string() == "5678"));
    assert_eq!(worker.stop().await.stale, 1);
}

#[tokio::test]
async fn a_newer_change_that_was_never_confirmed_hides_no_older_one() {
    let declared = import("latest").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, change("old")).await;
    declared.host.delete("exchanges", &["t.scheduler"]);
    hatchery.publisher().publish(change("new")).await.unwrap_err();
    declared.apply().await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(1).await;
    assert_eq!(worker.runs.payloads(), ["old"]);
    worker.stop().await;
}
