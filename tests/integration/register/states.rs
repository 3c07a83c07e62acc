//! Redis in each of its bad states. Publishers go on, workers wait, both log it once, and both recover by themselves.

use std::time::Duration;

use hatchery::{
    NewEvent, Outcome, RegisterError,
    internals::{
        register::{DedupSlot, Reserve, Reserved},
        trouble::Trouble,
    },
};
use rstest::rstest;

use super::bench;
use crate::support::{
    broker::eventually,
    clock::TestClock,
    declared::Declared,
    logs::Logs,
    process::{Place, Process},
    redis::{Server, connect, free_port},
    workers::Working,
};

pub(super) const TYPES: &str = "types: { import: { coalesce: latest } }";
/// The texts by which the log shows the begin and the end of a publisher's and of a worker's outage.
const PUBLISHING: &str = "until it answers, events are published without a version";
pub(super) const WAITING: &str = "until it answers, no event";
pub(super) const BACK: &str = "Redis answers again";

pub(super) fn change(n: u32) -> NewEvent {
    NewEvent::new("import", n.to_string()).reference(n.to_string())
}

/// Each case is a state of Redis, with the command that enters and the one that leaves it.
#[rstest]
#[case::read_only(Trouble::ReadOnly, "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")]
#[case::too_few_replicas(Trouble::ReadOnly, "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0")]
#[case::out_of_memory(Trouble::OutOfMemory, "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0")]
#[case::refusing_scripts(Trouble::Refusing, "ACL SETUSER default -evalsha", "ACL SETUSER default +evalsha")]
#[tokio::test]
async fn a_redis_that_takes_no_calls_stops_workers_and_no_publisher(
    #[case] trouble: Trouble,
    #[case] enter: &str,
    #[case] leave: &str,
) {
    assert_publishers_go_on_and_workers_wait(trouble, enter, leave).await;
}

#[tokio::test]
#[ignore = "waits for calls to Redis to time out; scripts/test --all runs it"]
async fn a_redis_that_is_slow_stops_workers_and_no_publisher() {
    assert_publishers_go_on_and_workers_wait(Trouble::Slow, "CLIENT PAUSE 60000 WRITE", "CLIENT UNPAUSE").await;
}

async fn assert_publishers_go_on_and_workers_wait(trouble: Trouble, enter: &str, leave: &str) {
    let port = free_port();
    let redis = Server::start(port, &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let logs = Logs::capture();
    // Only a Redis that is slow has to be given up.
    let is_slow = trouble == Trouble::Slow;
    let hatchery = if is_slow { declared.connect().await } else { declared.connect_patiently().await };
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    let publisher = hatchery.publisher();
    publisher.publish(change(0)).await.unwrap();
    worker.runs.reach(1).await;
    // Empty queues show that the worker has settled the event.
    eventually("all queues are empty", async || {
        declared.amqp().await.filled(&declared.queues()).await.is_empty().then_some(())
    })
    .await;

    let say = async |command: &str| redis.say(&command.split(' ').collect::<Vec<_>>()).await;
    say(enter).await;
    for n in 1..=3 {
        let published = publisher.publish(change(n)).await.unwrap();
        assert!(published.unversioned, "{n}");
    }
    let (amqp, queue) = (declared.amqp().await, declared.processing("import"));
    amqp.expect_untouched(&queue, 3).await;
    assert_eq!(worker.runs.seen().len(), 1, "the worker has started an event in the meantime");
    let register = bench::register(&redis.url, "another", 1);
    let register = if is_slow { register.with_limit(Duration::from_millis(500)) } else { register };
    let error = hatchery::internals::ports::Register::ping(&register).await.unwrap_err();
    assert_eq!(error.trouble(), trouble, "{error}");

    say(leave).await;
    worker.runs.reach(4).await;
    let (mut later, mut unversioned) = (0, 3);
    eventually("publisher and worker log the end of the outage", async || {
        later += 1;
        unversioned += u32::from(publisher.publish(change(100 + later)).await.unwrap().unversioned);
        (logs.with(&[BACK]).len() >= 2).then_some(())
    })
    .await;
    assert!(!publisher.publish(change(100)).await.unwrap().unversioned);
    worker.runs.reach(5 + later as usize).await;
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.retried), (5 + u64::from(later), 0));
    let returned = summary.delivered - summary.done;
    assert!(returned <= 3, "the worker takes events and gives them back again and again: {summary:?}");

    // On a busy machine a call may time out before Redis answers it. The outage then begins as slow, and a second line names the
    // other cause.
    for begin in [PUBLISHING, WAITING] {
        let begun = logs.with(&[begin]);
        assert_eq!(begun.len(), 1, "{begin}: {begun:#?}");
    }
    let state = format!("state=\"{}\"", trouble.label());
    assert_eq!(logs.with(&[&state]).len(), 2, "{:#?}", logs.with(&[]));
    let ended = logs.with(&[BACK, &trouble.to_string()]);
    assert_eq!(ended.len(), 2, "{:#?}", logs.with(&[]));
    let told = format!("{unversioned} events were published without a version");
    assert_eq!(logs.with(&[BACK, &told]).len(), 1, "{ended:#?}");
}

