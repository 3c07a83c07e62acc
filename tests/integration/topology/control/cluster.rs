//! A cluster of three nodes, whose stream has lost its leader, its majority, or has no replica on a node.

use std::time::Duration;

use hatchery::{LifeCycleRecord, NewEvent, Readiness};
use tokio::sync::{Mutex, MutexGuard};

use super::{FILE, Fleet, OnCall};
use crate::support::{
    broker::{eventually, text},
    declared::{Declared, publish, publish_all},
    held::Held,
    process::Process,
    records::Records,
    redis,
};

const NODES: [usize; 3] = [1, 2, 3];

/// For how long a node is frozen. The others give it up after a minute.
const FROZEN: Duration = Duration::from_secs(40);

/// How many events a test publishes while a node is away.
const MANY: usize = 1_000;

/// A cluster for one test at a time: each has three nodes.
struct Cluster {
    held: Held,
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    /// Starts a cluster with a topology whose stream is led by another node than the first, which the test's own calls use. Returns
    /// that node too.
    async fn start() -> (Self, Declared, usize) {
        Self::led(FILE, "t.control").await
    }

    /// Starts a cluster with this file, and returns the node that leads this stream too.
    async fn led(file: &str, stream: &str) -> (Self, Declared, usize) {
        let (mut cluster, declared) = Self::with(file, async |_| {}).await;
        if leader(&declared, stream).await == 1 {
            cluster.ask("kill rabbitmq1").await;
            cluster.ask("start rabbitmq1").await;
        }
        let leader = eventually("another node leads the stream", async || {
            Some(leader(&declared, stream).await).filter(|node| *node != 1)
        })
        .await;
        (cluster, declared, leader)
    }

    /// Starts a cluster, prepares it, and declares the topology.
    async fn with(file: &str, prepare: impl AsyncFnOnce(&mut Held)) -> (Self, Declared) {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let alone = ALONE.lock().await;
        let mut held = Held::cluster();
        prepare(&mut held).await;
        let declared = Declared::on(held.host(), file, redis::url()).await;
        // RabbitMQ writes which member of the stream coordinator a node has to disk up to a second later. A node that is killed before has
        // none for ever (docs/pause-protocol.md).
        let written = held.ctl("rabbitmq1 eval rpc:multicall(dets,sync,[ra_coordination_directory_reverse]).").await;
        // RabbitMQ 3.10 disconnects a node that was reset.
        assert!(matches!(&*written.concat(), "{[ok,ok,ok],[]}" | "{[ok,ok],[]}"), "{written:?}");
        (Self { held, _alone: alone }, declared)
    }

    async fn ask(&mut self, what: &str) {
        assert!(self.held.ask(what).await, "{what}");
    }

    fn urls(&self, declared: &Declared, nodes: &[usize]) -> String {
        nodes.iter().map(|node| self.held.amqp(&declared.host, *node)).collect::<Vec<_>>().join(",")
    }

    /// Starts a worker that knows these nodes alone.
    async fn worker(&self, declared: &Declared, fleet: &mut Fleet, nodes: &[usize]) -> Readiness {
        fleet.start(&declared.connect_by(&self.urls(declared, nodes)).await)
    }
}

/// Returns the node that leads a stream.
async fn leader(declared: &Declared, stream: &str) -> usize {
    eventually("the stream has a leader", async || {
        let queues = declared.host.list("queues");
        let stream = queues.iter().find(|queue| text(queue, "name") == stream)?;
        // RabbitMQ 3.10 calls it `node`.
        let leader = stream["leader"].as_str().or(stream["node"].as_str())?;
        NODES.into_iter().find(|node| leader.starts_with(&format!("hatchery{node}@")))
    })
    .await
}

async fn ready(readiness: &Readiness) {
    eventually("the worker is ready", async || readiness.is_ready().then_some(())).await;
}

/// Starts a worker on each node.
async fn on_each_node(cluster: &Cluster, declared: &Declared, fleet: &mut Fleet) {
    for node in NODES {
        cluster.worker(declared, fleet, &[node]).await;
    }
    for (_, readiness) in &fleet.workers {
        ready(readiness).await;
    }
}

