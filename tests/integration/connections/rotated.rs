//! Passwords that are rotated while a worker runs.

use hatchery::{Hatchery, NewEvent};

use crate::support::{
    broker::{PASSWORD, eventually},
    declared::{Declared, publish},
    process::{Place, Process},
    redis::{Server, free_port},
    relay::Relay,
};

const NEW: &str = "rotated-hunter3";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_reads_its_urls_again_and_goes_on_when_the_passwords_are_rotated() {
    let redis = Server::start(free_port(), &["--requirepass", PASSWORD]);
    let with = |password: &str| redis.url.replace("redis://", &format!("redis://:{password}@"));
    let declared = Declared::with_redis("types: { mail: {} }", &with(PASSWORD)).await;
    let (to_broker, to_redis) = (Relay::to(&declared.host.amqp()).await, Relay::to(&with(PASSWORD)).await);
    let place = Place::new(&declared);
    let files = |password: &str| {
        let file = |name: &str, url: &str| place.write(name, &format!("{}\n", url.replace(PASSWORD, password)));
        (file("amqp", &to_broker.url), file("redis", &to_redis.url))
    };
    let (amqp_file, redis_file) = files(PASSWORD);
    let script = place.write("script", "cat >> ran; echo >> ran\n");
    let mut command = place.worker("mail", &script);
    command.env_remove("AMQP_URL").env_remove("REDIS_URL");
    command.env("AMQP_URL_FILE", &amqp_file).env("REDIS_URL_FILE", &redis_file);
    let worker = Process::spawn(command);
    publish(&declared.connect().await, NewEvent::new("mail", "before")).await;
    eventually("the first event has run", async || (place.lines("ran") == ["before"]).then_some(())).await;

    declared.host.set_password(NEW);
    let mut to = crate::support::redis::connect(&with(PASSWORD)).await.unwrap();
    let set = ::redis::cmd("CONFIG").arg("SET").arg("requirepass").arg(NEW).to_owned();
    let () = set.query_async(&mut to).await.unwrap();
    let before = to_broker.accepted();
    to_broker.cut();
    to_redis.cut();
    eventually("the worker is refused", async || (to_broker.accepted() > before + 1).then_some(())).await;
    files(NEW);
    let publisher = Hatchery::builder(declared.topology.clone())
        .amqp_url(declared.host.amqp().replace(PASSWORD, NEW))
        .redis_url(with(NEW))
        .connect()
        .await
        .unwrap();
    publish(&publisher, NewEvent::new("mail", "after")).await;
    eventually("the second event has run", async || (place.lines("ran") == ["before", "after"]).then_some(())).await;
    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.ended().await.expect(0).summary()["done"], 2);
    let log = place.lines("log").join("\n");
    assert!(log.contains("refuses the connection") && !log.contains(NEW) && !log.contains(PASSWORD), "{log}");
}