#[tokio::test]
async fn a_redis_that_runs_a_foreign_script_stops_workers_and_no_publisher() {
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
    eventually("Redis answers that it is busy", async || {
        let error = hatchery::internals::ports::Register::ping(&register).await.err()?;
        (error.trouble() == Trouble::Busy).then_some(())
    })
    .await;
    assert!(hatchery.publisher().publish(change(1)).await.unwrap().unversioned);
    declared.amqp().await.expect_untouched(&declared.processing("import"), 1).await;
    redis.say(&["SCRIPT", "KILL"]).await;
    worker.runs.reach(1).await;
    worker.stop().await;
    endless.abort();
}

#[tokio::test]
async fn an_unreadable_key_stops_only_its_own_reference() {
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
    eventually("the worker logs the unreadable key", async || (!logs.with(&told).is_empty()).then_some(())).await;
    // Other references go on in the meantime.
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
    assert!(logs.with(&[&told[..], &["event not started"]].concat()).len() < 8, "{:#?}", logs.with(&[]));
}

#[tokio::test]
async fn an_unreadable_key_costs_no_other_event_its_version() {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let logs = Logs::capture();
    let key = |reference: u32| declared.key(&format!("import:r:{reference}"));
    redis.say(&["SET", &key(7), "not a hash"]).await;
    redis.say(&["HSET", &key(8), "i", "not a string"]).await;
    let hatchery = declared.connect_patiently().await;
    let publisher = hatchery.publisher();
    // Two events of each reference; the second one is newer.
    let events = (0..40).map(|n| NewEvent::new("import", n.to_string()).reference((n % 20).to_string()));
    let published = publisher.publish_batch(events.collect()).await;
    for (n, published) in (0..).zip(&published) {
        assert_eq!(published.as_ref().unwrap().unversioned, [7, 8].contains(&(n % 20)), "{n}");
    }
    // The next publish gets its version at once: Redis does not count as away.
    assert!(!publisher.publish(change(99)).await.unwrap().unversioned);
    assert!(logs.with(&[PUBLISHING]).is_empty(), "{:#?}", logs.with(&[]));
    assert!(
        !logs.with(&["ERROR", "WRONGTYPE", "event_type=import", "reference=\"7\""]).is_empty(),
        "{:#?}",
        logs.with(&[])
    );
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    // The lease of a reference is in its key. While the key cannot be read, its events wait, also without a version.
    worker.runs.reach(19).await;
    redis.say(&["DEL", &key(7), &key(8)]).await;
    let seen = worker.runs.reach(23).await;
    declared.amqp().await.expect_empty(&declared.queues()).await;
    assert_eq!(worker.runs.seen().len(), 23);
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.replaced), (23, 18), "{summary:?}");
    let older = |seen: &&crate::support::workers::Seen| {
        let n: u32 = String::from_utf8_lossy(&seen.event.payload).parse().unwrap();
        n < 20 && ![7, 8].contains(&n)
    };
    assert_eq!(
        seen.iter().find(older).map(|seen| seen.event.id.clone()),
        None,
        "an older event ran in place of the newer one"
    );
}

