//! Several URLs for one broker, as for the nodes of a cluster.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use hatchery::{Hatchery, NewEvent, Outcome};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::support::{
    broker::eventually,
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
#[ignore = "loses a node four times with events in flight; scripts/test --all runs it"]
async fn clients_that_lose_a_node_go_on_with_another() {
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
        assert!(left.accepted() > before, "no client connected to the node that is left");
    }
    let mut payloads = worker.runs.payloads();
    payloads.sort();
    payloads.dedup();
    assert_eq!(payloads.len(), ROUNDS * EVENTS);
    worker.stop().await;
}

#[tokio::test]
async fn a_node_that_is_down_at_the_start_is_skipped() {
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

/// Connects without heartbeats, so that nothing but missing answers shows that a node is silent.
async fn connect_without_heartbeats(declared: &Declared, nodes: &[Relay; 2]) -> Hatchery {
    let urls = nodes.each_ref().map(|node| format!("{}?heartbeat=0", node.url));
    let builder = Hatchery::builder(declared.topology.clone()).redis_url(&declared.redis_url);
    builder.amqp_urls(urls).connect().await.unwrap()
}

#[tokio::test]
#[ignore = "waits until unconfirmed publishes give up a node; scripts/test --all runs it"]
async fn a_publisher_leaves_a_node_that_confirms_nothing() {
    let declared = Declared::new("types: { mail: {} }").await;
    let nodes = [Relay::to(&declared.host.amqp()).await, Relay::to(&declared.host.amqp()).await];
    let hatchery = connect_without_heartbeats(&declared, &nodes).await;
    publish(&hatchery, NewEvent::new("mail", "first")).await;
    let silenced = nodes.iter().position(|node| node.accepted() > 0).unwrap();
    nodes[silenced].silence();
    let events = (0..50).map(|n| NewEvent::new("mail", n.to_string())).collect();
    let published = hatchery.publisher().publish_batch(events).await;
    assert!(published.iter().all(Result::is_ok), "{published:?}");
    assert_eq!(nodes[1 - silenced].accepted(), 1);
    // Each event runs once, because the silenced relay has delivered nothing to the broker.
    let worker = Working::start(&declared.connect().await, "mail", |_| Outcome::Done);
    let mut payloads: Vec<_> = worker.runs.reach(51).await.into_iter().map(|seen| seen.event.payload).collect();
    payloads.sort();
    payloads.dedup();
    assert_eq!(payloads.len(), 51);
    worker.stop().await;
}

#[tokio::test]
#[ignore = "waits until a consumer without deliveries consumes anew; scripts/test --all runs it"]
async fn a_worker_leaves_a_node_that_delivers_nothing() {
    let declared = Declared::new("types: { mail: {} }").await;
    let nodes = [Relay::to(&declared.host.amqp()).await, Relay::to(&declared.host.amqp()).await];
    let hatchery = connect_without_heartbeats(&declared, &nodes).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let other = declared.connect().await;
    publish(&other, NewEvent::new("mail", "before")).await;
    worker.runs.reach(1).await;
    for node in &nodes {
        node.silence();
    }
    let accepted = || nodes.iter().map(Relay::accepted).sum::<u32>();
    let before = accepted();
    eventually("the worker connects again", async || (accepted() > before).then_some(())).await;
    // The broker still counts the silent consumer and sends it a share of the events.
    let runs_again = async || {
        publish(&other, NewEvent::new("mail", "after")).await;
        (worker.runs.seen().len() > 1).then_some(())
    };
    eventually("the worker runs new events", runs_again).await;
    worker.stop().await;
}

/// A relay that holds back `basic.consume` while it is cut off, like a node that is cut off from its cluster. It passes
/// everything on connections that begin while it is cut off.
struct Parted {
    url: String,
    cut_off: watch::Sender<bool>,
    /// How many `basic.consume` calls were held back, and how many of those were passed on later.
    held: Arc<AtomicUsize>,
    late: Arc<AtomicUsize>,
    _serving: AbortOnDropHandle<()>,
}

impl Parted {
    async fn of(amqp: &str) -> Self {
        const CONSUME: [u8; 4] = [0, 60, 0, 20];
        let mut url = Url::parse(&format!("{amqp}?heartbeat=0")).unwrap();
        let target = (url.host_str().unwrap().to_owned(), url.port().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        url.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
        let (cut_off, held, late) =
            (watch::Sender::new(false), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (parted, holds, passed) = (cut_off.clone(), Arc::clone(&held), Arc::clone(&late));
        let serving = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(&target).await.unwrap();
                let (mut parted, holds, passed) = (parted.subscribe(), Arc::clone(&holds), Arc::clone(&passed));
                let is_let_through = *parted.borrow();
                tokio::spawn(async move {
                    let ((mut sent, mut answers), (mut said, mut asked)) = (client.into_split(), server.into_split());
                    let passing = async {
                        let mut buffer = vec![0; 64 * 1024];
                        while let Ok(read @ 1..) = sent.read(&mut buffer).await {
                            let consumes = buffer[..read].windows(4).any(|bytes| bytes == CONSUME);
                            let waits = consumes && !is_let_through && *parted.borrow();
                            if waits {
                                holds.fetch_add(1, Ordering::SeqCst);
                                parted.wait_for(|is_parted| !is_parted).await.unwrap();
                            }
                            asked.write_all(&buffer[..read]).await.unwrap();
                            passed.fetch_add(usize::from(waits), Ordering::SeqCst);
                        }
                    };
                    tokio::select! {
                        () = passing => {}
                        _ = tokio::io::copy(&mut said, &mut answers) => {}
                    }
                });
            }
        });
        Self { url: url.into(), cut_off, held, late, _serving: AbortOnDropHandle::new(serving) }
    }
}

