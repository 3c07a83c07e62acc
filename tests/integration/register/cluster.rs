//! A Redis Cluster of real processes: hash slots and their nodes, moves of slots, and nodes that are lost.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use hatchery::{
    RegisterError, Tls,
    internals::{
        ports::Register,
        redis::RedisRegister,
        register::{Claim, ClaimAnswer, DedupSlot, Reserve, Reserved},
        trouble::Trouble,
    },
};
use rustix::process::{Pid, Signal, kill_process};

use super::bench::{
    self, EXCLUSIVE, SHARDS, VIRTUAL_HOST, event, register, register_over_tls, spec, stamp, token, topology, version,
};
use crate::support::{
    broker::eventually,
    certificates::Authority,
    deployments::{Cluster, Kind, shared},
    redis::{free_port, prefix},
};

/// Returns the key of a shard's counter.
pub(super) fn last(prefix: &str, shard: u16) -> String {
    format!("{prefix}:{{%2F:billing:{shard}}}:last")
}

fn reserve(reference: &str) -> Reserve {
    bench::reserve(&event(reference, "a"), &DedupSlot::Immediate)
}

/// Returns the reserve of an event without a reference. After one such call, all keys of that event exist.
fn reserve_alone() -> Reserve {
    bench::reserve(&event("", "a"), &DedupSlot::Event("a".to_owned()))
}

fn claim(reference: &str, version: i64) -> Claim {
    Claim {
        subject: event(reference, "a"),
        stamp: stamp(&DedupSlot::Immediate, version, 0),
        token: token(1),
        due: jiff::Timestamp::UNIX_EPOCH,
        alone: false,
        terms: EXCLUSIVE,
    }
}

/// Returns enough calls that each shard gets some.
fn batch() -> Vec<Reserve> {
    (0..60).map(|n| reserve(&n.to_string())).collect()
}

async fn trouble(register: &RedisRegister) -> Trouble {
    register.ping().await.unwrap_err().trouble()
}

#[tokio::test]
async fn a_batch_over_all_shards_reaches_all_masters() {
    let cluster = shared().await;
    let prefix = prefix();
    let register = register(&cluster.url(), &prefix, SHARDS);
    assert_eq!(register.reserve(&batch()).await.unwrap().len(), 60);
    let mut masters = BTreeSet::new();
    for shard in 0..SHARDS {
        let key = last(&prefix, shard);
        let master = cluster.master_of(&key).await;
        let given: i64 = cluster.nodes[master].ask(&["GET", &key]).await.unwrap();
        assert!(given > 0);
        masters.insert(master);
    }
    assert_eq!(masters.len(), 3, "the seven shards are not spread over all three masters");
    register.ping().await.unwrap();
}

#[tokio::test]
async fn any_node_of_the_url_leads_to_the_whole_cluster() {
    let cluster = shared().await;
    for node in &cluster.nodes {
        let register =
            register(&format!("redis-cluster://127.0.0.1:{},127.0.0.1:{}", free_port(), node.port), &prefix(), SHARDS);
        register.reserve(&batch()).await.unwrap();
    }
}

#[tokio::test]
async fn a_node_that_serves_no_slots_is_skipped() {
    let cluster = shared().await;
    let stranger = cluster.stranger();
    // The order of the host names decides which node is asked first.
    for (lost, other) in [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")] {
        let url = format!("redis-cluster://{lost}:{},{other}:{}", stranger.port, cluster.nodes[0].port);
        let register = register(&url, &prefix(), SHARDS);
        register.ping().await.unwrap();
        register.reserve(&batch()).await.unwrap();
    }
    let alone = register(&format!("redis-cluster://127.0.0.1:{}", stranger.port), &prefix(), SHARDS);
    let error = alone.ping().await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::FailingOver);
    assert!(error.to_string().contains("knows of no node that serves hash slots"), "{error}");
}

#[tokio::test]
async fn an_unassigned_hash_slot_is_looked_up_again() {
    let options = ["--cluster-require-full-coverage", "no"];
    let cluster = Cluster::start(Kind { options: &options, ..Kind::default() }).await;
    let prefix = prefix();
    let register = register(&cluster.url(), &prefix, 1);
    register.ping().await.unwrap();
    let had = &cluster.nodes[cluster.master_of(&last(&prefix, 0)).await];
    let slot: u16 = had.ask(&["CLUSTER", "KEYSLOT", &last(&prefix, 0)]).await.unwrap();
    let slot = slot.to_string();
    had.ask::<()>(&["CLUSTER", "DELSLOTS", &slot]).await.unwrap();
    eventually("no node serves the hash slot", async || {
        // A node that has already dropped the slot answers with an error. A node that hears of the drop late may take
        // the slot again.
        for node in &cluster.nodes {
            let _ = node.ask::<()>(&["CLUSTER", "DELSLOTS", &slot]).await;
        }
        let error = register.ping().await.err()?;
        assert_eq!(error.trouble(), Trouble::FailingOver, "{error}");
        error.to_string().contains(&format!("serves the hash slot {slot}")).then_some(())
    })
    .await;
    had.ask::<()>(&["CLUSTER", "ADDSLOTS", &slot]).await.unwrap();
    eventually("a node serves the hash slot again", async || register.ping().await.ok()).await;
}

