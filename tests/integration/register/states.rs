//! Redis in each of its bad states: publishers go on, workers wait, and both say so once and go on by themselves.

use std::time::Duration;

use hatchery::{
    NewEvent, Outcome, RegisterError,
    internals::{
        redis::RedisRegister,
        register::{Reserve, Reserved, Slot},
        trouble::Trouble,
    },
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use super::bench;
use crate::support::{
    broker::{VirtualHost, eventually},
    clock::TestClock,
    declared::Declared,
    logs::Logs,
    process::{Place, Process},
    redis::{Server, connect, free_port},
    workers::Working,
};

const TYPES: &str = "types: { import: { coalesce: latest } }";
/// What begins and ends a publisher's and a worker's outage in the log.
const PUBLISHING: &str = "until it answers, events are published without a version";
const WAITING: &str = "until it answers, no event";
const BACK: &str = "Redis answers again";

fn change(n: u32) -> NewEvent {
    NewEvent::new("import", n.to_string()).reference(n.to_string())
}

/// A Redis that gets into a state by some commands, and out of it by others.
struct Case {
    trouble: Trouble,
    enter: &'static [&'static [&'static str]],
    leave: &'static [&'static [&'static str]],
}

async fn goes_through(case: Case) {
    let port = free_port();
    let redis = Server::start(port, &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let logs = Logs::capture();
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    let publisher = hatchery.publisher();
    publisher.publish(change(0)).await.unwrap();
    worker.runs.reach(1).await;
    // The worker has told Redis of it.
    eventually("nothing is under way", async || {
        declared.amqp().await.filled(&declared.queues()).await.is_empty().then_some(())
    })
    .await;

    for command in case.enter {
        redis.say(command).await;
    }
    for n in 1..=3 {
        let published = publisher.publish(change(n)).await.unwrap();
        assert!(published.unversioned, "{n}");
    }
    let (amqp, queue) = (declared.amqp().await, declared.processing("import"));
    amqp.left_alone(&queue, 3).await;
    assert_eq!(worker.runs.seen().len(), 1, "nothing starts meanwhile");
    let register = bench::register(&redis.url, "another", 1).with_limit(Duration::from_millis(500));
    let error = hatchery::internals::ports::Register::ping(&register).await.unwrap_err();
    assert_eq!(error.trouble(), case.trouble, "{error}");

    for command in case.leave {
        redis.say(command).await;
    }
    worker.runs.reach(4).await;
    let (mut later, mut unversioned) = (0, 3);
    eventually("both say that it is over", async || {
        later += 1;
        unversioned += u32::from(publisher.publish(change(100 + later)).await.unwrap().unversioned);
        (logs.with(&[BACK]).len() >= 2).then_some(())
    })
    .await;
    assert!(!publisher.publish(change(100)).await.unwrap().unversioned);
    worker.runs.reach(5 + later as usize).await;
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.retried), (5 + u64::from(later), 0));

    // A machine that is busy may make it slow besides.
    let state = format!("state=\"{}\"", case.trouble.label());
    for begin in [PUBLISHING, WAITING] {
        let begun = logs.with(&[begin, &state]);
        assert_eq!(begun.len(), 1, "{begin}: {begun:#?}");
    }
    let ended = logs.with(&[BACK, &case.trouble.to_string()]);
    assert_eq!(ended.len(), 2, "{:#?}", logs.with(&[]));
    let told = format!("{unversioned} events were published without a version");
    assert_eq!(logs.with(&[BACK, &told]).len(), 1, "{ended:#?}");
}

#[tokio::test]
#[ignore = "takes long; scripts/test --all runs it"]
async fn slow() {
    let enter: &[&[&str]] = &[&["CLIENT", "PAUSE", "60000", "WRITE"]];
    goes_through(Case { trouble: Trouble::Slow, enter, leave: &[&["CLIENT", "UNPAUSE"]] }).await;
}

#[tokio::test]
async fn read_only() {
    let enter: &[&[&str]] = &[&["REPLICAOF", "127.0.0.1", "1"]];
    goes_through(Case { trouble: Trouble::ReadOnly, enter, leave: &[&["REPLICAOF", "NO", "ONE"]] }).await;
}

#[tokio::test]
async fn too_few_replicas() {
    let enter: &[&[&str]] = &[&["CONFIG", "SET", "min-replicas-to-write", "1"]];
    goes_through(Case {
        trouble: Trouble::ReadOnly,
        enter,
        leave: &[&["CONFIG", "SET", "min-replicas-to-write", "0"]],
    })
    .await;
}

#[tokio::test]
async fn out_of_memory() {
    let enter: &[&[&str]] = &[&["CONFIG", "SET", "maxmemory", "1"]];
    goes_through(Case { trouble: Trouble::OutOfMemory, enter, leave: &[&["CONFIG", "SET", "maxmemory", "0"]] }).await;
}

#[tokio::test]
async fn refusing() {
    let enter: &[&[&str]] = &[&["ACL", "SETUSER", "default", "-evalsha"]];
    goes_through(Case { trouble: Trouble::Refusing, enter, leave: &[&["ACL", "SETUSER", "default", "+evalsha"]] })
        .await;
}

#[tokio::test]
async fn busy_with_a_script_of_somebody_else() {
    let port = free_port();
    let redis = Server::start(port, &["--busy-reply-threshold", "50"]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    let register = bench::register(&redis.url, "another", 1);
    hatchery::internals::ports::Register::ping(&register).await.unwrap();
    let mut connection = connect(&redis.url).await.unwrap();
    let endless = tokio::spawn(async move {
        let script = ::redis::cmd("EVAL").arg("while true do end").arg(0).to_owned();
        script.query_async::<()>(&mut connection).await
    });
    eventually("it is busy", async || {
        let error = hatchery::internals::ports::Register::ping(&register).await.err()?;
        (error.trouble() == Trouble::Busy).then_some(())
    })
    .await;
    assert!(hatchery.publisher().publish(change(1)).await.unwrap().unversioned);
    declared.amqp().await.left_alone(&declared.processing("import"), 1).await;
    redis.say(&["SCRIPT", "KILL"]).await;
    worker.runs.reach(1).await;
    worker.stop().await;
    endless.abort();
}

#[tokio::test]
async fn away_and_emptied() {
    let port = free_port();
    let redis = Server::start(port, &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let logs = Logs::capture();
    let hatchery = declared.connect().await;
    let publisher = hatchery.publisher();
    // Three wait for their worker, and have versions that nobody will know.
    for n in 0..3 {
        assert!(!publisher.publish(change(n)).await.unwrap().unversioned);
    }
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(3).await;
    drop(redis);
    for n in 3..6 {
        assert!(publisher.publish(change(n)).await.unwrap().unversioned);
    }
    declared.amqp().await.left_alone(&declared.processing("import"), 3).await;
    let redis = Server::start(port, &[]);
    worker.runs.reach(6).await;
    worker.stop().await;
    assert_eq!(logs.with(&[WAITING, "state=\"away\"", "is away"]).len(), 1, "{:#?}", logs.with(&[]));
    assert_eq!(logs.with(&[BACK]).len(), 1, "the publisher has not asked again: {:#?}", logs.with(&[]));
    assert_eq!(logs.with(&["was emptied"]).len(), 1, "{:#?}", logs.with(&[]));
    drop(redis);
}

#[tokio::test]
async fn a_shard_that_nobody_has_written_to_was_not_emptied() {
    let redis = Server::start(free_port(), &[]);
    let logs = Logs::capture();
    let ping = async |register: &RedisRegister| hatchery::internals::ports::Register::ping(register).await.unwrap();
    // On one shard each.
    for reference in ["1", "2", "3"] {
        let register = bench::register(&redis.url, reference, bench::SHARDS);
        let call = Reserve {
            subject: bench::event(reference, "a"),
            slot: Slot::Immediate,
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
    assert_eq!(logs.with(&["was emptied"]).len(), 1, "a part of it was");
    redis.say(&["FLUSHALL"]).await;
    ping(&register).await;
    ping(&register).await;
    assert_eq!(logs.with(&["was emptied"]).len(), 2, "once for all of its shards");
}

/// How often it was counted that Redis was emptied, by publishers and by workers.
fn emptied(metrics: &PrometheusHandle) -> [u32; 2] {
    let text = metrics.render();
    ["publisher", "worker"].map(|side| {
        let begin = format!("hatchery_register_emptied_total{{side=\"{side}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&begin)).map_or(0, |count| count.parse().unwrap())
    })
}

#[tokio::test]
async fn a_publisher_tells_once_that_redis_was_emptied_under_it() {
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
        eventually("it is told", async || {
            publish().await;
            (emptied(&recorder.handle()) == [times, 0]).then_some(())
        })
        .await;
        publish().await;
        assert_eq!(logs.with(&["was emptied"]).len(), times as usize, "{:#?}", logs.with(&[]));
        assert_eq!(emptied(&recorder.handle()), [times, 0]);
    }
}

#[tokio::test]
async fn a_worker_tells_once_that_redis_was_emptied_under_it() {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let (logs, recorder) = (Logs::capture(), PrometheusBuilder::new().build_recorder());
    let _counted_here = metrics::set_default_local_recorder(&recorder);
    // A program of its own, which asks nothing more.
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
async fn a_key_that_cannot_be_read_stops_nothing_but_its_own_reference() {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let logs = Logs::capture();
    let hatchery = declared.connect_patiently().await;
    let published = hatchery.publisher().publish_batch((0..10).map(change).collect()).await;
    assert!(published.iter().all(|event| event.as_ref().is_ok_and(|event| !event.unversioned)), "{published:?}");
    let key = declared.key("import:r:7");
    redis.say(&["SET", &key, "not a hash"]).await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(9).await;
    let told = ["ERROR", "WRONGTYPE", "event_type=import", "reference=\"7\""];
    eventually("it is told", async || (!logs.with(&told).is_empty()).then_some(())).await;
    // Others go on meanwhile, one after the other.
    for n in 10..13 {
        hatchery.publisher().publish(change(n)).await.unwrap();
        worker.runs.reach(n as usize).await;
    }
    let mut payloads = worker.runs.payloads();
    payloads.sort_by_key(|payload| payload.parse::<u32>().unwrap());
    let expected: Vec<_> = (0..13).filter(|n| *n != 7).map(|n| n.to_string()).collect();
    assert_eq!(payloads, expected);
    redis.say(&["DEL", &key]).await;
    let last = worker.runs.reach(13).await.remove(12);
    assert_eq!((&last.event.payload[..], last.event.busy >= 1), (&b"7"[..], true));
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.retried, summary.given_back), (13, 0, 0));
    assert!(logs.with(&[WAITING]).is_empty(), "{:#?}", logs.with(&[]));
    assert!(logs.with(&[&told[..], &["it is not started"]].concat()).len() < 8, "{:#?}", logs.with(&[]));
}

#[tokio::test]
async fn a_key_that_cannot_be_read_takes_the_version_of_no_other_event() {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let logs = Logs::capture();
    let key = |reference: u32| declared.key(&format!("import:r:{reference}"));
    redis.say(&["SET", &key(7), "not a hash"]).await;
    redis.say(&["HSET", &key(8), "i", "short"]).await;
    let hatchery = declared.connect_patiently().await;
    let publisher = hatchery.publisher();
    // Two of each reference: the second one is the newer.
    let events = (0..40).map(|n| NewEvent::new("import", n.to_string()).reference((n % 20).to_string()));
    let published = publisher.publish_batch(events.collect()).await;
    for (n, published) in (0..).zip(&published) {
        assert_eq!(published.as_ref().unwrap().unversioned, [7, 8].contains(&(n % 20)), "{n}");
    }
    // And at once: nobody takes Redis for away.
    assert!(!publisher.publish(change(99)).await.unwrap().unversioned);
    assert!(logs.with(&[PUBLISHING]).is_empty(), "{:#?}", logs.with(&[]));
    assert!(
        !logs.with(&["ERROR", "WRONGTYPE", "event_type=import", "reference=\"7\""]).is_empty(),
        "{:#?}",
        logs.with(&[])
    );
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    let seen = worker.runs.reach(23).await;
    declared.amqp().await.emptied(&declared.queues()).await;
    assert_eq!(worker.runs.seen().len(), 23);
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.replaced), (23, 18), "{summary:?}");
    let older = |seen: &&crate::support::workers::Seen| {
        let n: u32 = String::from_utf8_lossy(&seen.event.payload).parse().unwrap();
        n < 20 && ![7, 8].contains(&n)
    };
    assert_eq!(seen.iter().find(older).map(|seen| seen.event.id.clone()), None, "the newer one of each runs");
}

#[tokio::test]
async fn what_was_given_beside_a_key_that_cannot_be_read_is_not_given_again() {
    let redis = Server::start(free_port(), &[]);
    let clock = std::sync::Arc::new(TestClock::default());
    // A clock that stands still, as one that was set back does for a while.
    let register = bench::register(&redis.url, "x", 1).with_clock(clock);
    let call = |reference: &str| Reserve {
        subject: bench::event(reference, "a"),
        slot: Slot::Immediate,
        due: jiff::Timestamp::UNIX_EPOCH,
        asked_by: None,
        terms: bench::EXCLUSIVE,
    };
    redis.say(&["SET", "x:{%2F:billing:0}:import:r:2", "not a hash"]).await;
    let reserve = async |calls: &[Reserve]| hatchery::internals::ports::Register::reserve(&register, calls).await;
    let Reserved::Version(first) = reserve(&[call("1")]).await.unwrap()[0] else { panic!("nobody asked") };
    let error = reserve(&[call("1"), call("1"), call("2"), call("3")]).await.unwrap_err();
    assert!(matches!(error, RegisterError::Unreadable { .. }), "{error:?}");
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    let next = reserve(&[call("1")]).await.unwrap()[0];
    assert!(matches!(next, Reserved::Version(version) if version > first + 2), "{first} {next:?}");
    redis.say(&["DEL", "x:{%2F:billing:0}:import:r:2"]).await;
    redis.say(&["HSET", "x:{%2F:billing:0}:import:r:2", "i", "short"]).await;
    let error = reserve(&[call("2")]).await.unwrap_err();
    assert!(matches!(error, RegisterError::Unreadable { .. }), "{error:?}");
    assert!(error.to_string().contains("too short"), "{error}");
}

#[tokio::test]
async fn what_is_in_flight_runs_when_redis_is_emptied() {
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
    // Whose settlement came to an empty Redis.
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.retried), (20, 0));
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_redis_that_evicts_is_warned_of_once() {
    let port = free_port();
    let options = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let redis = Server::start(port, &options);
    let logs = Logs::capture();
    let register = bench::register(&redis.url, "x", 1);
    let ping = async || hatchery::internals::ports::Register::ping(&register).await.unwrap();
    ping().await;
    eventually("it is said", async || logs.with(&["evicts keys", "allkeys-lru"]).pop()).await;
    // By other connections.
    for _ in 0..3 {
        redis.say(&["CLIENT", "KILL", "TYPE", "normal"]).await;
        ping().await;
    }
    assert_eq!(logs.with(&["evicts keys"]).len(), 1);
}

#[tokio::test]
async fn a_worker_shows_the_state_as_metrics() {
    let port = free_port();
    let redis = Server::start(port, &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let address = format!("127.0.0.1:{}", free_port());
    let handler = format!("echo ran >> {}\n", place.path("ran").display());
    let mut command = place.worker("import", &place.write("handler", &handler));
    command.args(["--listen", &address]);
    let worker = Process::spawn(command);
    let get = async |path: &str| {
        let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().unwrap();
        let answer = client.get(format!("http://{address}{path}")).send().await.ok()?;
        Some((answer.status().as_u16(), answer.text().await.ok()?))
    };
    let away = async || {
        let (_, metrics) = get("/metrics").await?;
        let mut lines = metrics.lines().filter(|line| line.starts_with("hatchery_register_state{"));
        let line = lines.find(|line| line.contains("state=\"away\"") && line.contains("side=\"worker\""))?;
        line.rsplit(' ').next().map(str::to_owned)
    };
    eventually("it is healthy", async || get("/healthz").await.filter(|(status, _)| *status == 200)).await;
    eventually("all is well", async || away().await.filter(|value| value == "0")).await;
    drop(redis);
    hatchery.publisher().publish(change(1)).await.unwrap();
    eventually("it is away", async || away().await.filter(|value| value == "1")).await;
    assert_eq!(get("/healthz").await.unwrap().0, 200, "that is about the broker");
    assert!(get("/metrics").await.unwrap().1.contains("hatchery_register_errors_total"));
    let _redis = Server::start(port, &[]);
    eventually("it is back", async || away().await.filter(|value| value == "0")).await;
    eventually("it goes on", async || (place.lines("ran").len() == 1).then_some(())).await;
    assert_eq!(worker.stop().await["done"], 1);
}
