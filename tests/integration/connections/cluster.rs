//! Several URLs of one broker, as the nodes of a cluster have them.

use hatchery::{Hatchery, NewEvent, Outcome};

use crate::support::{
    cli::Bench,
    declared::{Declared, publish},
    redis::free_port,
    relay::Relay,
    workers::Working,
};

async fn connect(declared: &Declared, nodes: &[&Relay]) -> Hatchery {
    let builder = Hatchery::builder(declared.topology.clone()).redis_url(&declared.redis_url);
    builder.amqp_urls(nodes.iter().map(|node| node.url.as_str())).connect().await.unwrap()
}

#[tokio::test]
async fn who_loses_a_node_goes_on_by_another() {
    const ROUNDS: usize = 4;
    const EVENTS: usize = 50;
    let declared = Declared::new("types: { mail: {} }").await;
    let (one, other) = (Relay::to(&declared.host.amqp()).await, Relay::to(&declared.host.amqp()).await);
    let hatchery = connect(&declared, &[&one, &other]).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    for round in 0..ROUNDS {
        let (gone, left) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        left.open();
        let before = left.accepted();
        gone.close();
        for n in 0..EVENTS {
            publish(&hatchery, NewEvent::new("mail", format!("{round}-{n}"))).await;
        }
        worker.runs.reach((round + 1) * EVENTS).await;
        assert!(left.accepted() > before, "nobody came by the node that is left");
    }
    let mut payloads = worker.runs.payloads();
    payloads.sort();
    payloads.dedup();
    assert_eq!(payloads.len(), ROUNDS * EVENTS);
    worker.stop().await;
}

#[tokio::test]
async fn a_node_that_is_away_at_the_start_is_passed_over() {
    let declared = Declared::new("types: { mail: {} }").await;
    let (gone, left) = (Relay::to(&declared.host.amqp()).await, Relay::to(&declared.host.amqp()).await);
    gone.close();
    for _ in 0..4 {
        let hatchery = connect(&declared, &[&gone, &left]).await;
        publish(&hatchery, NewEvent::new("mail", "{}")).await;
        hatchery.close().await;
    }
    assert_eq!(left.accepted(), 4);
}

#[test]
fn where_no_node_answers_each_is_named() {
    let bench = Bench::new("version: 1\nname: t\ntypes: { mail: {} }\n");
    let ports = [free_port(), free_port()];
    let urls = |scheme: &str, path: &str| ports.map(|port| format!("{scheme}://u:pw@127.0.0.1:{port}{path}")).join(",");
    let (amqp, management) = (urls("amqp", "/v"), urls("http", ""));
    for verb in [
        ["publish", "mail", "--payload", "{}", "--amqp-url", &amqp].as_slice(),
        &["plan", "--management-url", &management],
    ] {
        let ran = bench.expect(6, verb);
        for port in ports {
            assert!(ran.stderr.contains(&format!("127.0.0.1:{port}: ")), "{port}: {ran:?}");
        }
    }
    let ran = bench.expect(2, &["publish", "mail", "--payload", "{}", "--amqp-url", "amqp://a/x,amqp://b/y"]);
    assert!(ran.stderr.contains("the same virtual host"), "{ran:?}");
}

#[test]
fn the_management_api_is_asked_where_it_answers() {
    let bench = Bench::new("version: 1\nname: t\ntypes: { mail: {} }\n");
    bench.apply();
    let urls = format!("http://u:pw@127.0.0.1:{},{}", free_port(), bench.host.management());
    bench.expect(0, &["plan", "--detailed-exitcode", "--management-url", &urls]);
    bench.expect(0, &["apply", "--auto-approve", "--management-url", &urls]);
}