#[tokio::test]
async fn scripts_are_loaded_again_on_each_node_that_has_lost_them() {
    let cluster = Cluster::start(Kind::default()).await;
    let register = register(&cluster.url(), &prefix(), SHARDS);
    register.reserve(&batch()).await.unwrap();
    for node in &cluster.nodes {
        node.ask::<()>(&["SCRIPT", "FLUSH"]).await.unwrap();
        register.reserve(&batch()).await.unwrap();
    }
}

/// The hash slot of a key, which moves from its master to the next one.
pub(super) struct Moving<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
    ids: Vec<String>,
}

impl<'a> Moving<'a> {
    pub(super) async fn slot_of(cluster: &'a Cluster, key: &str) -> Self {
        let slot: u16 = cluster.nodes[0].ask(&["CLUSTER", "KEYSLOT", key]).await.unwrap();
        let (mut from, mut ids) = (cluster.master_of(key).await, vec![]);
        for (n, node) in cluster.nodes.iter().enumerate() {
            ids.push(node.ask(&["CLUSTER", "MYID"]).await.unwrap());
            // The slot may have moved before.
            let keys: u64 = node.ask(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).await.unwrap();
            from = if keys > 0 { n } else { from };
        }
        Self { cluster, slot: slot.to_string(), from, to: (from + 1) % 3, ids }
    }

    async fn set(&self, node: usize, what: &[&str]) {
        let command = [&["CLUSTER", "SETSLOT", &self.slot], what].concat();
        self.cluster.nodes[node].ask::<()>(&command).await.unwrap();
    }

    pub(super) async fn importing(&self) {
        self.set(self.to, &["IMPORTING", &self.ids[self.from]]).await;
    }

    pub(super) async fn migrating(&self) {
        self.set(self.from, &["MIGRATING", &self.ids[self.to]]).await;
    }

    pub(super) async fn keys(&self) -> Vec<String> {
        self.cluster.nodes[self.from].ask(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"]).await.unwrap()
    }

    /// Migrates these keys to the target node.
    pub(super) async fn bring(&self, keys: &[String]) {
        let port = self.cluster.nodes[self.to].port.to_string();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let command = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        self.cluster.nodes[self.from].ask::<()>(&[&command, keys.as_slice()].concat()).await.unwrap();
    }

    pub(super) async fn finish(&self) {
        for node in [self.to, self.from, 3 - self.to - self.from] {
            self.set(node, &["NODE", &self.ids[self.to]]).await;
        }
    }

    pub(super) async fn call_off(&self) {
        for node in [self.from, self.to] {
            self.set(node, &["STABLE"]).await;
        }
    }
}

#[tokio::test]
async fn calls_wait_while_their_hash_slot_moves() {
    let mut cluster = Cluster::start(Kind::default()).await;
    let prefix = prefix();
    let counter = last(&prefix, 0);
    let register = register(&cluster.url(), &prefix, 1);
    let hasty = register.clone().with_limit(Duration::from_secs(1));
    let mut versions = vec![version(&register, reserve("1")).await.unwrap()];
    versions.push(version(&register, reserve_alone()).await.unwrap());

    let moving = Moving::slot_of(&cluster, &counter).await;
    moving.importing().await;
    moving.migrating().await;
    // All keys are still on the source node, then on both nodes, then on the target. A script may touch keys that its
    // call does not name, so no node serves it before the move has ended.
    let keys = moving.keys().await;
    assert!(keys.len() == 3 && keys.contains(&counter), "{keys:?}");
    let (some, rest): (Vec<String>, Vec<String>) = keys.into_iter().partition(|key| *key == counter);
    for part in [some, rest] {
        assert_eq!(version(&hasty, reserve_alone()).await.unwrap_err().trouble(), Trouble::FailingOver);
        moving.bring(&part).await;
    }
    assert_eq!(version(&hasty, reserve("1")).await.unwrap_err().trouble(), Trouble::FailingOver);
    // A call with a long time limit is repeated until it is served.
    let (during, ()) = tokio::join!(version(&register, reserve("1")), moving.finish());
    versions.push(during.unwrap());
    // An error of the target node is reported as it is.
    let to = &cluster.nodes[moving.to];
    to.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let error = version(&register, reserve_alone()).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::OutOfMemory, "{error}");
    to.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    versions.push(version(&register, reserve("1")).await.unwrap());
    assert!(versions.is_sorted(), "{versions:?}");
    let given: i64 = to.ask(&["GET", &counter]).await.unwrap();
    assert_eq!(Some(&given), versions.last());
    let from = moving.from;
    cluster.nodes[from].kill();
    assert!(register.reserve(&[reserve("1")]).await.is_ok(), "the call still needs the node that the slot has left");
}

