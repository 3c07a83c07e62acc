//! A Redis Cluster of real processes: who has which slot, and what happens when that changes.

use std::{collections::BTreeSet, time::Duration};

use hatchery::{
    RegisterError, Tls,
    internals::{
        ports::Register,
        redis::RedisRegister,
        register::{Claim, Claimed, Reserve, Reserved, Slot},
        trouble::Trouble,
    },
};

use super::bench::{EXCLUSIVE, SHARDS, VIRTUAL_HOST, event, register, spec, stamp, token, topology};
use crate::support::{
    broker::eventually,
    certificates::Authority,
    deployments::{Cluster, Kind, shared},
    redis::{free_port, prefix},
};

/// Of a shard's keys.
pub(super) fn last(prefix: &str, shard: u16) -> String {
    format!("{prefix}:{{%2F:billing:{shard}}}:last")
}

fn reserve(reference: &str) -> Reserve {
    Reserve {
        subject: event(reference, "a"),
        slot: Slot::Immediate,
        due: jiff::Timestamp::UNIX_EPOCH,
        asked_by: None,
        terms: EXCLUSIVE,
    }
}

/// Of an event without a reference, all of whose keys are there once it was reserved.
fn reserve_alone() -> Reserve {
    Reserve { subject: event("", "a"), slot: Slot::Event("a".to_owned()), ..reserve("1") }
}

async fn version(register: &RedisRegister, call: Reserve) -> Result<i64, RegisterError> {
    match register.reserve(&[call]).await?[0] {
        Reserved::Version(version) => Ok(version),
        Reserved::Stale => panic!("nobody asked"),
    }
}

fn claim(reference: &str, version: i64) -> Claim {
    Claim {
        subject: event(reference, "a"),
        stamp: stamp(&Slot::Immediate, version, 0),
        token: token(1),
        due: jiff::Timestamp::UNIX_EPOCH,
        alone: false,
        terms: EXCLUSIVE,
    }
}

/// So many that each shard has some.
fn batch() -> Vec<Reserve> {
    (0..60).map(|n| reserve(&n.to_string())).collect()
}

async fn trouble(register: &RedisRegister) -> Trouble {
    register.ping().await.unwrap_err().trouble()
}

#[tokio::test]
async fn a_batch_over_all_shards_goes_to_all_masters() {
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
    assert_eq!(masters.len(), 3, "seven shards are on all of the three");
    register.ping().await.unwrap();
}

#[tokio::test]
async fn one_node_is_enough_to_find_the_others() {
    let cluster = shared().await;
    for node in &cluster.nodes {
        let register =
            register(&format!("redis-cluster://127.0.0.1:{},127.0.0.1:{}", free_port(), node.port), &prefix(), SHARDS);
        register.reserve(&batch()).await.unwrap();
    }
}

