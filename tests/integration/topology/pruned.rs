//! `apply --prune` removes leftovers, except those in use.

use crate::support::{amqp::Amqp, broker::eventually, cli::Bench};

const FILE: &str = "\
version: 1
name: billing
hatcheries: [50ms, 1h]
ladder: { resolution: 10ms, horizon: 60ms }
types:
  hr-import: { retry: { delays: [20ms] } }
  mail: { retry: { delays: [20ms] } }
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "removes queues, whose count of 0 has to last 12 s; scripts/test --all runs it"]
async fn a_leftover_queue_with_messages_stays_bound_until_it_is_empty() {
    let bench = Bench::new(FILE);
    bench.apply();
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    amqp.publish("billing.scheduler", "mail.now", lapin::BasicProperties::default(), b"1").await;
    let queue = "billing.processor.mail";
    let counted = async |messages: u32| {
        let is_counted = || bench.host.list("queues").iter().any(|q| q["name"] == queue && q["messages"] == messages);
        eventually("the statistics show the message count", async || is_counted().then_some(())).await;
    };
    counted(1).await;
    bench.write(&FILE.replace("  mail: { retry: { delays: [20ms] } }\n", ""));
    let pruned = bench.expect(0, &["apply", "--auto-approve", "--prune"]);
    assert!(pruned.stderr.contains("Not removed") && pruned.stderr.contains(queue), "{pruned:?}");
    // An event of an old pod still reaches the queue.
    amqp.publish("billing.scheduler", "mail.now", lapin::BasicProperties::default(), b"2").await;
    assert_eq!(
        (amqp.take(queue).await.data.as_slice(), amqp.take(queue).await.data.as_slice()),
        (&b"1"[..], &b"2"[..])
    );
    let queues = bench.host.names("queues");
    // The retry queue stays as well, for events of the old pod that fail.
    assert!(queues.contains(&"billing.retry.mail.20ms".to_owned()), "{queues:?}");
    counted(0).await;
    bench.expect(0, &["apply", "--auto-approve", "--prune"]);
    let queues = bench.host.names("queues");
    assert!(!queues.iter().any(|queue| queue.contains(".mail")), "{queues:?}");
}

#[test]
#[ignore = "removes queues, whose count of 0 has to last 12 s, twice; scripts/test --all runs it"]
fn a_leftover_hatchery_and_a_leftover_ladder_are_pruned() {
    let bench = Bench::new(FILE);
    bench.apply();
    bench.write(&FILE.replace("10ms, horizon", "20ms, horizon").replace("[50ms, 1h]", "[50ms]"));
    bench.apply();
    let pruned = bench.expect(0, &["apply", "--auto-approve", "--prune"]);
    let queues = bench.host.names("queues");
    assert!(
        queues.iter().all(|queue| !queue.contains("ladder.10ms") && queue != "billing.hatchery.1h"),
        "{queues:?} {pruned:?}"
    );
    let planned = bench.expect(0, &["plan", "--detailed-exitcode"]).stdout;
    assert_eq!(planned, "No changes. The broker is as topology.yaml says.\n");
}