#[tokio::test]
async fn a_call_that_two_nodes_redirect_to_each_other_waits_until_they_agree() {
    let cluster = Cluster::start(Kind::default()).await;
    let prefix = prefix();
    let register = register(&cluster.url(), &prefix, 1);
    let moving = Moving::slot_of(&cluster, &last(&prefix, 0)).await;
    // The source redirects to the target (ASK), which is not importing and redirects back (MOVED).
    moving.migrating().await;
    let hasty = register.clone().with_limit(Duration::from_secs(1));
    let error = hasty.reserve(&[reserve("1")]).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::FailingOver, "{error}");
    let call = [reserve("1")];
    let (during, ()) = tokio::join!(register.reserve(&call), moving.call_off());
    during.unwrap();
}

#[tokio::test]
#[ignore = "waits for calls to time out during the move of each of seven shards; scripts/test --all runs it"]
async fn a_ping_fails_as_long_as_claims_fail() {
    let cluster = Cluster::start(Kind::default()).await;
    let prefix = prefix();
    let register = register(&cluster.url(), &prefix, SHARDS);
    register.reserve(&batch()).await.unwrap();
    let hasty = register.clone().with_limit(Duration::from_secs(3));
    let claims: Vec<Claim> = (0..60).map(|n| claim(&n.to_string(), 1)).collect();
    for shard in 0..SHARDS {
        let moving = Moving::slot_of(&cluster, &last(&prefix, shard)).await;
        moving.importing().await;
        moving.migrating().await;
        // The counter is on the source node, and new keys belong to the target (TRYAGAIN).
        let (claimed, pinged) = tokio::join!(hasty.claim(&claims), hasty.ping());
        for error in [claimed.unwrap_err(), pinged.unwrap_err()] {
            assert_eq!(error.trouble(), Trouble::FailingOver, "{shard}: {error}");
        }
        moving.call_off().await;
        register.ping().await.unwrap();
    }
}

#[tokio::test]
async fn a_replica_takes_over_from_a_master_that_is_killed() {
    let mut cluster = Cluster::start(Kind { replicas: 3, timeout: Some(1_000), ..Kind::default() }).await;
    let prefix = prefix();
    let register = register(&cluster.url(), &prefix, SHARDS);
    let hasty = register.clone().with_limit(Duration::from_secs(1));
    let Reserved::Version(version) = register.reserve(&[reserve("1")]).await.unwrap()[0] else {
        panic!("the reserve gave no version")
    };
    for n in 0..3 {
        eventually("the replica has all writes", async || {
            let replicas: i64 = cluster.nodes[n].ask(&["WAIT", "1", "100"]).await.ok()?;
            (replicas == 1).then_some(())
        })
        .await;
    }
    cluster.nodes[0].kill();
    let error = hasty.reserve(&batch()).await.unwrap_err();
    assert!(matches!(error.trouble(), Trouble::FailingOver | Trouble::Slow), "{error}");
    // The replica has to load the scripts, too.
    eventually("a replica serves the killed master's slots", async || register.reserve(&batch()).await.ok()).await;
    assert!(cluster.nodes[3].is_master().await);
    register.ping().await.unwrap();
    assert!(matches!(register.claim(&[claim("1", version)]).await.unwrap()[0], ClaimAnswer::Run { .. }));

    // The killed node comes back as a replica, and redirects to the new master.
    cluster.nodes[0].restart();
    eventually("the killed node becomes a replica", async || (!cluster.nodes[0].is_master().await).then_some(())).await;
    register.reserve(&batch()).await.unwrap();
}

