//! The node that led a queue is lost. RabbitMQ 3.10 refuses every message for that queue on a channel that sends its first one
//! before the queue has another leader, for as long as the node is away (measured). Other channels are not affected.

use std::collections::BTreeSet;

use hatchery::NewEvent;

use crate::support::{
    broker::{eventually, text},
    declared::{Declared, publish},
    held::Held,
    redis,
};

const TYPES: usize = 12;

#[tokio::test]
#[ignore = "starts a cluster of three nodes and kills one; scripts/test --all runs it"]
async fn a_publish_to_a_queue_that_has_just_lost_its_leader_is_confirmed() {
    let mut cluster = Held::cluster();
    let types: Vec<String> = (0..TYPES).map(|n| format!("t{n}: {{}}")).collect();
    let topology = format!("types: {{ {} }}", types.join(", "));
    let declared = Declared::on(cluster.host(), &topology, redis::url()).await;
    let processing = |n: usize| declared.processing(&format!("t{n}"));
    // The test's own calls go to the first node, so the killed node is another one.
    let led_by_another = async || {
        let queues = declared.host.list("queues");
        let leads = |node: char, n| {
            let queue = queues.iter().find(|queue| text(queue, "name") == processing(n));
            queue.is_some_and(|queue| queue["leader"].as_str().is_some_and(|leader| leader.contains(node)))
        };
        ['2', '3'].into_iter().find_map(|node| {
            let led: BTreeSet<usize> = (0..TYPES).filter(|n| leads(node, *n)).collect();
            (!led.is_empty()).then_some((node, led))
        })
    };
    let (node, led) = eventually("another node leads queues", led_by_another).await;
    let other = (0..TYPES).find(|n| !led.contains(n)).expect("one node leads all queues");
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new(format!("t{other}"), "{}")).await;
    assert!(cluster.ask(&format!("kill rabbitmq{node}")).await);
    // The publisher would leave a connection that confirms nothing for 10 s, so other publishes on it are confirmed.
    let confirming = async {
        loop {
            publish(&hatchery, NewEvent::new(format!("t{other}"), "{}")).await;
        }
    };
    let publishing = async {
        for n in &led {
            publish(&hatchery, NewEvent::new(format!("t{n}"), "{}")).await;
        }
    };
    tokio::select! {
        () = publishing => {}
        () = confirming => unreachable!("the loop does not end"),
    }
    let amqp = declared.amqp().await;
    for n in led {
        assert_eq!(amqp.ready(&processing(n)).await, 1);
    }
}
