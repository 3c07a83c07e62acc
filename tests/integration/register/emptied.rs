//! Redis loses all keys. No event is lost with them, and publishers and workers say once that it happened.

use hatchery::{
    Outcome,
    internals::{
        redis::RedisRegister,
        register::{DedupSlot, Reserve},
    },
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use super::{
    bench,
    states::{BACK, TYPES, WAITING, change},
};
use crate::support::{
    broker::{VirtualHost, eventually},
    declared::Declared,
    logs::Logs,
    redis::{Server, free_port},
    workers::Working,
};
#[tokio::test]
async fn a_redis_that_comes_back_empty_loses_no_event() {
    let port = free_port();
    let redis = Server::start(port, &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let logs = Logs::capture();
    let hatchery = declared.connect().await;
    let publisher = hatchery.publisher();
    // Three events with versions that the emptied Redis will not know.
    for n in 0..3 {
        assert!(!publisher.publish(change(n)).await.unwrap().unversioned);
    }
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(3).await;
    drop(redis);
    for n in 3..6 {
        assert!(publisher.publish(change(n)).await.unwrap().unversioned);
    }
    declared.amqp().await.expect_untouched(&declared.processing("import"), 3).await;
    let redis = Server::start(port, &[]);
    worker.runs.reach(6).await;
    worker.stop().await;
    assert_eq!(logs.with(&[WAITING, "state=\"away\"", "is away"]).len(), 1, "{:#?}", logs.with(&[]));
    assert_eq!(
        logs.with(&[BACK]).len(),
        1,
        "not only the worker has logged the end of the outage: {:#?}",
        logs.with(&[])
    );
    assert_eq!(logs.with(&["was emptied"]).len(), 1, "{:#?}", logs.with(&[]));
    drop(redis);
}

#[tokio::test]
async fn a_shard_without_any_event_does_not_count_as_emptied() {
    let redis = Server::start(free_port(), &[]);
    let logs = Logs::capture();
    let ping = async |register: &RedisRegister| hatchery::internals::ports::Register::ping(register).await.unwrap();
    // Each register writes to one of its shards only.
    for reference in ["1", "2", "3"] {
        let register = bench::register(&redis.url, reference, bench::SHARDS);
        let call = Reserve {
            subject: bench::event(reference, "a"),
            slot: DedupSlot::Immediate,
            due: jiff::Timestamp::UNIX_EPOCH,
            asked_by: None,
            terms: bench::EXCLUSIVE,
        };
        hatchery::internals::ports::Register::reserve(&register, &[call]).await.unwrap();
        ping(&register).await;
        assert_eq!(logs.with(&["was emptied"]).len(), 0);
    }
    let register = bench::register(&redis.url, "x", bench::SHARDS);
    ping(&register).await;
    redis.say(&["DEL", "x:{%2F:billing:5}:last"]).await;
    ping(&register).await;
    assert_eq!(logs.with(&["was emptied"]).len(), 1, "the emptied shard was not reported");
    redis.say(&["FLUSHALL"]).await;
    ping(&register).await;
    ping(&register).await;
    assert_eq!(logs.with(&["was emptied"]).len(), 2, "the emptied Redis was not reported once for all shards");
}

/// Returns how often publishers and workers have counted an emptied Redis.
fn emptied(metrics: &PrometheusHandle) -> [u32; 2] {
    let text = metrics.render();
    ["publisher", "worker"].map(|side| {
        let begin = format!("hatchery_register_emptied_total{{side=\"{side}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&begin)).map_or(0, |count| count.parse().unwrap())
    })
}

#[tokio::test]
async fn a_publisher_logs_and_counts_once_that_redis_was_emptied() {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_shards(VirtualHost::new(), TYPES, &redis.url, 8).await;
    let (logs, recorder) = (Logs::capture(), PrometheusBuilder::new().build_recorder());
    let _counted_here = metrics::set_default_local_recorder(&recorder);
    let publisher = declared.connect().await.publisher();
    let publish = async || {
        let published = publisher.publish_batch((0..100).map(change).collect()).await;
        assert!(published.iter().all(Result::is_ok), "{published:?}");
    };
    publish().await;
    for times in 1..=3 {
        tokio::join!(publish(), redis.say(&["FLUSHALL"]));
        eventually("the publisher has counted the emptied Redis", async || {
            publish().await;
            let counted = emptied(&recorder.handle());
            assert!(counted <= [times, 0], "{counted:?} after {times} times: {:#?}", logs.with(&[]));
            (counted == [times, 0]).then_some(())
        })
        .await;
        publish().await;
        assert_eq!(logs.with(&["was emptied"]).len(), times as usize, "{:#?}", logs.with(&[]));
        assert_eq!(emptied(&recorder.handle()), [times, 0]);
    }
}

#[tokio::test]
async fn a_worker_logs_and_counts_once_that_redis_was_emptied() {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let (logs, recorder) = (Logs::capture(), PrometheusBuilder::new().build_recorder());
    let _counted_here = metrics::set_default_local_recorder(&recorder);
    // A separate publisher, which does not call Redis again.
    let publisher = declared.connect().await.publisher();
    let published = publisher.publish_batch((0..30).map(change).collect()).await;
    assert!(published.iter().all(Result::is_ok), "{published:?}");
    let hatchery = declared.connect().await;
    let (worker, gate) = Working::gated(hatchery.worker(), "import");
    for times in 1..=2 {
        worker.runs.reach(10 * times).await;
        redis.say(&["FLUSHALL"]).await;
        gate.let_through(10);
    }
    worker.runs.reach(30).await;
    gate.let_through(10);
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.retried), (30, 0));
    assert_eq!(logs.with(&["was emptied"]).len(), 2, "{:#?}", logs.with(&[]));
    assert_eq!(emptied(&recorder.handle()), [0, 2]);
}

#[tokio::test]
async fn events_in_flight_run_although_redis_was_emptied() {
    let port = free_port();
    let redis = Server::start(port, &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let hatchery = declared.connect().await;
    let publisher = hatchery.publisher();
    for n in 0..20 {
        publisher.publish(change(n)).await.unwrap();
    }
    let (worker, gate) = Working::gated(hatchery.worker(), "import");
    worker.runs.reach(10).await;
    redis.say(&["FLUSHALL"]).await;
    redis.say(&["SCRIPT", "FLUSH"]).await;
    gate.let_through(20);
    worker.runs.reach(20).await;
    // The first ten are settled in an empty Redis.
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.retried), (20, 0));
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}
