//! A register is in use by one topology on one broker. Programs that find another topology or broker there refuse to
//! use it.

use hatchery::{
    ConnectError, NewEvent, Outcome, RegisterError, WorkError,
    internals::{
        ports::{Index as _, Register as _},
        redis::RedisRegister,
        register::{Cancel, Claim, DedupSlot, Owner, Reserve, Reserved, index::Find},
    },
};
use rstest::rstest;

use super::bench::{self, EXCLUSIVE, HORIZON, SHARDS, event, given, register, stamp, token};
use crate::support::{
    broker::{Another, VirtualHost},
    declared::Declared,
    logs::Logs,
    redis::{self, Server, free_port, prefix},
    workers::Working,
};

fn on(register: &RedisRegister, cluster_name: &str) -> RedisRegister {
    let name = Some(cluster_name.to_owned()).filter(|name| !name.is_empty());
    register.clone().on_broker(move || name.clone())
}

fn in_use(told: Result<impl std::fmt::Debug, RegisterError>) -> (String, String) {
    match told {
        Err(RegisterError::InUse { by, here, .. }) => (by, here),
        other => panic!("{other:?}"),
    }
}

pub(super) fn reserve() -> [Reserve; 1] {
    [bench::reserve(&event("1", "a"), &DedupSlot::Immediate)]
}

fn claim() -> [Claim; 1] {
    let stamp = stamp(&DedupSlot::Event("a".to_owned()), 0, 0);
    [Claim {
        subject: event("1", "a"),
        stamp,
        token: token(1),
        alone: false,
        due: jiff::Timestamp::UNIX_EPOCH,
        terms: EXCLUSIVE,
    }]
}

pub(super) fn owner(cluster_name: &str) -> Owner {
    Owner { topology: Some("billing".to_owned()), cluster_name: Some(cluster_name.to_owned()) }
}

/// Returns the names of the brokers that own a shard of the register.
async fn brokers(register: &RedisRegister) -> Vec<String> {
    register.owners().await.unwrap().into_iter().filter_map(|owner| owner.cluster_name).collect()
}

#[rstest]
#[case::another_cluster("other")]
#[case::a_node("rabbit@2")]
#[tokio::test]
async fn a_register_of_a_named_broker_refuses_every_other_broker(#[case] other: &str) {
    let register = register(redis::url(), &prefix(), SHARDS);
    register.set_owner(&owner("one")).await.unwrap();
    let names = ("one".to_owned(), other.to_owned());
    let (one, other) = (on(&register, "one"), on(&register, other));
    assert_eq!(in_use(other.ping().await), names);
    assert_eq!(in_use(other.reserve(&reserve()).await), names);
    assert_eq!(in_use(other.claim(&claim()).await), names);
    assert_eq!(in_use(other.find(&Find::first(event("", "").event_type, 1)).await), names);
    assert!(matches!(one.reserve(&reserve()).await.unwrap()[..], [Reserved::Version(_)]));
    // Other products than RabbitMQ may have no cluster name, and neither does a broker that is away.
    on(&register, "").ping().await.unwrap();
    assert_eq!(brokers(&register).await, ["one"]);
}

/// The nodes of an unnamed cluster cannot be told from separate brokers, and the cluster may get a name later.
#[tokio::test]
async fn a_register_of_a_node_answers_every_broker_and_keeps_its_owner() {
    let register = register(redis::url(), &prefix(), 1);
    register.set_owner(&owner("rabbit@1")).await.unwrap();
    for name in ["", "rabbit@1", "rabbit@2", "prod"] {
        on(&register, name).ping().await.unwrap();
        on(&register, name).claim(&claim()).await.unwrap();
    }
    assert_eq!(brokers(&register).await, ["rabbit@1"]);
}

