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
    let file = |name: &str, url: &str| place.write(name, &format!("{url}\n"));
    let script = place.write("script", "cat >> ran; echo >> ran\n");
    let mut command = place.worker("mail", &script);
    command.env_remove("AMQP_URL").env_remove("REDIS_URL");
    command.env("AMQP_URL_FILE", file("amqp", &to_broker.url)).env("REDIS_URL_FILE", file("redis", &to_redis.url));
    let worker = Process::spawn(command);
    let ran = async |events: &[&str]| {
        eventually(&format!("{events:?} have run"), async || (place.lines("ran") == events).then_some(())).await;
    };
    let logged = async |text: &str| {
        let is_there = async || place.lines("log").iter().any(|line| line.contains(text)).then_some(());
        eventually(&format!("the log has {text}"), is_there).await;
    };
    publish(&declared.connect().await, NewEvent::new("mail", "first")).await;
    ran(&["first"]).await;

    declared.host.set_password(NEW);
    to_broker.cut();
    logged("refuses the connection").await;
    file("amqp", &to_broker.url.replace(PASSWORD, NEW));
    let connect = async |redis: &str| {
        let amqp = declared.host.amqp().replace(PASSWORD, NEW);
        Hatchery::builder(declared.topology.clone()).amqp_url(amqp).redis_url(redis).connect().await.unwrap()
    };
    publish(&connect(&with(PASSWORD)).await, NewEvent::new("mail", "second")).await;
    ran(&["first", "second"]).await;

    let mut admin = crate::support::redis::connect(&with(PASSWORD)).await.unwrap();
    let set = ::redis::cmd("CONFIG").arg("SET").arg("requirepass").arg(NEW).to_owned();
    let () = set.query_async(&mut admin).await.unwrap();
    to_redis.cut();
    publish(&connect(&with(NEW)).await, NewEvent::new("mail", "third")).await;
    logged("refuses: ").await;
    file("redis", &to_redis.url.replace(PASSWORD, NEW));
    ran(&["first", "second", "third"]).await;
    assert_eq!(worker.stop().await["done"], 3);
    let log = place.lines("log").join("\n");
    assert!(log.contains("is read again at each try") && !log.contains(NEW) && !log.contains(PASSWORD), "{log}");
}