#[tokio::test]
async fn a_node_that_serves_nothing_is_no_hindrance() {
    let cluster = shared().await;
    let stranger = cluster.stranger();
    // Which of them is asked first goes by the names.
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
async fn a_slot_that_nobody_has_is_looked_for_again() {
    let options = ["--cluster-require-full-coverage", "no"];
    let cluster = Cluster::start(Kind { options: &options, ..Kind::default() }).await;
    let prefix = prefix();
    let register = register(&cluster.url(), &prefix, 1);
    register.ping().await.unwrap();
    let had = &cluster.nodes[cluster.master_of(&last(&prefix, 0)).await];
    let slot: u16 = had.ask(&["CLUSTER", "KEYSLOT", &last(&prefix, 0)]).await.unwrap();
    let slot = slot.to_string();
    had.ask::<()>(&["CLUSTER", "DELSLOTS", &slot]).await.unwrap();
    eventually("nobody has it", async || {
        // One that has it no more says so. And one that has heard of it late has it again.
        for node in &cluster.nodes {
            let _ = node.ask::<()>(&["CLUSTER", "DELSLOTS", &slot]).await;
        }
        let error = register.ping().await.err()?;
        assert_eq!(error.trouble(), Trouble::FailingOver, "{error}");
        error.to_string().contains(&format!("serves the hash slot {slot}")).then_some(())
    })
    .await;
    had.ask::<()>(&["CLUSTER", "ADDSLOTS", &slot]).await.unwrap();
    eventually("somebody has it again", async || register.ping().await.ok()).await;
}

#[tokio::test]
async fn scripts_are_loaded_again_on_each_node_that_lost_them() {
    let cluster = Cluster::start(Kind::default()).await;
    let register = register(&cluster.url(), &prefix(), SHARDS);
    register.reserve(&batch()).await.unwrap();
    for node in &cluster.nodes {
        node.ask::<()>(&["SCRIPT", "FLUSH"]).await.unwrap();
        register.reserve(&batch()).await.unwrap();
    }
}

/// The slot of a key, on its way from its master to the next one.
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
            // It may have moved before.
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

    /// Brings some of the keys over.
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
async fn a_slot_that_moves_is_followed_with_its_keys() {
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
    // All that this one needs is here still, and then over there, which is not known to everybody yet (ASK).
    versions.push(version(&register, reserve_alone()).await.unwrap());
    let keys = moving.keys().await;
    assert!(keys.len() == 3 && keys.contains(&counter), "{keys:?}");
    let (some, rest): (Vec<String>, Vec<String>) =
        keys.into_iter().partition(|key| *key == counter || key.ends_with(":i:a"));
    moving.bring(&some).await;
    versions.push(version(&register, reserve_alone()).await.unwrap());
    // What the other one says is told as it says it.
    let to = &cluster.nodes[moving.to];
    to.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let error = version(&register, reserve_alone()).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::OutOfMemory, "{error}");
    to.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    // Of this one's keys some are here and some there, so neither node serves it (TRYAGAIN).
    assert_eq!(version(&hasty, reserve("1")).await.unwrap_err().trouble(), Trouble::FailingOver);
    let settle = async {
        moving.bring(&rest).await;
        moving.finish().await;
    };
    // A patient call is tried until it may be.
    let (during, ()) = tokio::join!(version(&register, reserve("1")), settle);
    versions.push(during.unwrap());
    // And then it is known to be over there (MOVED).
    versions.push(version(&register, reserve("1")).await.unwrap());
    assert!(versions.is_sorted(), "{versions:?}");
    let given: i64 = to.ask(&["GET", &counter]).await.unwrap();
    assert_eq!(Some(&given), versions.last());
    let from = moving.from;
    cluster.nodes[from].kill();
    assert!(register.reserve(&[reserve("1")]).await.is_ok(), "it has nothing to do with that one any more");
}

#[tokio::test]
async fn who_is_sent_to_and_fro_waits_until_the_nodes_agree() {
    let cluster = Cluster::start(Kind::default()).await;
    let prefix = prefix();
    let register = register(&cluster.url(), &prefix, 1);
    let moving = Moving::slot_of(&cluster, &last(&prefix, 0)).await;
    // The one sends us to the other (ASK), which has called it off and sends us back (MOVED).
    moving.migrating().await;
    let hasty = register.clone().with_limit(Duration::from_secs(1));
    let error = hasty.reserve(&[reserve("1")]).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::FailingOver, "{error}");
    let call = [reserve("1")];
    let (during, ()) = tokio::join!(register.reserve(&call), moving.call_off());
    during.unwrap();
}

#[tokio::test]
#[ignore = "takes long; scripts/test --all runs it"]
async fn a_ping_fails_as_long_as_claims_do() {
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
        // The counter is there, and what is new is not (TRYAGAIN).
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
    let register = register(&cluster.url(), &prefix, SHARDS).with_limit(Duration::from_secs(1));
    let Reserved::Version(version) = register.reserve(&[reserve("1")]).await.unwrap()[0] else { panic!("a version") };
    for n in 0..3 {
        eventually("all is at the replica", async || {
            let replicas: i64 = cluster.nodes[n].ask(&["WAIT", "1", "100"]).await.ok()?;
            (replicas == 1).then_some(())
        })
        .await;
    }
    cluster.nodes[0].kill();
    let error = register.reserve(&batch()).await.unwrap_err();
    assert!(matches!(error.trouble(), Trouble::FailingOver | Trouble::Slow), "{error}");
    // The replica has no scripts either.
    eventually("it is back", async || register.reserve(&batch()).await.ok()).await;
    assert!(cluster.nodes[3].is_master().await);
    register.ping().await.unwrap();
    assert!(matches!(register.claim(&[claim("1", version)]).await.unwrap()[0], Claimed::Run { .. }));

    // As a replica it says where the master is.
    cluster.nodes[0].restart();
    eventually("it follows", async || (!cluster.nodes[0].is_master().await).then_some(())).await;
    register.reserve(&batch()).await.unwrap();
}