#[tokio::test]
async fn versions_given_in_a_batch_with_an_unreadable_key_are_not_given_again() {
    let redis = Server::start(free_port(), &[]);
    let clock = std::sync::Arc::new(TestClock::default());
    // A clock that stands still, as one does for a while after it was set back.
    let register = bench::register(&redis.url, "x", 1).with_clock(clock);
    let call = |reference: &str| bench::reserve(&bench::event(reference, "a"), &DedupSlot::Immediate);
    redis.say(&["SET", "x:{%2F:billing:0}:import:r:2", "not a hash"]).await;
    let reserve = async |calls: &[Reserve]| hatchery::internals::ports::Register::reserve(&register, calls).await;
    let first = bench::given(reserve(&[call("1")]).await.unwrap()[0]);
    let error = reserve(&[call("1"), call("1"), call("2"), call("3")]).await.unwrap_err();
    assert!(matches!(error, RegisterError::Unreadable { .. }), "{error:?}");
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    let next = reserve(&[call("1")]).await.unwrap()[0];
    assert!(matches!(next, Reserved::Version(version) if version > first + 2), "{first} {next:?}");
    redis.say(&["DEL", "x:{%2F:billing:0}:import:r:2"]).await;
    redis.say(&["SET", "x:{%2F:billing:0}:import:r:2", "\u{1}\u{0}i is short"]).await;
    let error = reserve(&[call("2")]).await.unwrap_err();
    assert!(matches!(error, RegisterError::Unreadable { .. }), "{error:?}");
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
}

#[tokio::test]
async fn a_redis_that_evicts_keys_is_warned_of_once() {
    let port = free_port();
    let options = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let redis = Server::start(port, &options);
    let logs = Logs::capture();
    let register = bench::register(&redis.url, "x", 1);
    let ping = async || hatchery::internals::ports::Register::ping(&register).await.unwrap();
    ping().await;
    eventually("the eviction policy is warned of", async || logs.with(&["evicts keys", "allkeys-lru"]).pop()).await;
    // New connections repeat no warning.
    for _ in 0..3 {
        redis.say(&["CLIENT", "KILL", "TYPE", "normal"]).await;
        ping().await;
    }
    assert_eq!(logs.with(&["evicts keys"]).len(), 1);
}

#[tokio::test]
async fn a_redis_whose_user_may_not_call_info_is_warned_of_once() {
    let redis = Server::start(free_port(), &[]);
    redis.say(&["ACL", "SETUSER", "default", "-info"]).await;
    let logs = Logs::capture();
    let register = bench::register(&redis.url, "x", 1);
    let ping = async || hatchery::internals::ports::Register::ping(&register).await.unwrap();
    ping().await;
    let told = ["whether Redis at", "evicts keys is not known", "+info"];
    eventually("it is warned of", async || logs.with(&told).pop()).await;
    for _ in 0..3 {
        redis.say(&["CLIENT", "KILL", "TYPE", "normal"]).await;
        ping().await;
    }
    assert_eq!(logs.with(&told).len(), 1);
}

#[tokio::test]
async fn a_workers_metrics_show_the_state_of_redis() {
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
    let ready = async |expected: u16| get("/readyz").await.filter(|(status, _)| *status == expected);
    eventually("the worker consumes", async || ready(200).await).await;
    eventually("the metrics show that Redis is there", async || away().await.filter(|value| value == "0")).await;
    drop(redis);
    hatchery.publisher().publish(change(1)).await.unwrap();
    eventually("the metrics show that Redis is away", async || away().await.filter(|value| value == "1")).await;
    eventually("the worker does not consume", async || ready(503).await).await;
    assert_eq!(get("/livez").await.unwrap().0, 200, "a restart would not bring Redis back");
    assert!(get("/metrics").await.unwrap().1.contains("hatchery_register_errors_total"));
    let _redis = Server::start(port, &[]);
    eventually("the metrics show that Redis is back", async || away().await.filter(|value| value == "0")).await;
    eventually("the worker consumes again", async || ready(200).await).await;
    eventually("the worker runs the event", async || (place.lines("ran").len() == 1).then_some(())).await;
    assert_eq!(worker.stop().await["done"], 1);
}