/// Two nodes, a client that connects through them, and a client that connects directly.
struct Cluster {
    nodes: [Parted; 2],
    hatchery: Hatchery,
    other: Hatchery,
}

impl Cluster {
    async fn of(declared: &Declared) -> Self {
        let nodes = [Parted::of(&declared.host.amqp()).await, Parted::of(&declared.host.amqp()).await];
        let builder = Hatchery::builder(declared.topology.clone()).redis_url(&declared.redis_url);
        let hatchery = builder.amqp_urls(nodes.each_ref().map(|node| &node.url)).connect().await.unwrap();
        Self { nodes, hatchery, other: declared.connect().await }
    }

    fn cut_off(&self, cut_off: bool) {
        for node in &self.nodes {
            node.cut_off.send_replace(cut_off);
        }
    }

    fn held(&self) -> usize {
        self.nodes.iter().map(|node| node.held.load(Ordering::SeqCst)).sum()
    }

    /// Ends the partition, and waits until a `basic.consume` that was held back has been passed on.
    async fn heal(&self) {
        self.cut_off(false);
        let late = || self.nodes.iter().map(|node| node.late.load(Ordering::SeqCst)).sum::<usize>();
        eventually("the call that was held back arrives", async || (late() > 0).then_some(())).await;
    }

    /// Publishes events, and waits until this worker has run all of them. A leaked consumer would take some.
    async fn expect_all_run_by(&self, worker: Working) {
        const EVENTS: usize = 40;
        let before = worker.runs.count();
        for n in 0..EVENTS {
            publish(&self.other, NewEvent::new("mail", n.to_string())).await;
        }
        worker.runs.reach(before + EVENTS).await;
        worker.stop().await;
    }
}

#[tokio::test]
#[ignore = "waits until a consumer without deliveries consumes anew; scripts/test --all runs it"]
async fn a_worker_keeps_no_consumer_on_a_node_that_it_left() {
    let declared = Declared::new("types: { mail: {} }").await;
    let cluster = Cluster::of(&declared).await;
    let worker = Working::start(&cluster.hatchery, "mail", |_| Outcome::Done);
    publish(&cluster.other, NewEvent::new("mail", "before")).await;
    worker.runs.reach(1).await;
    cluster.cut_off(true);
    // The idle consumer tries to consume anew and gets no answer, so the worker connects again.
    let (queue, amqp) = (declared.processing("mail"), declared.amqp().await);
    eventually("the consumer is gone", async || (amqp.consumers(&queue).await == 0).then_some(())).await;
    eventually("the worker consumes again", async || (amqp.consumers(&queue).await == 1).then_some(())).await;
    cluster.heal().await;
    cluster.expect_all_run_by(worker).await;
}

#[tokio::test]
async fn a_worker_that_stops_while_it_begins_to_consume_leaves_no_consumer() {
    let declared = Declared::new("types: { mail: {} }").await;
    let cluster = Cluster::of(&declared).await;
    let worker = Working::start(&cluster.hatchery, "mail", |_| Outcome::Done);
    publish(&cluster.other, NewEvent::new("mail", "before")).await;
    worker.runs.reach(1).await;
    worker.stop().await;
    cluster.cut_off(true);
    let worker = Working::start(&cluster.hatchery, "mail", |_| Outcome::Done);
    eventually("its `basic.consume` is held back", async || (cluster.held() > 0).then_some(())).await;
    worker.stop().await;
    cluster.heal().await;
    cluster.expect_all_run_by(Working::start(&cluster.other, "mail", |_| Outcome::Done)).await;
}

/// Starts a relay that accepts a client, and ends the connection when the client opens its first channel.
async fn leaving_node(amqp: &str) -> (String, AbortOnDropHandle<()>) {
    const CHANNEL_OPEN: [u8; 4] = [0, 20, 0, 10];
    let mut url = Url::parse(amqp).unwrap();
    let target = (url.host_str().unwrap().to_owned(), url.port().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    url.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
    let serving = tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(&target).await.unwrap();
            let ((mut sent, mut answers), (mut said, mut asked)) = (client.into_split(), server.into_split());
            let passing = async {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(read @ 1..) = sent.read(&mut buffer).await {
                    if buffer[..read].windows(4).any(|bytes| bytes == CHANNEL_OPEN) {
                        break;
                    }
                    asked.write_all(&buffer[..read]).await.unwrap();
                }
            };
            tokio::select! {
                () = passing => {}
                _ = tokio::io::copy(&mut said, &mut answers) => {}
            }
        }
    });
    (url.into(), AbortOnDropHandle::new(serving))
}

#[tokio::test]
async fn a_node_that_ends_new_connections_is_skipped() {
    let declared = Declared::new("types: { mail: {} }").await;
    let (leaving, _serving) = leaving_node(&declared.host.amqp()).await;
    for _ in 0..4 {
        let builder = Hatchery::builder(declared.topology.clone()).redis_url(&declared.redis_url);
        let hatchery = builder.amqp_urls([&leaving, &declared.host.amqp()]).connect().await.unwrap();
        publish(&hatchery, NewEvent::new("mail", "{}")).await;
        hatchery.close().await;
    }
}

#[test]
fn an_error_names_every_node_that_does_not_answer() {
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
fn the_management_api_is_called_on_a_node_that_answers() {
    let bench = Bench::new("version: 1\nname: t\ntypes: { mail: {} }\n");
    bench.apply();
    let urls = format!("http://u:pw@127.0.0.1:{},{}", free_port(), bench.host.management());
    bench.expect(0, &["plan", "--detailed-exitcode", "--management-url", &urls]);
    bench.expect(0, &["apply", "--auto-approve", "--management-url", &urls]);
}
