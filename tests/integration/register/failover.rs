//! A Redis master is killed while publishers and a worker are under load. All confirmed events are handled.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use hatchery::{CancellationToken, NewEvent, Outcome, Publisher, Run};
use tokio::task::JoinHandle;

use crate::support::{
    broker::{VirtualHost, eventually},
    declared::Declared,
    deployments::{Cluster, Kind, Watched},
    workers::{Runs, Working},
};

/// Every event of `mail` runs; of `import` only the newest of each reference.
const TYPES: &str = "types: { mail: { concurrency: 5 }, import: { coalesce: latest, concurrency: 5 } }";

/// The number of references.
const REFERENCES: usize = 12;

/// Publishes until it is stopped, one event after the other, so that the newest of each reference is known.
struct Load {
    stop: CancellationToken,
    task: JoinHandle<Confirmed>,
    confirmed: Arc<Mutex<usize>>,
}

#[derive(Default)]
struct Confirmed {
    mails: BTreeSet<String>,
    newest: BTreeMap<String, String>,
    unversioned: usize,
}

impl Load {
    fn start(publisher: Publisher) -> Self {
        let stop = CancellationToken::new();
        let confirmed = Arc::new(Mutex::new(0));
        let task = tokio::spawn(publish(publisher, stop.clone(), Arc::clone(&confirmed)));
        Self { stop, task, confirmed }
    }

    async fn more(&self, count: usize) {
        let goal = *self.confirmed.lock().unwrap() + count;
        eventually("more events are published", async || (*self.confirmed.lock().unwrap() >= goal).then_some(())).await;
    }

    async fn stop(self) -> Confirmed {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

async fn publish(publisher: Publisher, stop: CancellationToken, count: Arc<Mutex<usize>>) -> Confirmed {
    let mut confirmed = Confirmed::default();
    for n in 0.. {
        if stop.is_cancelled() {
            break;
        }
        let (payload, reference) = (n.to_string(), (n % REFERENCES).to_string());
        let mail = publisher.publish(NewEvent::new("mail", payload.clone()).reference(reference.clone()));
        let import = publisher.publish(NewEvent::new("import", payload.clone()).reference(reference.clone()));
        let (mail, import) = tokio::join!(mail, import);
        mail.unwrap();
        confirmed.unversioned += usize::from(import.unwrap().unversioned);
        confirmed.mails.insert(payload.clone());
        confirmed.newest.insert(reference, payload);
        *count.lock().unwrap() += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    confirmed
}

/// Publishes and works while `fault` strikes, and asserts that all confirmed events are handled. Only `fault` restarts
/// anything.
async fn survives(declared: &Declared, fault: impl AsyncFnOnce(&Load)) {
    let hatchery = declared.connect().await;
    hatchery.require_register().await.unwrap();
    let runs = Runs::default();
    let mut worker = hatchery.worker();
    for event_type in ["mail", "import"] {
        let noted = runs.clone();
        worker = worker.handle(event_type, move |run: Run| {
            noted.note(&run);
            std::future::ready(Ok::<_, String>(Outcome::Done))
        });
    }
    let worker = Working::run(worker, runs);
    let load = Load::start(hatchery.publisher());
    load.more(100).await;
    fault(&load).await;
    eventually("a publish gets a version again", async || {
        let probe = NewEvent::new("import", "probe").reference("probe");
        (!hatchery.publisher().publish(probe).await.unwrap().unversioned).then_some(())
    })
    .await;
    load.more(100).await;
    let confirmed = load.stop().await;
    let of = |event_type: &str| -> BTreeSet<(String, String)> {
        let of_type = worker.runs.seen().into_iter().filter(|seen| seen.event.event_type.as_str() == event_type);
        let key = |seen: crate::support::workers::Seen| {
            let reference = seen.event.reference.map(|reference| reference.as_str().to_owned()).unwrap_or_default();
            (reference, String::from_utf8_lossy(&seen.event.payload).into_owned())
        };
        of_type.map(key).collect()
    };
    eventually("all confirmed events are handled", async || {
        let (mails, imports) = (of("mail"), of("import"));
        let all = confirmed.mails.iter().all(|payload| mails.iter().any(|(_, mail)| mail == payload));
        let newest =
            confirmed.newest.iter().all(|(reference, payload)| imports.contains(&(reference.clone(), payload.clone())));
        (all && newest).then_some(())
    })
    .await;
    // Replaced events and the probe may be delivered after the last event that runs.
    eventually("all queues are empty", async || {
        declared.amqp().await.filled(&declared.queues()).await.is_empty().then_some(())
    })
    .await;
    assert!(worker.is_running(), "the worker has ended");
    let summary = worker.stop().await;
    assert_eq!((summary.retried, summary.dead_lettered), (0, 0));
    crate::support::say(&format!(
        "failover: {} mails and the newest of {} references handled, {} published without a version, {summary:?}",
        confirmed.mails.len(),
        confirmed.newest.len(),
        confirmed.unversioned
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts Redis with sentinels and waits for a fail-over; scripts/test --all runs it"]
async fn a_killed_master_behind_sentinels_loses_no_event() {
    let watched = tokio::sync::Mutex::new(Watched::start().await);
    let declared = Declared::with_redis(TYPES, &watched.lock().await.url()).await;
    survives(&declared, async |load| {
        let mut watched = watched.lock().await;
        watched.servers[0].kill();
        load.more(20).await;
        watched.wait_for_master(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a Redis Cluster and waits for a fail-over; scripts/test --all runs it"]
async fn a_killed_cluster_master_with_a_replica_loses_no_event() {
    let cluster = Cluster::start(Kind { replicas: 1, timeout: Some(1_000), ..Kind::default() }).await;
    let cluster = tokio::sync::Mutex::new(cluster);
    let declared = Declared::with_shards(VirtualHost::new(), TYPES, &cluster.lock().await.url(), 7).await;
    survives(&declared, async |load| {
        let mut cluster = cluster.lock().await;
        cluster.nodes[0].kill();
        load.more(20).await;
        eventually("the replica takes over", async || cluster.nodes[3].is_master().await.then_some(())).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a Redis Cluster, kills a master and restarts it; scripts/test --all runs it"]
async fn a_killed_cluster_master_that_comes_back_loses_no_event() {
    let options = ["--cluster-require-full-coverage", "no"];
    let cluster = Cluster::start(Kind { timeout: Some(1_000), options: &options, ..Kind::default() }).await;
    let cluster = tokio::sync::Mutex::new(cluster);
    let declared = Declared::with_shards(VirtualHost::new(), TYPES, &cluster.lock().await.url(), 7).await;
    survives(&declared, async |load| {
        let mut cluster = cluster.lock().await;
        cluster.nodes[1].kill();
        load.more(50).await;
        cluster.nodes[1].restart();
        cluster.wait_until_served().await;
    })
    .await;
}
