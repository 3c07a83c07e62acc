//! While Redis is away, publishers go on and workers wait.

use std::time::Duration;

use hatchery::{Hatchery, NewEvent, Outcome};

use crate::support::{
    broker::eventually,
    declared::Declared,
    redis::{Server, free_port},
    workers::Working,
};

const TYPES: &str = "types: { import: { coalesce: latest } }";

fn change(payload: &str) -> NewEvent {
    NewEvent::new("import", payload.to_owned()).reference("1234")
}

async fn declared(port: u16) -> Declared {
    Declared::with_redis(TYPES, &format!("redis://127.0.0.1:{port}")).await
}

#[tokio::test]
async fn a_publish_without_redis_is_confirmed_without_a_version() {
    let port = free_port();
    let declared = declared(port).await;
    let hatchery = declared.connect().await;
    for payload in ["1", "2"] {
        let published = hatchery.publisher().publish(change(payload)).await.unwrap();
        assert!(published.unversioned);
    }
    let _redis = Server::start(port, &[]);
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    // Events without a version coalesce with nothing, so both run.
    worker.runs.reach(2).await;
    assert_eq!(worker.stop().await.done, 2);
}

#[tokio::test]
async fn a_publisher_asks_for_versions_again_when_redis_is_back() {
    let port = free_port();
    let declared = declared(port).await;
    let hatchery = declared.connect().await;
    let publisher = hatchery.publisher();
    assert!(publisher.publish(change("1")).await.unwrap().unversioned);
    let _redis = Server::start(port, &[]);
    eventually("a publish gets a version", async || {
        (!publisher.publish(change("2")).await.unwrap().unversioned).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_publisher_waits_for_a_version_as_long_as_version_wait_says() {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let builder = Hatchery::builder(declared.topology.clone()).amqp_url(declared.host.amqp()).redis_url(&redis.url);
    let (hasty, patient) = (builder.clone().connect().await.unwrap(), builder.version_wait(Duration::MAX));
    let patient = patient.connect().await.unwrap();
    let unversioned = async |hatchery: &Hatchery| hatchery.publisher().publish(change("1")).await.unwrap().unversioned;
    for hatchery in [&hasty, &patient] {
        eventually("a publish gets a version", async || (!unversioned(hatchery).await).then_some(())).await;
    }
    redis.say(&["CLIENT", "PAUSE", "60000", "WRITE"]).await;
    let in_vain = async {
        let in_vain = unversioned(&hasty).await;
        redis.say(&["CLIENT", "UNPAUSE"]).await;
        in_vain
    };
    assert_eq!(tokio::join!(in_vain, unversioned(&patient)), (true, false));
}

#[tokio::test]
async fn a_program_that_requires_the_register_waits_for_a_redis_that_is_busy_at_its_start() {
    let redis = Server::start(free_port(), &[]);
    let hatchery = Declared::with_redis(TYPES, &redis.url).await.connect().await;
    redis.say(&["CLIENT", "PAUSE", "2000", "ALL"]).await;
    hatchery.require_register().await.unwrap();
}

#[tokio::test]
async fn a_worker_starts_nothing_without_redis_and_goes_on_once_it_is_back() {
    let port = free_port();
    let redis = Server::start(port, &[]);
    let declared = declared(port).await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    let publisher = hatchery.publisher();
    publisher.publish(change("before")).await.unwrap();
    worker.runs.reach(1).await;
    drop(redis);
    for n in 0..5 {
        publisher.publish(NewEvent::new("import", n.to_string())).await.unwrap();
    }
    let amqp = declared.amqp().await;
    let queue = declared.processing("import");
    amqp.expect_untouched(&queue, 5).await;
    assert_eq!(worker.runs.seen().len(), 1);
    let _redis = Server::start(port, &[]);
    worker.runs.reach(6).await;
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.retried), (6, 0));
}

#[tokio::test]
async fn a_run_that_ends_without_redis_is_settled_once_it_is_back() {
    let port = free_port();
    let redis = Server::start(port, &[]);
    let declared = declared(port).await;
    let hatchery = declared.connect().await;
    let (worker, gate) = Working::gated(hatchery.worker(), "import");
    hatchery.publisher().publish(change("1")).await.unwrap();
    worker.runs.reach(1).await;
    drop(redis);
    gate.let_through(1);
    let _redis = Server::start(port, &[]);
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.given_back), (1, 0));
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_worker_that_is_stopped_without_redis_gives_its_deliveries_back() {
    let port = free_port();
    let redis = Server::start(port, &[]);
    let declared = declared(port).await;
    let hatchery = declared.connect().await;
    let publisher = hatchery.publisher();
    let worker = Working::with(hatchery.worker().drain_timeout(Duration::from_secs(5)), "import", |_| Outcome::Done);
    publisher.publish(NewEvent::new("import", "before")).await.unwrap();
    worker.runs.reach(1).await;
    drop(redis);
    for n in 0..5 {
        publisher.publish(NewEvent::new("import", n.to_string())).await.unwrap();
    }
    let amqp = declared.amqp().await;
    let queue = declared.processing("import");
    amqp.expect_untouched(&queue, 5).await;
    let summary = worker.stop().await;
    assert_eq!(summary.given_back, summary.delivered - 1);
    // If Redis went before the first event was settled, it does not count as done, and it is delivered again.
    assert!(summary.done <= 1, "{summary:?}");
    let mut back = Vec::new();
    eventually("five events are back in the queue", async || {
        while let Some(message) = amqp.get(&queue).await {
            back.push(String::from_utf8(message.data.clone()).unwrap());
        }
        back.retain(|payload| payload != "before");
        (back.len() >= 5).then_some(())
    })
    .await;
    back.sort();
    assert_eq!(back, ["0", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn a_worker_whose_only_handler_waits_for_redis_stops_consuming() {
    let port = free_port();
    let redis = Server::start(port, &[]);
    let text = "types: { import: { prefetch: 10, concurrency: 1 } }";
    let declared = Declared::with_redis(text, &format!("redis://127.0.0.1:{port}")).await;
    let hatchery = declared.connect().await;
    let (worker, gate) = Working::gated(hatchery.worker(), "import");
    let publisher = hatchery.publisher();
    publisher.publish(NewEvent::new("import", "0")).await.unwrap();
    worker.runs.reach(1).await;
    drop(redis);
    gate.let_through(1);
    publisher.publish(NewEvent::new("import", "1")).await.unwrap();
    declared.amqp().await.expect_untouched(&declared.processing("import"), 1).await;
    let _redis = Server::start(port, &[]);
    gate.let_through(1);
    worker.runs.reach(2).await;
    let summary = worker.stop().await;
    assert_eq!(summary.done, 2);
}