#[tokio::test]
async fn a_master_without_a_replica_is_waited_for() {
    let options = ["--cluster-require-full-coverage", "no"];
    let mut cluster = Cluster::start(Kind { timeout: Some(1_000), options: &options, ..Kind::default() }).await;
    let prefix = prefix();
    let register = register(&cluster.url(), &prefix, SHARDS);
    let hasty = register.clone().with_limit(Duration::from_secs(1));
    register.ping().await.unwrap();
    let lost = cluster.master_of(&last(&prefix, 3)).await;
    cluster.nodes[lost].kill();
    // As long as no node has said who serves the slot, only the refused connection is known.
    eventually("the register reports a fail-over", async || {
        (trouble(&hasty).await == Trouble::FailingOver).then_some(())
    })
    .await;
    // The shards on the other masters go on.
    let mut served = 0;
    for call in batch() {
        served += usize::from(hasty.reserve(&[call]).await.is_ok());
    }
    assert!((1..60).contains(&served), "{served}");
    cluster.nodes[lost].restart();
    eventually("the restarted master answers", async || register.ping().await.ok()).await;
    register.reserve(&batch()).await.unwrap();
}

#[tokio::test]
async fn a_master_that_hangs_delays_no_call_to_another() {
    let cluster = Cluster::start(Kind { timeout: Some(60_000), ..Kind::default() }).await;
    let prefix = prefix();
    let register = register(&cluster.url(), &prefix, SHARDS).with_limit(Duration::from_secs(5));
    register.reserve(&batch()).await.unwrap();
    let hung = &cluster.nodes[cluster.master_of(&last(&prefix, 3)).await];
    let about: String = hung.ask(&["INFO", "server"]).await.unwrap();
    let pid = about.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().trim().parse().unwrap();
    // Its connections are gone, so each call to it connects anew, and waits.
    hung.ask::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    let mut calls = batch();
    for _ in 0..3 {
        let answers = join_all(calls.iter().map(|call| register.reserve(std::slice::from_ref(call)))).await;
        let others: Vec<Reserve> =
            calls.iter().zip(&answers).filter(|(_, answer)| answer.is_ok()).map(|(call, _)| call.clone()).collect();
        assert!((20..60).contains(&others.len()), "{} of {} calls were served", others.len(), calls.len());
        if calls.len() < 60 {
            assert_eq!(others.len(), calls.len(), "{answers:?}");
        }
        calls = others;
    }
}

#[tokio::test]
async fn a_cluster_without_any_node_is_away() {
    let url = format!("redis-cluster://:secret@127.0.0.1:{},127.0.0.1:{}", free_port(), free_port());
    let register = RedisRegister::new(&url, VIRTUAL_HOST, &topology(), &spec("x", 1)).unwrap();
    let error = register.ping().await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Away);
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn a_wrong_url_scheme_is_reported() {
    let cluster = shared().await;
    // A URL for a single server names a node of a cluster.
    let prefix = prefix();
    let other = (cluster.master_of(&last(&prefix, 0)).await + 1) % 3;
    let register_ = register(&format!("redis://127.0.0.1:{}", cluster.nodes[other].port), &prefix, 1);
    let error = register_.ping().await.unwrap_err();
    assert!(matches!(error, RegisterError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
    // A URL for a cluster names a single server.
    let plain = crate::support::redis::url().replace("redis://", "redis-cluster://");
    let error = register(&plain, &prefix, 1).ping().await.unwrap_err();
    assert!(matches!(error, RegisterError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("cluster support disabled"), "{error}");
}

#[tokio::test]
async fn a_cluster_is_reached_over_tls() {
    let authority = Authority::new();
    let options = authority.redis_options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let cluster = Cluster::start(Kind { tls: Some(&options), ..Kind::default() }).await;
    let tls = Tls::default().trust_file(authority.file()).unwrap();
    let open = |tls: &Tls| register_over_tls(&cluster.url(), tls, SHARDS);
    open(&tls).reserve(&batch()).await.unwrap();
    let stranger = Tls::default().trust_file(Authority::called("stranger").file()).unwrap();
    let error = open(&stranger).ping().await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Away);
    assert!(error.to_string().contains("no authority that is trusted here"), "{error}");
}

#[tokio::test]
async fn nodes_whose_announced_address_is_not_in_their_certificate_are_reported() {
    let authority = Authority::new();
    let options = authority.redis_options_for("127.0.0.2");
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let cluster = Cluster::start(Kind { tls: Some(&options), ..Kind::default() }).await;
    let tls = Tls::default().trust_file(authority.file()).unwrap();
    // The node that the URL names announces the other nodes by their IP addresses.
    let url = cluster.url().replace("127.0.0.1", "127.0.0.2");
    let error = register_over_tls(&url, &tls, SHARDS).ping().await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Away, "{error}");
    assert!(error.to_string().contains("not for the host name 127.0.0.1 but for"), "{error}");
}
