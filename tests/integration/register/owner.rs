//! A register is in use by one topology on one broker. Programs that find another topology or broker there refuse to
//! use it.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
    thread,
};

use hatchery::{
    ConnectError, NewEvent, Outcome, RegisterError, WorkError,
    internals::{
        ports::{Index as _, Register as _},
        redis::RedisRegister,
        register::{Cancel, Claim, DedupSlot, Owner, Reserve, Reserved, index::Find},
    },
};
use rstest::rstest;

use super::bench::{EXCLUSIVE, HORIZON, SHARDS, event, register, spec, stamp, token, topology};
use crate::support::{
    broker::{Another, PASSWORD, Rights, VirtualHost, block_on, text},
    cli::Bench,
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

fn reserve() -> [Reserve; 1] {
    let (subject, slot) = (event("1", "a"), DedupSlot::Immediate);
    [Reserve { subject, slot, due: jiff::Timestamp::UNIX_EPOCH, asked_by: None, terms: EXCLUSIVE }]
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

fn owner(cluster_name: &str) -> Owner {
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
    let find = Find {
        event_type: event("", "").event_type,
        due_from: None,
        due_before: None,
        alone_of: None,
        after: None,
        limit: 1,
    };
    assert_eq!(in_use(other.find(&find).await), names);
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
    let Reserved::Version(before) = one.reserve(&reserve()).await.unwrap()[0] else {
        panic!("a reserve without `asked_by` is never stale")
    };
    other.set_owner(&owner("other")).await.unwrap();
    assert_eq!(other.owners().await.unwrap(), [owner("other")].into());
    let Reserved::Version(after) = other.reserve(&reserve()).await.unwrap()[0] else {
        panic!("a reserve without `asked_by` is never stale")
    };
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

/// Runs the binary in a folder of its own, with a Redis.
struct Applying {
    bench: Bench,
    redis: Arc<Server>,
}

impl Applying {
    fn new(topology: &str, redis: &Arc<Server>) -> Self {
        Self { bench: Bench::new(topology), redis: Arc::clone(redis) }
    }

    /// Writes another broker into the register as its owner.
    fn set_owner(&self, cluster_name: &str) {
        let register = self.register();
        block_on(async { register.set_owner(&owner(cluster_name)).await.unwrap() });
    }

    fn register(&self) -> RedisRegister {
        RedisRegister::new(&self.redis.url, &self.bench.host.name, &topology(), &spec("hatchery", 1)).unwrap()
    }

    fn owners(&self) -> BTreeSet<Owner> {
        let register = self.register();
        block_on(async { register.owners().await.unwrap() })
    }

    #[track_caller]
    fn expect(&self, code: i32, flags: &[&str]) -> String {
        self.expect_of(code, &[&["apply", "--auto-approve"], flags].concat())
    }

    #[track_caller]
    fn expect_of(&self, code: i32, arguments: &[&str]) -> String {
        let ran = self.bench.expect(code, &[arguments, &["--redis-url", &self.redis.url]].concat());
        ran.stdout + &ran.stderr
    }
}

const BILLING: &str = "version: 1\nname: billing\nladder: { resolution: 1s, horizon: 10s }\ntypes: { mail: {} }\n";

#[test]
#[ignore = "starts a second broker; scripts/test --all runs it"]
fn an_apply_refuses_a_register_of_another_broker_without_moved_from() {
    let redis = Arc::new(Server::start(free_port(), &[]));
    let one = Applying::new(BILLING, &redis);
    one.expect(0, &[]);
    one.expect(0, &[]);
    let mut other = Applying::new(BILLING, &redis);
    let another = Another::like(&one.bench.host);
    another.set_name("another");
    other.bench.host = another.into_host(&one.bench.host);
    let told = other.expect(4, &[]);
    for part in ["broker `shared`", "broker `another`", "--moved-from shared", "prefix", "nothing was written"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(other.bench.host.names("exchanges").is_empty());
    other.expect(4, &["--moved-from", "somebody"]);
    other.expect(0, &["--moved-from", "shared"]);
    other.expect(0, &[]);
    let told = one.expect(4, &[]);
    assert!(told.contains("--moved-from another"), "{told}");
    let url = ["--redis-url", redis.url.as_str()];
    let worker = ["work", "--type", "mail", "--stop-when-empty", "--exec", "/bin/true"];
    let refused = one.bench.expect(4, &[&url[..], &worker].concat());
    assert!(refused.stderr.contains("in use by the broker `another`"), "{}", refused.stderr);
    other.bench.expect(0, &[&url[..], &worker].concat());
}

const CANCEL: [&str; 6] = ["events", "cancel", "--type", "mail", "--id", "one"];

#[test]
fn events_commands_refuse_a_register_of_another_broker() {
    let redis = Arc::new(Server::start(free_port(), &[]));
    let applying = Applying::new(BILLING, &redis);
    applying.expect(0, &[]);
    applying.expect_of(0, &CANCEL);
    applying.set_owner("another");
    let show = ["events", "show", "--type", "mail", "--id", "one"];
    for verb in [&CANCEL[..], &show, &["events", "list"]] {
        let refused = applying.expect_of(4, verb);
        for part in ["in use by the broker `another`", "broker `shared`", "--moved-from another"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
}

/// A broker that is away has no name to compare. A broker that refuses the connection ends the command.
#[test]
fn a_cancel_goes_on_without_a_broker_and_fails_if_the_broker_refuses_it() {
    let redis = Arc::new(Server::start(free_port(), &[]));
    let applying = Applying::new(BILLING, &redis);
    let host = &applying.bench.host;
    applying.expect(0, &[]);
    applying.set_owner("another");
    let keys = || block_on(async { redis::keys(&redis.url).await });
    let before = keys();
    let by = |code: i32, amqp: &str| applying.expect_of(code, &[&CANCEL[..], &["--amqp-url", amqp]].concat());
    let wrong_password = host.amqp().replacen(PASSWORD, "wrong", 1);
    assert!(by(6, &wrong_password).contains("refuses the connection"));
    let elsewhere = host.amqp().replace(&format!("/{}", host.name), "/elsewhere");
    assert!(by(6, &elsewhere).contains("refuses the connection"));
    assert_eq!(keys(), before);
    let told = by(0, &format!("amqp://127.0.0.1:{}/{}", free_port(), host.name));
    assert!(told.contains("warning") && told.contains("Only Redis is asked"), "{told}");
    assert_ne!(keys(), before);
}

#[test]
#[ignore = "starts a second broker; scripts/test --all runs it"]
fn a_broker_without_a_cluster_name_is_refused_a_named_brokers_register() {
    let redis = Arc::new(Server::start(free_port(), &[]));
    let mut applying = Applying::new(BILLING, &redis);
    let another = Another::like(&applying.bench.host);
    another.set_name("rabbit@two");
    applying.bench.host = another.into_host(&applying.bench.host);
    applying.expect(0, &[]);
    applying.set_owner("east");
    let work = ["work", "--type", "mail", "--stop-when-empty", "--exec", "/bin/true"];
    for verb in [&["apply", "--auto-approve"][..], &CANCEL, &work] {
        let told = applying.expect_of(4, verb);
        for part in ["broker `east`", "broker `rabbit@two`", "--moved-from east"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    applying.expect(0, &["--moved-from", "east"]);
    applying.expect_of(0, &CANCEL);
    applying.expect_of(0, &work);
}

#[test]
fn a_plan_says_that_an_apply_would_be_refused() {
    let redis = Arc::new(Server::start(free_port(), &[]));
    let applying = Applying::new(BILLING, &redis);
    applying.expect(0, &[]);
    applying.expect_of(0, &["plan", "--detailed-exitcode"]);
    applying.set_owner("another");
    let told = applying.expect_of(4, &["plan", "--detailed-exitcode"]);
    // The plan's lines are wrapped.
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["in use by the broker `another`", "broker `shared`", "--moved-from another", "1 blocked"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("No changes"), "{told}");
    let url = ["--redis-url", &redis.url];
    let json = applying.bench.expect(0, &[&["plan", "-o", "json", "--out", "plan.json"], &url[..]].concat()).json();
    assert_eq!((&json["blocked"], &json["in_sync"]), (&true.into(), &false.into()));
    assert_eq!(applying.owners(), [owner("another")].into());
    // The saved plan is about the broker, and can be carried out with `--moved-from`.
    applying.expect_of(4, &["apply", "plan.json"]);
    applying.expect_of(0, &["apply", "plan.json", "--moved-from", "another"]);
    assert_eq!(applying.owners(), [owner("shared")].into());
}

#[test]
#[ignore = "destroys topologies, whose counts of 0 have to last 12 s; scripts/test --all runs it"]
fn a_destroy_releases_its_own_register_and_keeps_its_versions() {
    let redis = Arc::new(Server::start(free_port(), &[]));
    let applying = Applying::new(BILLING, &redis);
    let reserved = || match block_on(async { applying.register().reserve(&reserve()).await.unwrap()[0] }) {
        Reserved::Version(version) => version,
        Reserved::Stale => panic!("a reserve without `asked_by` is never stale"),
    };
    applying.expect(0, &[]);
    let before = reserved();
    // A register that belongs to another broker stays with that broker.
    applying.set_owner("another");
    applying.expect_of(0, &["destroy", "--auto-approve"]);
    assert_eq!(applying.owners(), [owner("another")].into());
    applying.expect(0, &["--moved-from", "another"]);
    applying.expect_of(0, &["destroy", "--auto-approve"]);
    assert_eq!(applying.owners(), BTreeSet::new());
    assert!(reserved() > before);
    // An earlier destroy removed all objects and was interrupted before it wrote to Redis.
    applying.set_owner("shared");
    applying.expect_of(0, &["destroy", "--auto-approve"]);
    assert_eq!(applying.owners(), BTreeSet::new());
}

/// In a cluster without a name, each node reports its own name. Users with the tag `monitoring` see the list of the
/// nodes in the management API.
#[test]
#[ignore = "starts a second broker; scripts/test --all runs it"]
fn an_apply_refuses_a_register_of_a_node_that_its_cluster_does_not_have() {
    let redis = Arc::new(Server::start(free_port(), &[]));
    let mut applying = Applying::new(BILLING, &redis);
    let another = Another::like(&applying.bench.host);
    another.set_name("rabbit@two");
    applying.bench.host = another.into_host(&applying.bench.host);
    let host = &applying.bench.host;
    let overview = host.overview();
    let node = text(&overview, "node");
    applying.expect(0, &[]);
    applying.set_owner("rabbit@one");
    let told = applying.expect(4, &[]);
    for part in ["broker `rabbit@one`", "broker `rabbit@two`", "--moved-from rabbit@one", "nothing was written"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // A user who does not see the list of nodes gets a warning instead.
    let all = || ".*".to_owned();
    let rights = Rights { tag: "policymaker".to_owned(), configure: all(), write: all(), read: all() };
    let user = host.user("policymaker", &rights);
    let told = applying.expect(0, &["--amqp-url", &user.amqp(), "--management-url", &user.management()]);
    for part in ["warning", "broker `rabbit@one`", "broker `rabbit@two`", "rabbitmqctl set_cluster_name"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    applying.set_owner("rabbit@one");
    let told = applying.expect(0, &["--moved-from", "rabbit@one"]);
    assert!(!told.contains("warning"), "{told}");
    applying.set_owner(node);
    let told = applying.expect(0, &[]);
    assert!(!told.contains("warning"), "{told}");
}

/// The owner is written shard by shard, and Redis may become unreachable in between.
#[test]
fn an_apply_finds_and_fixes_a_shard_that_still_has_the_former_owner() {
    let redis = Arc::new(Server::start(free_port(), &[]));
    let applying = Applying::new(&format!("{BILLING}redis: {{ shards: 2 }}\n"), &redis);
    applying.expect(0, &[]);
    let left = format!("hatchery:{{{}:billing:1}}:last", applying.bench.host.name);
    block_on(redis.say(&["SET", &left, "7|billing|former"]));
    let told = applying.expect(4, &[]);
    assert!(told.contains("--moved-from former"), "{told}");
    applying.expect(0, &["--moved-from", "former"]);
    let worker = ["work", "--type", "mail", "--stop-when-empty", "--exec", "/bin/true", "--redis-url", &redis.url];
    applying.bench.expect(0, &worker);
}

#[test]
#[ignore = "migrates and destroys, with counts of 0 that have to last 12 s; scripts/test --all runs it"]
fn an_apply_refuses_the_register_of_a_topology_that_had_its_name_before() {
    let redis = Arc::new(Server::start(free_port(), &[]));
    let applying = Applying::new(BILLING, &redis);
    applying.expect(0, &[]);
    let renamed = BILLING.replace("name: billing", "name: accounts\nrenamed-from: billing");
    applying.bench.write(&renamed);
    applying.expect(0, &["--migrate"]);
    // The broker shows the renamed topology as long as it has it; after that, only Redis does.
    applying.bench.write(BILLING);
    let told = applying.expect(4, &["--migrate", "--moved-from", "accounts"]);
    assert!(told.contains("blocked: the topology accounts"), "{told}");
    applying.bench.write(&renamed);
    applying.bench.expect(0, &["destroy", "--auto-approve"]);
    applying.bench.write(BILLING);
    let told = applying.expect(4, &["--migrate"]);
    for part in ["topology `accounts`", "topology `billing`", "--moved-from accounts", "prefix"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    applying.bench.write(&format!("{BILLING}redis: {{ prefix: new }}\n"));
    applying.expect(0, &["--migrate"]);
    applying.bench.write(&renamed);
    applying.expect(0, &["--migrate"]);
}

#[test]
fn an_apply_without_redis_warns_and_succeeds() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}");
    let bench = Bench::new(BILLING);
    let ran = bench.expect(0, &["apply", "--auto-approve", "--redis-url", &url]);
    assert!(ran.stderr.contains("is not known") && ran.stderr.contains("away"), "{}", ran.stderr);
    let off = BILLING.replace("mail: {}", "mail: { register: off }");
    bench.write(&off);
    let ran = bench.expect(0, &["apply", "--auto-approve", "--redis-url", &url]);
    assert!(!ran.stderr.contains("away"), "{}", ran.stderr);
}

/// A server that answers every request with an error whose text controls a terminal.
fn hostile_redis() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let (mut stream, mut request) = (stream.unwrap(), [0; 4096]);
                while stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
                    // Four answers, because a read may contain several commands. Surplus answers do no harm.
                    if stream.write_all(&b"-ERR \x1b[31mred\r\n".repeat(4)).is_err() {
                        break;
                    }
                }
            });
        }
    });
    url
}

#[test]
fn an_apply_escapes_control_characters_in_errors_of_redis() {
    let bench = Bench::new(BILLING);
    let ran = bench.expect(0, &["apply", "--auto-approve", "--redis-url", &hostile_redis()]);
    let warned = ran.stderr.lines().find(|line| line.contains("is not known")).unwrap_or_else(|| panic!("{ran:?}"));
    assert!(warned.contains("\\u{1b}[31mred") && !warned.contains('\u{1b}'), "{warned:?}");
}
