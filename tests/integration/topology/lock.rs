//! The lock that lets only one apply run at a time.

use hatchery::internals::{rabbitmq::connection::AmqpUrl, redis::RedisRegister, register::Owner};
use lapin::{options::QueueDeclareOptions, types::FieldTable};

use super::TOPOLOGY;
use crate::{
    register::bench::spec,
    support::{
        cli::{Bench, Ran},
        redis::{Server, free_port},
    },
};

/// Takes the lock as another apply would.
async fn hold(bench: &Bench) -> lapin::Connection {
    let connection = AmqpUrl::new(&bench.host.amqp()).unwrap().connect("another apply").await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let exclusive = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    channel.queue_declare("billing.lock".into(), exclusive, FieldTable::default()).await.unwrap();
    connection
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_ends_with_exit_code_7_while_the_lock_is_held() {
    let bench = Bench::new(TOPOLOGY);
    let _other = hold(&bench).await;
    let ran = bench.expect(7, &["apply", "--auto-approve", "--lock-timeout", "0s"]);
    assert!(
        ran.stderr.contains("another apply or destroy holds the lock billing.lock; nothing was written"),
        "{ran:?}"
    );
    let ran = bench.expect(7, &["apply", "--auto-approve", "--lock-timeout", "100ms"]);
    assert!(ran.stderr.contains("Waiting for another apply"), "{ran:?}");
    assert_eq!(bench.host.names("exchanges"), Vec::<String>::new());
    // A plan does not need the lock.
    bench.expect(3, &["plan", "--detailed-exitcode"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_that_finds_the_lock_held_leaves_the_register_to_its_owner() {
    let redis = Server::start(free_port(), &[]);
    let bench = Bench::new(TOPOLOGY);
    let register =
        RedisRegister::new(&redis.url, &bench.host.name, &"billing".parse().unwrap(), &spec("hatchery", 1)).unwrap();
    let owner = |cluster: &str| Owner { topology: Some("billing".to_owned()), cluster_name: Some(cluster.to_owned()) };
    register.set_owner(&owner("former")).await.unwrap();
    let other = hold(&bench).await;
    let url = ["--redis-url", redis.url.as_str()];
    let apply = [&["apply", "--auto-approve", "--lock-timeout", "0s", "--moved-from", "former"], &url[..]].concat();
    bench.expect(7, &apply);
    assert_eq!(register.owners().await.unwrap(), [owner("former")].into());
    other.close(200, "done".into()).await.unwrap();
    bench.expect(0, &apply);
    assert_eq!(register.owners().await.unwrap(), [owner("shared")].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_goes_on_once_the_lock_is_released() {
    use std::io::{BufRead as _, BufReader, Read as _};

    let bench = Bench::new(TOPOLOGY);
    let other = hold(&bench).await;
    let mut command = bench.process(&["apply", "--auto-approve"]);
    let mut apply = command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut stderr = BufReader::new(apply.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("Waiting for another apply or destroy, which holds billing.lock"), "{line}");
    other.close(200, "done".into()).await.unwrap();
    let status = apply.wait().unwrap();
    stderr.read_to_string(&mut line).unwrap();
    assert_eq!(status.code(), Some(0), "{line}");
    bench.expect(0, &["plan", "--detailed-exitcode"]);
}

#[test]
fn four_applies_at_the_same_time_all_succeed() {
    let bench = Bench::new(TOPOLOGY);
    let ran: Vec<Ran> = std::thread::scope(|scope| {
        // The last one waits for three others, on a busy machine longer than the default.
        let apply = || scope.spawn(|| bench.run(&["apply", "--auto-approve", "--lock-timeout", "3m"]));
        let running: Vec<_> = (0..4).map(|_| apply()).collect();
        running.into_iter().map(|apply| apply.join().unwrap()).collect()
    });
    for ran in ran {
        ran.expect(0);
    }
    bench.expect(0, &["plan", "--detailed-exitcode"]);
}