/// Runs a command over these nodes until it succeeds, as its message says.
async fn until_done(on_call: &OnCall<'_>, amqp: &str, arguments: &[&str]) {
    eventually(&format!("{arguments:?} succeeds"), async || {
        let ended = on_call.run_on(amqp, arguments).await;
        let code = ended.status.code();
        assert!(matches!(code, Some(0 | 5 | 6)), "{ended:?}");
        (code == Some(0)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a cluster of three nodes and kills one; scripts/test --all runs it"]
async fn a_pause_holds_while_the_leader_of_the_stream_is_killed() {
    let (mut cluster, declared, leader) = Cluster::start().await;
    let (on_call, amqp) = (OnCall::new(&declared), declared.amqp().await);
    let mut fleet = Fleet::new(declared.connect().await);
    // The replica of a node that was just started may refuse.
    until_done(&on_call, &on_call.user.amqp(), &["pause", "mail", "--reason", "R"]).await;
    on_each_node(&cluster, &declared, &mut fleet).await;
    fleet.go_on().await;

    cluster.ask(&format!("kill rabbitmq{leader}")).await;
    fleet.go_on().await;
    on_call.does(&["pause", "other", "--reason", "R"]).await;
    fleet.publish().await;
    amqp.expect_untouched(&declared.processing("other"), 1).await;
    on_call.does(&["resume", "other"]).await;
    fleet.go_on().await;

    cluster.ask(&format!("start rabbitmq{leader}")).await;
    ready(&fleet.workers[leader - 1].1).await;
    fleet.go_on().await;
    on_call.does(&["resume", "mail"]).await;
    fleet.resumed(&amqp, &declared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a cluster of three nodes; scripts/test --all runs it"]
async fn on_a_node_without_a_replica_of_the_stream_nothing_starts_and_clients_that_know_another_one_go_there() {
    // A node that joins after the stream was declared gets no replica of it.
    let (mut cluster, declared) = Cluster::with(FILE, async |held: &mut Held| {
        held.ctl("rabbitmq3 stop_app").await;
        held.ctl("rabbitmq3 reset").await;
    })
    .await;
    cluster.held.ctl("rabbitmq3 start_app").await;
    cluster.held.ctl("rabbitmq3 await_online_nodes 3").await;
    // Until then, a client of the new node waits half a minute for any answer about a stream.
    eventually("the new node coordinates streams", async || {
        let members = cluster.held.ctl("rabbitmq3 eval ra:members({rabbit_stream_coordinator,node()}).").await;
        members.concat().contains("hatchery3").then_some(())
    })
    .await;
    let (on_call, amqp) = (OnCall::new(&declared), declared.amqp().await);
    let (alone, both) = (cluster.urls(&declared, &[3]), cluster.urls(&declared, &[3, 2]));
    // RabbitMQ 3.10 may close the first connections that use a stream on the new node.
    for _ in 0..5 {
        until_done(&on_call, &both, &["pause", "mail", "--reason", "R"]).await;
    }
    let refused = on_call.run_on(&alone, &["pause", "other", "--reason", "R"]).await.expect(6).stderr;
    // RabbitMQ 4.0 closes the connection, and 4.3 calls it a running replica.
    let says = ["replica on the local node", "INTERNAL_ERROR"];
    assert!(says.iter().any(|text| refused.contains(text)), "{refused}");

    let mut fleet = Fleet::new(declared.connect().await);
    for _ in 0..4 {
        cluster.worker(&declared, &mut fleet, &[3, 2]).await;
    }
    for (_, readiness) in &fleet.workers {
        ready(readiness).await;
    }
    fleet.go_on().await;
    let alone = cluster.worker(&declared, &mut fleet, &[3]).await;
    fleet.go_on().await;
    assert!(!alone.is_ready());
    let said = on_call.does(&["plan"]).await.stderr;
    assert!(said.contains("hatchery3@localhost has no replica of the stream t.control"), "{said}");
    on_call.does(&["resume", "mail"]).await;
    fleet.resumed(&amqp, &declared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a cluster of three nodes and kills two; scripts/test --all runs it"]
async fn a_pause_holds_while_the_stream_has_lost_its_majority() {
    let (mut cluster, declared) = Cluster::with(FILE, async |_| {}).await;
    let (on_call, amqp) = (OnCall::new(&declared), declared.amqp().await);
    let mut fleet = Fleet::new(declared.connect().await);
    on_call.does(&["pause", "mail", "--reason", "R"]).await;
    on_each_node(&cluster, &declared, &mut fleet).await;
    fleet.go_on().await;
    let late = declared.connect().await;

    cluster.ask("kill rabbitmq2 rabbitmq3").await;
    let late = fleet.start(&late);
    let refused = on_call.run(&["pause", "other", "--reason", "R"]).await;
    assert!(matches!(refused.status.code(), Some(5 | 6)) && refused.stderr.contains("t.control"), "{refused:?}");
    let ended = on_call.run(&["status"]).await;
    assert!(ended.stdout.contains("workers that start take no event"), "{ended:?}");
    assert!(!late.is_ready());

    cluster.ask("start rabbitmq2 rabbitmq3").await;
    for (_, readiness) in &fleet.workers {
        ready(readiness).await;
    }
    until_done(&on_call, &on_call.user.amqp(), &["resume", "other"]).await;
    fleet.go_on().await;
    on_call.does(&["resume", "mail"]).await;
    fleet.resumed(&amqp, &declared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a cluster of three nodes and freezes one for 40 s; scripts/test --all runs it"]
async fn a_pause_holds_while_the_leader_of_the_stream_is_frozen() {
    let (mut cluster, declared, leader) = Cluster::start().await;
    let (on_call, amqp) = (OnCall::new(&declared), declared.amqp().await);
    let mut fleet = Fleet::new(declared.connect().await);
    // The replica of a node that was just started may refuse.
    until_done(&on_call, &on_call.user.amqp(), &["pause", "mail", "--reason", "R"]).await;
    on_each_node(&cluster, &declared, &mut fleet).await;
    fleet.go_on().await;

    cluster.ask(&format!("pause rabbitmq{leader}")).await;
    // RabbitMQ 3.10 answers no declare meanwhile, so the command waits.
    let pausing = Process::spawn(on_call.command(&on_call.user.amqp(), &["pause", "other", "--reason", "R"]));
    // The fault, and no condition: so long the node is frozen.
    tokio::time::sleep(FROZEN).await;
    assert_eq!(fleet.mail.count(), 0);
    cluster.ask(&format!("continue rabbitmq{leader}")).await;
    let paused = pausing.ended().await;
    assert!(matches!(paused.status.code(), Some(0 | 5 | 6)), "{paused:?}");
    until_done(&on_call, &on_call.user.amqp(), &["resume", "other"]).await;
    fleet.go_on().await;
    on_call.does(&["resume", "mail"]).await;
    fleet.resumed(&amqp, &declared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a cluster of three nodes and kills one; scripts/test --all runs it"]
async fn events_go_on_and_are_recorded_while_the_node_that_leads_the_stream_of_their_life_is_away() {
    let stream = "t.life-cycle";
    let (mut cluster, declared, leader) = Cluster::led("life-cycle: all\ntypes: { mail: {}, other: {} }", stream).await;
    // The connections of the test itself lead to the first node.
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    let mut fleet = Fleet::new(declared.connect().await);
    fleet.start(&hatchery);
    fleet.publish().await;
    fleet.mail.reach(1).await;

    cluster.ask(&format!("kill rabbitmq{leader}")).await;
    let events = (0..MANY).map(|n| NewEvent::new("other", format!("during {n}"))).collect();
    publish_all(&hatchery, events).await;
    fleet.other.reach(1 + MANY).await;
    cluster.ask(&format!("start rabbitmq{leader}")).await;
    let last = publish(&hatchery, NewEvent::new("other", "after")).await;
    let is_last = |record: &LifeCycleRecord| record.id.as_deref() == Some(&*last);
    let told = Records::open(&amqp, stream).await.reach(3, is_last).await;
    let mut told: Vec<_> = told.iter().map(|record| record.transition.as_str()).collect();
    // The publisher has a connection of its own, whose records may come later.
    told.sort_unstable();
    assert_eq!(told, ["done", "published", "started"]);
    for (worker, _) in fleet.workers {
        worker.stop().await;
    }
}
