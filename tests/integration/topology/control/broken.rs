//! The stream was deleted, has lost its last snapshot to a policy, or may not be read any more. One node is enough.

use std::time::Duration;

use hatchery::{CancellationToken, Outcome, Run};
use serde_json::json;

use super::{FILE, Fleet, OnCall};
use crate::support::{
    broker::{Rights, VirtualHost, eventually},
    declared::Declared,
    logs::Logs,
    redis,
    relay::Relay,
};

/// How soon a consumer of these tests consumes anew. Others wait for 30 s.
const SOON: Duration = Duration::from_millis(200);

/// Runs a worker that cannot begin, and returns its error.
async fn refused(hatchery: &hatchery::Hatchery) -> String {
    let worker = hatchery.worker().handle("other", |_: Run| std::future::ready(Ok::<_, String>(Outcome::Done)));
    worker.run(CancellationToken::new()).await.expect_err("the worker cannot begin").to_string()
}

#[tokio::test]
async fn a_worker_goes_by_its_last_snapshot_when_the_stream_is_deleted_and_an_apply_forgets_what_a_person_paused() {
    let text = "types: { mail: {}, other: {}, pay: { paused: \"no contract\" } }";
    let declared = Declared::new(text).await;
    let (on_call, hatchery, amqp) = (OnCall::new(&declared), declared.connect().await, declared.amqp().await);
    on_call.does(&["apply", "--auto-approve"]).await;
    on_call.does(&["pause", "mail", "--reason", "R"]).await;
    let (logs, mut fleet) = (Logs::capture(), Fleet::new(declared.connect().await));
    fleet.start(&hatchery);
    fleet.go_on().await;

    for list in [&["events", "list"][..], &["events", "show", "--reference", "1234"]] {
        let said = on_call.does(list).await.stderr;
        assert!(said.contains("type mail is paused, since ") && !said.contains("type other"), "{said}");
    }

    amqp.delete_queue("t.control").await;
    eventually("the worker has lost the stream", async || {
        (!logs.with(&["cancelled the consumer of t.control"]).is_empty()).then_some(())
    })
    .await;
    fleet.go_on().await;
    amqp.expect_untouched(&declared.processing("mail"), 2).await;
    for verb in ["pause", "resume"] {
        let reason: &[&str] = if verb == "pause" { &["--reason", "R"] } else { &[] };
        let said = on_call.run(&[&[verb, "other"], reason].concat()).await.expect(1).stderr;
        assert!(said.contains("t.control") && said.contains("topology apply"), "{said}");
    }
    let found = on_call.finds().await;
    assert!(found.iter().any(|kind| kind == "switches-unread"), "{found:?}");
    // A worker that starts now ends: it needs the stream.
    let error = refused(&hatchery).await;
    assert!(error.contains("t.control") && error.contains("topology apply"), "{error}");

    on_call.does(&["apply", "--auto-approve"]).await;
    assert!(!on_call.finds().await.iter().any(|kind| kind == "drift"));
    let paused = on_call.does(&["status"]).await.stdout;
    assert!(paused.contains("no contract") && !paused.contains("type mail is paused"), "{paused}");
    fleet.resumed(&amqp, &declared).await;
}

#[tokio::test]
#[ignore = "waits until an apply is certain that the stream is empty; scripts/test --all runs it"]
async fn a_worker_that_reads_no_snapshot_starts_nothing_and_one_that_has_read_it_goes_on() {
    let host = VirtualHost::new();
    let policy = |definition| json!({ "pattern": "^t\\.control$", "apply-to": "queues", "definition": definition });
    host.put("policies", "small", &policy(json!({ "stream-max-segment-size-bytes": 20_000 })));
    let declared = Declared::on(host, FILE, redis::url()).await;
    let (on_call, amqp) = (OnCall::new(&declared), declared.amqp().await);
    let hatchery = declared.connect_restlessly(SOON).await;
    on_call.does(&["pause", "mail", "--reason", "R"]).await;
    let (logs, mut fleet) = (Logs::capture(), Fleet::new(declared.connect().await));
    fleet.start(&hatchery);
    fleet.go_on().await;

    // A write that fills a segment opens an empty one, and the limit keeps only that.
    let small = json!({ "stream-max-segment-size-bytes": 20_000, "max-length-bytes": 1_000 });
    declared.host.put("policies", "small", &policy(small));
    let long = "x".repeat(4_000);
    eventually("the stream is empty", async || {
        let ended = on_call.run(&["pause", "mail", "--reason", &long]).await;
        ended.stderr.contains("is empty").then_some(())
    })
    .await;
    fleet.go_on().await;
    let found = on_call.finds().await;
    assert!(found.iter().any(|kind| kind == "switches-unread"), "{found:?}");
    assert!(found.iter().any(|kind| kind == "shadowed"), "{found:?}");
    // A worker that starts now knows nothing of pauses.
    let mut late = Fleet::new(declared.connect().await);
    let readiness = late.start(&hatchery);
    let (worker, _) = fleet.workers.remove(0);
    worker.stop().await;
    eventually("it says so", async || {
        (!logs.with(&["nothing is started", "t.control has no snapshot"]).is_empty()).then_some(())
    })
    .await;
    fleet.publish().await;
    for event_type in ["mail", "other"] {
        let waiting = if event_type == "mail" { 3 } else { 1 };
        amqp.expect_untouched(&declared.processing(event_type), waiting).await;
    }
    assert!(!readiness.is_ready());

    declared.host.delete("policies", &["small"]);
    on_call.does(&["apply", "--auto-approve"]).await;
    eventually("all events of `mail` run", async || (late.mail.count() == 3).then_some(())).await;
    late.other.reach(1).await;
    assert_eq!((late.other.count(), fleet.mail.count(), fleet.other.count()), (1, 0, 2));
    // Its figures are some seconds old.
    eventually("status finds nothing", async || on_call.finds().await.is_empty().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "waits ten seconds for a worker that does not follow; scripts/test --all runs it"]
async fn a_worker_that_may_not_read_the_stream_any_more_goes_by_its_last_snapshot_and_is_named() {
    let declared = Declared::new(FILE).await;
    let rights = |read: &str| Rights { write: ".*".to_owned(), read: read.to_owned(), ..Rights::default() };
    let user = |read: &str| declared.host.user("worker", &rights(read));
    let with = user(".*");
    let (on_call, amqp) = (OnCall::new(&declared), declared.amqp().await);
    on_call.does(&["pause", "mail", "--reason", "R"]).await;
    let mut fleet = Fleet::new(declared.connect().await);
    let relay = Relay::to(&with.amqp()).await;
    fleet.start(&declared.connect_by(&relay.url).await);
    fleet.go_on().await;

    // A consumer that has begun keeps its right.
    relay.close();
    let _without = user("^t\\.(?!control)");
    relay.open();
    fleet.go_on().await;
    let error = refused(&declared.connect_by(&with.amqp()).await).await;
    assert!(error.contains("t.control") && error.contains("ACCESS_REFUSED"), "{error}");
    let said = on_call.run(&["pause", "other", "--reason", "R"]).await.expect(5).stderr;
    assert!(said.contains("queue t.processor.other has 1 consumer"), "{said}");
    on_call.does(&["resume", "mail"]).await;
    fleet.go_on().await;

    let _again = user(".*");
    eventually("`mail` is resumed", async || (fleet.mail.count() > 0).then_some(())).await;
    fleet.publish().await;
    amqp.expect_untouched(&declared.processing("other"), 1).await;
    on_call.does(&["resume", "other"]).await;
    fleet.resumed(&amqp, &declared).await;
}