/// A worker claims events that its broker delivered, so that broker has the topology. Every other call may come from a
/// broker that does not have it.
#[tokio::test]
async fn the_first_claim_becomes_the_owner_of_a_register_without_one() {
    let redis = Server::start(free_port(), &[]);
    let register = register(&redis.url, "x", SHARDS);
    let (one, other) = (on(&register, "one"), on(&register, "other"));
    for _ in 0..2 {
        other.ping().await.unwrap();
        other.reserve(&reserve()).await.unwrap();
        let cancel = Cancel { subject: event("", "a"), slot: None, due: None, horizon: HORIZON };
        other.cancel(&[cancel]).await.unwrap();
        assert_eq!(brokers(&register).await, [""; 0]);
        one.claim(&claim()).await.unwrap();
        assert_eq!(brokers(&register).await, ["one"]);
        assert_eq!(in_use(other.claim(&claim()).await).0, "one");
        redis.say(&["FLUSHALL"]).await;
    }
}

#[tokio::test]
async fn a_register_that_has_moved_answers_only_the_new_broker_and_keeps_its_versions() {
    let register = register(redis::url(), &prefix(), SHARDS);
    register.set_owner(&owner("one")).await.unwrap();
    let (one, other) = (on(&register, "one"), on(&register, "other"));
    let before = given(one.reserve(&reserve()).await.unwrap()[0]);
    other.set_owner(&owner("other")).await.unwrap();
    assert_eq!(other.owners().await.unwrap(), [owner("other")].into());
    let after = given(other.reserve(&reserve()).await.unwrap()[0]);
    assert!(after > before);
    assert_eq!(in_use(one.ping().await), ("other".to_owned(), "one".to_owned()));
}

const TYPES: &str = "types: { import: { coalesce: latest } }";

#[tokio::test]
async fn a_worker_refuses_a_register_of_another_broker_and_a_publisher_goes_on_without_versions() {
    let declared = Declared::new(TYPES).await;
    let topology = &declared.topology;
    let another = RedisRegister::new(redis::url(), &declared.host.name, &topology.name, &topology.redis).unwrap();
    another.set_owner(&owner("another")).await.unwrap();
    let logs = Logs::capture();
    let hatchery = declared.connect().await;
    assert!(matches!(hatchery.require_register().await, Err(RegisterError::InUse { .. })));
    let published = hatchery.publisher().publish(NewEvent::new("import", "1").reference("1")).await.unwrap();
    assert!(published.unversioned);
    assert_eq!(logs.with(&["in use by the broker `another`", "without a version"]).len(), 1, "{:#?}", logs.with(&[]));
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    let runs = worker.runs.clone();
    let refused = worker.ended().await.unwrap_err();
    let WorkError::Register(error @ RegisterError::InUse { .. }) = &refused else { panic!("{refused:?}") };
    let text = error.to_string();
    for part in ["`another`", "`shared`", "topology apply --moved-from another", "prefix"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(runs.seen().is_empty());
    // The event is back in its queue.
    declared.amqp().await.expect_untouched(&declared.processing("import"), 1).await;
    let error: ConnectError = error.clone().into();
    assert!(error.to_string().contains("`shared`"));
}

#[rstest]
#[case::another_node("rabbit@two", "rabbitmqctl set_cluster_name")]
#[case::a_cluster_with_a_name("two", "run `topology apply`")]
#[tokio::test]
#[ignore = "starts a second broker; scripts/test --all runs it"]
async fn a_register_that_may_be_another_brokers_is_warned_of_once(#[case] name: &str, #[case] advice: &str) {
    let host = VirtualHost::new();
    let another = Another::like(&host);
    another.set_name(name);
    let declared = Declared::on(another.into_host(&host), TYPES, redis::url()).await;
    let topology = &declared.topology;
    let register = RedisRegister::new(redis::url(), &declared.host.name, &topology.name, &topology.redis).unwrap();
    register.set_owner(&owner("rabbit@one")).await.unwrap();
    let logs = Logs::capture();
    let hatchery = declared.connect().await;
    hatchery.publisher().publish(NewEvent::new("import", "1").reference("1")).await.unwrap();
    let warned = logs.with(&["in use by the broker `rabbit@one`"]);
    let [warning] = &warned[..] else { panic!("{warned:?}") };
    for part in [&format!("`{name}`"), advice, "prefix", "--moved-from rabbit@one"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(1).await;
    worker.stop().await;
    assert_eq!(logs.with(&["in use by the broker"]).len(), 1);
    assert_eq!(brokers(&register).await, ["rabbit@one"]);
}
