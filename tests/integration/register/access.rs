//! The minimal Redis permissions of `docs/how-to/least-privilege.md` are enough; and two topologies share one Redis.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use futures_util::TryStreamExt as _;
use hatchery::{
    EventSelector, Filter, Hatchery, NewEvent, Outcome,
    internals::switches::{Pause, Paused},
};
use hatchery_admin::schedules::Schedules;
use jiff::Timestamp;

use crate::support::{
    broker::{VirtualHost, eventually},
    declared::Declared,
    deployments::{Cluster, Kind, Watched},
    redis::{Server, free_port, url},
    workers::Working,
};

const TYPES: &str = "types: { import: { coalesce: latest, keep-payload: 4KiB, retry: { delays: [50ms] } } }";

/// Returns the one line of the documentation that begins with this text, with the key pattern of this topology.
fn documented(begin: &str, declared: &Declared) -> Vec<Vec<String>> {
    let docs = include_str!("../../../docs/how-to/least-privilege.md");
    let own = format!("~{}:{{{}:t:*", declared.topology.redis.prefix, declared.host.name);
    let lines = docs.lines().filter(|line| line.starts_with(begin));
    let words = |line: &str| {
        let line = line.split("  #").next().unwrap_or_default();
        line.split_whitespace().map(|word| word.replace("~hatchery:{prod:billing:*", &own)).collect()
    };
    let lines: Vec<Vec<String>> = lines.map(words).collect();
    assert_eq!(lines.len(), 1, "{begin}");
    lines
}

fn words(line: &[String]) -> Vec<&str> {
    line.iter().map(String::as_str).collect()
}

/// Runs events with every outcome, dated events, and the operations of people.
async fn run_every_kind_of_event(declared: &Declared) {
    let hatchery = declared.connect_patiently().await;
    hatchery.require_register().await.unwrap();
    let tries = AtomicU32::new(0);
    let worker = Working::start(&hatchery, "import", move |event| match event.payload.as_ref() {
        b"retry" if event.attempts == 0 => Outcome::Retry { reason: "again".to_owned(), after: None },
        b"requeue" if tries.fetch_add(1, Ordering::Relaxed) == 0 => {
            Outcome::Requeue { at: jiff::Timestamp::now(), reason: "later".to_owned() }
        }
        b"dead" => Outcome::DeadLetter { reason: "never".to_owned() },
        _ => Outcome::Done,
    });
    for payload in ["done", "retry", "requeue", "dead"] {
        let published =
            hatchery.publisher().publish(NewEvent::new("import", payload).reference(payload)).await.unwrap();
        assert!(!published.unversioned, "{payload}");
        hatchery.publisher().publish(NewEvent::new("import", "alone")).await.unwrap();
    }
    // A reference with many slots.
    for second in 0..20_u64 {
        let event = NewEvent::new("import", "dated").reference("1").delay(Duration::from_millis(50 + second));
        assert!(!hatchery.publisher().publish(event).await.unwrap().unversioned);
    }
    worker.runs.reach(4 + 4 + 2 + 20).await;
    eventually("all events are settled", async || {
        declared.amqp().await.filled(&declared.passages()).await.is_empty().then_some(())
    })
    .await;
    let summary = worker.stop().await;
    assert_eq!((summary.requeued, summary.dead_lettered, summary.given_back), (1, 1, 0), "{summary:?}");

    move_and_cancel_events(&hatchery).await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(2).await;
    eventually("all events are settled", async || {
        declared.amqp().await.filled(&declared.passages()).await.is_empty().then_some(())
    })
    .await;
    assert_eq!(worker.stop().await.done, 2);
}