#[tokio::test]
async fn a_master_without_a_replica_is_waited_for() {
    let options = ["--cluster-require-full-coverage", "no"];
    let mut cluster = Cluster::start(Kind { timeout: Some(1_000), options: &options, ..Kind::default() }).await;
    let prefix = prefix();
    let register = register(&cluster.url(), &prefix, SHARDS).with_limit(Duration::from_secs(1));
    register.ping().await.unwrap();
    let lost = cluster.master_of(&last(&prefix, 3)).await;
    cluster.nodes[lost].kill();
    // A node that is slow to say who serves the slot leaves the refused connection as all that is known.
    eventually("it fails over, whichever shard it is", async || {
        (trouble(&register).await == Trouble::FailingOver).then_some(())
    })
    .await;
    // The other shards go on.
    let mut served = 0;
    for call in batch() {
        served += usize::from(register.reserve(&[call]).await.is_ok());
    }
    assert!((1..60).contains(&served), "{served}");
    cluster.nodes[lost].restart();
    eventually("it is back", async || register.ping().await.ok()).await;
    register.reserve(&batch()).await.unwrap();
}

#[tokio::test]
async fn nobody_at_all_is_away() {
    let url = format!("redis-cluster://:secret@127.0.0.1:{},127.0.0.1:{}", free_port(), free_port());
    let error = RedisRegister::connect(&url, VIRTUAL_HOST, &topology(), &spec("x", 1)).await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Away);
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn a_wrong_scheme_is_told() {
    let cluster = shared().await;
    // A node of a cluster as if it were all of it.
    let prefix = prefix();
    let other = (cluster.master_of(&last(&prefix, 0)).await + 1) % 3;
    let register_ = register(&format!("redis://127.0.0.1:{}", cluster.nodes[other].port), &prefix, 1);
    let error = register_.ping().await.unwrap_err();
    assert!(matches!(error, RegisterError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
    // And the other way round.
    let plain = crate::support::redis::url().replace("redis://", "redis-cluster://");
    let error = register(&plain, &prefix, 1).ping().await.unwrap_err();
    assert!(matches!(error, RegisterError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("cluster support disabled"), "{error}");
}

#[tokio::test]
async fn its_nodes_may_speak_tls() {
    let authority = Authority::new();
    let options = authority.redis_options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let cluster = Cluster::start(Kind { tls: Some(&options), ..Kind::default() }).await;
    let tls = Tls::default().trust_file(authority.file()).unwrap();
    let open = |tls: &Tls| {
        let register =
            RedisRegister::new_with_tls(&cluster.url(), tls, VIRTUAL_HOST, &topology(), &spec(&prefix(), SHARDS))
                .unwrap();
        register.with_limit(Duration::from_secs(10))
    };
    open(&tls).reserve(&batch()).await.unwrap();
    let stranger = Tls::default().trust_file(Authority::called("stranger").file()).unwrap();
    let error = open(&stranger).ping().await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Away);
    assert!(error.to_string().contains("no authority that is trusted here"), "{error}");
}

#[tokio::test]
async fn nodes_that_announce_what_their_certificates_are_not_for_are_told() {
    let authority = Authority::new();
    let options = authority.redis_options_for("127.0.0.2");
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let cluster = Cluster::start(Kind { tls: Some(&options), ..Kind::default() }).await;
    let tls = Tls::default().trust_file(authority.file()).unwrap();
    // The node that the URL names says where the others are, by their addresses.
    let url = cluster.url().replace("127.0.0.1", "127.0.0.2");
    let register =
        RedisRegister::new_with_tls(&url, &tls, VIRTUAL_HOST, &topology(), &spec(&prefix(), SHARDS)).unwrap();
    let error = register.with_limit(Duration::from_secs(10)).ping().await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Away, "{error}");
    assert!(error.to_string().contains("not for the host name 127.0.0.1 but for"), "{error}");
}
