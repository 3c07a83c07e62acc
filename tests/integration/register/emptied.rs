//! Redis loses all keys. No event is lost with them, and publishers and workers say once that it happened.

use hatchery::{
    Hatchery, Outcome,
    internals::{redis::RedisRegister, register::DedupSlot},
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
    let hatchery = declared.connect_patiently().await;
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
        bench::version(&register, bench::reserve(&bench::event(reference, "a"), &DedupSlot::Immediate)).await.unwrap();
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
async fn each_publisher_counts_an_emptied_redis_although_others_have_written_to_it_since() {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let (logs, recorder) = (Logs::capture(), PrometheusBuilder::new().build_recorder());
    let _counted_here = metrics::set_default_local_recorder(&recorder);
    let hatcheries = [declared.connect().await, declared.connect().await];
    let publishers = hatcheries.each_ref().map(Hatchery::publisher);
    let publish = async || {
        for publisher in &publishers {
            publisher.publish(change(1)).await.unwrap();
        }
    };
    // Each publisher looks before the data are gone. A look sets the expiry anew.
    for publisher in &publishers {
        let mut left = i64::MAX;
        eventually("the publisher has looked", async || {
            publisher.publish(change(1)).await.unwrap();
            let now: i64 = redis.ask(&["PTTL", &declared.key("born")]).await;
            let has_looked = now > left;
            left = now;
            has_looked.then_some(())
        })
        .await;
    }
    // A publisher that has known nothing before writes its counter at once.
    let script = "redis.call('FLUSHALL'); redis.call('SET', KEYS[1], '1')";
    redis.say(&["EVAL", script, "1", &declared.key("last")]).await;
    eventually("both publishers have counted it", async || {
        publish().await;
        let counted = emptied(&recorder.handle());
        assert!(counted <= [2, 0], "{counted:?}: {:#?}", logs.with(&[]));
        (counted == [2, 0]).then_some(())
    })
    .await;
    publish().await;
    assert_eq!((emptied(&recorder.handle()), logs.with(&["was emptied"]).len()), ([2, 0], 2), "{:#?}", logs.with(&[]));
    let left: i64 = redis.ask(&["PTTL", &declared.key("emptied")]).await;
    assert!((1..=24 * 3_600_000).contains(&left), "the time is kept for {left} ms");
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

#[tokio::test]
#[ignore = "waits for the looks of a worker, ten seconds apart; scripts/test --all runs it"]
async fn everybody_counts_an_emptied_redis_although_others_have_written_to_it_since() {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let (logs, recorder) = (Logs::capture(), PrometheusBuilder::new().build_recorder());
    let _counted_here = metrics::set_default_local_recorder(&recorder);
    let workers = [declared.connect().await, declared.connect().await];
    let workers = workers.map(|hatchery| Working::start(&hatchery, "import", |_| Outcome::Done));
    // Each look sets the expiry anew. The workers look in turns.
    let (mut looks, mut left) = (0, 0);
    eventually("both workers have looked", async || {
        let now: i64 = redis.ask(&["PTTL", &declared.key("born")]).await;
        looks += u32::from(now > left);
        left = now;
        (looks == 3).then_some(())
    })
    .await;
    // A publisher that has known nothing before writes its counter at once.
    let script = "redis.call('FLUSHALL'); redis.call('SET', KEYS[1], '1')";
    redis.say(&["EVAL", script, "1", &declared.key("last")]).await;
    let began = jiff::Timestamp::now();
    eventually("both workers have counted it", async || (emptied(&recorder.handle()) == [0, 2]).then_some(())).await;
    assert_eq!(logs.with(&["was emptied"]).len(), 2, "{:#?}", logs.with(&[]));
    let left: i64 = redis.ask(&["PTTL", &declared.key("emptied")]).await;
    assert!((1..=24 * 3_600_000).contains(&left), "the time is kept for {left} ms");
    let register =
        RedisRegister::new(&redis.url, &declared.host.name, &declared.topology.name, &declared.topology.redis);
    let told = register.unwrap().reported(&[]).await.unwrap().emptied.expect("the time is told");
    assert!(told.duration_since(began).as_secs().abs() <= 12, "{told} and not {began}");
    for worker in workers {
        worker.stop().await;
    }
}