/// Lists, reschedules, runs now, cancels and shows waiting events, as people do.
async fn move_and_cancel_events(hatchery: &Hatchery) {
    let (references, events) = (["moved", "now", "cancelled"], hatchery.events());
    for reference in references {
        let event = NewEvent::new("import", "waits").reference(reference).delay(Duration::from_secs(1));
        assert!(!hatchery.publisher().publish(event).await.unwrap().unversioned);
    }
    let listed: Vec<_> = events.search(&Filter::default().reference_prefix("now")).try_collect().await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    let [moved, now, cancelled] = references.map(|reference| EventSelector::reference("import", reference));
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1);
    assert_eq!(events.reschedule(&moved, at).await.unwrap().len(), 1);
    assert_eq!(events.run_now(&now).await.unwrap().len(), 1);
    assert_eq!(events.cancel(&cancelled).await.unwrap().len(), 1);
    assert_eq!(events.show(&cancelled).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_documented_acl_is_enough() {
    let server = Server::start(free_port(), &[]);
    let with_user = server.url.replace("redis://", "redis://billing:secret@");
    let declared = Declared::with_redis(TYPES, &with_user).await;
    server.say(&words(&documented("ACL SETUSER billing on", &declared)[0])).await;
    // The default user may do nothing.
    server.say(&["ACL", "SETUSER", "default", "-@all", "+acl"]).await;
    run_every_kind_of_event(&declared).await;
}

#[tokio::test]
async fn the_documented_acl_is_enough_for_schedules() {
    let server = Server::start(free_port(), &[]);
    let with_user = server.url.replace("redis://", "redis://billing:secret@");
    let file = format!("{TYPES}\nschedules: {{ poll: {{ type: import, every: 1s }} }}\n");
    let declared = Declared::with_redis(&file, &with_user).await;
    server.say(&words(&documented("ACL SETUSER billing on", &declared)[0])).await;
    server.say(&["ACL", "SETUSER", "default", "-@all", "+acl"]).await;
    let hatchery = declared.connect_patiently().await;
    let (worker, schedules) = (Working::start(&hatchery, "import", |_| Outcome::Done), Schedules(hatchery.events()));
    schedules.apply().await.unwrap();
    worker.runs.reach(2).await;
    let pause = Pause::of_person(Paused::All, "closed", Timestamp::now(), None);
    schedules.hold("poll", &pause).await.unwrap();
    assert!(schedules.resume("poll").await.unwrap().is_some());
    schedules.run_now("poll", &Schedules::new_id("poll")).await.unwrap();
    assert_eq!(schedules.list().await.unwrap().len(), 1);
    worker.runs.reach(4).await;
    worker.stop().await;
}

#[tokio::test]
async fn the_documented_acl_is_enough_in_a_cluster() {
    let cluster = Cluster::start(Kind::default()).await;
    let with_user = cluster.url_of("billing:secret@");
    let declared = Declared::with_shards(VirtualHost::new(), TYPES, &with_user, 7).await;
    for node in &cluster.nodes {
        for line in ["ACL SETUSER billing on", "ACL SETUSER billing +cluster"] {
            node.ask::<()>(&words(&documented(line, &declared)[0])).await.unwrap();
        }
        node.ask::<()>(&["ACL", "SETUSER", "default", "-@all", "+acl", "+replconf", "+psync", "+ping"]).await.unwrap();
    }
    run_every_kind_of_event(&declared).await;
}

#[tokio::test]
async fn the_documented_acl_is_enough_behind_sentinels() {
    let watched = Watched::start().await;
    let with_user = watched.url().replace("redis-sentinel://", "redis-sentinel://billing:secret@");
    let with_user = with_user.replace('#', "?sentinel_username=finder&sentinel_password=secret#");
    let declared = Declared::with_redis(TYPES, &with_user).await;
    for server in &watched.servers {
        for line in ["ACL SETUSER billing on", "ACL SETUSER billing +role"] {
            server.ask::<()>(&words(&documented(line, &declared)[0])).await.unwrap();
        }
    }
    for sentinel in &watched.sentinels {
        sentinel.ask::<()>(&words(&documented("ACL SETUSER finder", &declared)[0])).await.unwrap();
    }
    run_every_kind_of_event(&declared).await;
}

#[tokio::test]
async fn topologies_with_different_prefixes_share_no_event() {
    // Both topologies are called `t`, and both have an event with the reference 1234.
    let (one, other) = (Declared::with_redis(TYPES, url()).await, Declared::with_redis(TYPES, url()).await);
    assert_ne!(one.topology.redis.prefix, other.topology.redis.prefix);
    let (first, second) = (one.connect().await, other.connect().await);
    let event = |id: &str| NewEvent::new("import", id.to_owned()).reference("1234").id("the same");
    first.publisher().publish(event("older")).await.unwrap();
    second.publisher().publish(event("newer")).await.unwrap();
    let (worker, gate) = Working::gated(first.worker(), "import");
    worker.runs.reach(1).await;
    // The event of the other topology is neither replaced by the newer one nor held up by the lease of the older one.
    let another = Working::start(&second, "import", |_| Outcome::Done);
    another.runs.reach(1).await;
    assert_eq!(another.stop().await.done, 1);
    gate.let_through(1);
    assert_eq!(worker.stop().await.done, 1);
}
