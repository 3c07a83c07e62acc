//! A register is in use by one topology on one broker, and whoever finds another one there keeps off.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
    thread,
};

use hatchery::{
    ConnectError, NewEvent, Outcome, WorkError,
    adapters::redis::RedisRegister,
    domain::register::{Owner, Reserve, Reserved, Slot, index::Find},
    ports::{Index as _, Register as _, RegisterError},
};

use super::bench::{EXCLUSIVE, SHARDS, event, register, spec, topology};
use crate::support::{
    broker::{Another, Rights, VirtualHost, block_on, eventually, text},
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
    let (subject, slot) = (event("1", "a"), Slot::Immediate);
    [Reserve { subject, slot, due: jiff::Timestamp::UNIX_EPOCH, asked_by: None, terms: EXCLUSIVE }]
}

#[tokio::test]
async fn a_register_in_use_by_another_broker_answers_no_call() {
    let register = register(redis::url(), &prefix(), SHARDS);
    let (one, other) = (on(&register, "one"), on(&register, "other"));
    one.ping().await.unwrap();
    let names = ("one".to_owned(), "other".to_owned());
    assert_eq!(in_use(other.ping().await), names);
    assert_eq!(in_use(other.reserve(&reserve()).await), names);
    let find = Find { event_type: event("", "").event_type, due_from: None, due_before: None, after: None, limit: 1 };
    assert_eq!(in_use(other.find(&find).await), names);
    assert!(matches!(one.reserve(&reserve()).await.unwrap()[..], [Reserved::Version(_)]));
    // Nodes of an unnamed cluster say their own names, and other brokers perhaps none.
    for unnamed in ["rabbit@1", "rabbit@2", ""] {
        on(&register, unnamed).ping().await.unwrap();
    }
    assert_eq!(in_use(other.ping().await), names);
}

#[tokio::test]
async fn a_cluster_that_is_given_a_name_keeps_its_register() {
    let register = register(redis::url(), &prefix(), 1);
    for name in ["", "rabbit@1", "rabbit@2", "prod", "rabbit@1", "prod"] {
        on(&register, name).ping().await.unwrap();
    }
    assert_eq!(register.owner().await.unwrap(), Owner { topology: None, cluster_name: Some("prod".to_owned()) });
    assert_eq!(in_use(on(&register, "else").ping().await).0, "prod");
}

#[tokio::test]
async fn an_emptied_register_is_in_use_by_whoever_writes_first() {
    let redis = Server::start(free_port(), &[]);
    let register = register(&redis.url, "x", SHARDS);
    let (one, other) = (on(&register, "one"), on(&register, "other"));
    one.ping().await.unwrap();
    redis.say(&["FLUSHALL"]).await;
    one.ping().await.unwrap();
    assert_eq!(in_use(other.ping().await).0, "one");
}

#[tokio::test]
async fn a_register_that_has_moved_answers_the_new_broker_alone_and_keeps_its_versions() {
    let register = register(redis::url(), &prefix(), SHARDS);
    let (one, other) = (on(&register, "one"), on(&register, "other"));
    let Reserved::Version(before) = one.reserve(&reserve()).await.unwrap()[0] else { panic!("nobody asked") };
    let moved = Owner { topology: Some("billing".to_owned()), cluster_name: Some("other".to_owned()) };
    other.set_owner(&moved).await.unwrap();
    assert_eq!(other.owner().await.unwrap(), moved);
    let Reserved::Version(after) = other.reserve(&reserve()).await.unwrap()[0] else { panic!("nobody asked") };
    assert!(after > before);
    assert_eq!(in_use(one.ping().await), ("other".to_owned(), "one".to_owned()));
}

const TYPES: &str = "types: { import: { coalesce: latest } }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_refuses_a_register_of_another_broker_and_a_publisher_goes_on_without_versions() {
    let declared = Declared::new(TYPES).await;
    let topology = &declared.topology;
    let another = RedisRegister::new(redis::url(), &declared.host.name, &topology.name, &topology.redis).unwrap();
    on(&another, "another").ping().await.unwrap();
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
    // It went back to its queue.
    declared.amqp().await.left_alone(&declared.processing("import"), 1).await;
    let error: ConnectError = error.clone().into();
    assert!(error.to_string().contains("`shared`"));
}

#[tokio::test]
async fn a_worker_warns_of_a_register_that_another_unnamed_broker_may_use() {
    let host = VirtualHost::new();
    let another = Another::like(&host);
    another.set_name("rabbit@two");
    let declared = Declared::on(another.into_host(&host), TYPES, redis::url()).await;
    let topology = &declared.topology;
    let register = RedisRegister::new(redis::url(), &declared.host.name, &topology.name, &topology.redis).unwrap();
    on(&register, "rabbit@one").ping().await.unwrap();
    let logs = Logs::capture();
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    let warned = async || logs.with(&["in use by the broker `rabbit@one`"]).pop();
    let warning = eventually("the worker warns", warned).await;
    for part in ["`rabbit@two`", "rabbitmqctl set_cluster_name", "prefix", "--moved-from rabbit@one"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    worker.stop().await;
    assert_eq!(logs.with(&["in use by the broker"]).len(), 1);
}

/// `apply` in a folder of its own, with a Redis.
struct Applying {
    bench: Bench,
    redis: Arc<Server>,
}

impl Applying {
    fn new(topology: &str, redis: &Arc<Server>) -> Self {
        Self { bench: Bench::new(topology), redis: Arc::clone(redis) }
    }

    /// Notes another broker as the one that uses the register.
    fn set_owner(&self, cluster_name: &str) {
        let topology = hatchery::file::read(BILLING, "topology.yaml").unwrap();
        let host = &self.bench.host.name;
        let register = RedisRegister::new(&self.redis.url, host, &topology.name, &topology.redis).unwrap();
        let owner = Owner { topology: Some("billing".to_owned()), cluster_name: Some(cluster_name.to_owned()) };
        block_on(async { register.set_owner(&owner).await.unwrap() });
    }

    #[track_caller]
    fn expect(&self, code: i32, flags: &[&str]) -> String {
        let arguments = [&["apply", "--auto-approve", "--redis-url", &self.redis.url], flags].concat();
        let ran = self.bench.expect(code, &arguments);
        ran.stdout + &ran.stderr
    }
}

const BILLING: &str = "version: 1\nname: billing\nladder: { resolution: 1s, horizon: 10s }\ntypes: { mail: {} }\n";

#[test]
fn an_apply_refuses_a_register_of_another_broker_until_it_is_told_that_the_topology_has_moved() {
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

#[test]
fn a_cancel_from_another_broker_is_refused() {
    let redis = Arc::new(Server::start(free_port(), &[]));
    let applying = Applying::new(BILLING, &redis);
    applying.expect(0, &[]);
    let cancel = |amqp: &str| {
        let one = ["events", "cancel", "--type", "mail", "--id", "one", "--redis-url", &redis.url, "--amqp-url", amqp];
        applying.bench.run(&one)
    };
    let amqp = applying.bench.host.amqp();
    cancel(&amqp).expect(0);
    applying.set_owner("another");
    let refused = cancel(&amqp).expect(4);
    for part in ["in use by the broker `another`", "broker `shared`", "--moved-from another"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    // A broker that is away has no name.
    let away = format!("amqp://127.0.0.1:{}/{}", free_port(), applying.bench.host.name);
    cancel(&away).expect(0);
}

/// The nodes of an unnamed cluster say their own names. The management API shows the list of them to users with the tag `monitoring`.
#[test]
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
    // Who is not shown the nodes cannot know.
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

/// A worker of one node pings the register before it finds that the topology is missing. The user of `apply` is not shown the nodes.
#[test]
fn a_worker_that_starts_before_the_first_apply_does_not_keep_it_from_applying() {
    let redis = Arc::new(Server::start(free_port(), &[]));
    let applying = Applying::new(BILLING, &redis);
    let host = &applying.bench.host;
    let register = RedisRegister::new(&redis.url, &host.name, &topology(), &spec("hatchery", 1)).unwrap();
    block_on(async { on(&register, "rabbit@2").ping().await.unwrap() });
    let all = || ".*".to_owned();
    let rights = Rights { tag: "policymaker".to_owned(), configure: all(), write: all(), read: all() };
    let user = host.user("policymaker", &rights);
    applying.expect(0, &["--amqp-url", &user.amqp(), "--management-url", &user.management()]);
}

/// The owner is written shard by shard, and Redis may go away in between.
#[test]
fn an_apply_sees_and_mends_a_shard_that_was_left_to_the_former_owner() {
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
fn an_apply_refuses_the_keys_of_a_topology_that_had_its_name_before() {
    let redis = Arc::new(Server::start(free_port(), &[]));
    let applying = Applying::new(BILLING, &redis);
    applying.expect(0, &[]);
    let renamed = BILLING.replace("name: billing", "name: accounts\nrenamed-from: billing");
    applying.bench.write(&renamed);
    applying.expect(0, &["--migrate"]);
    // The broker tells as long as it has the other topology, and Redis beyond that.
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
fn an_apply_does_without_redis() {
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
                    // More answers than there were commands in what was read do no harm.
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
fn an_apply_escapes_what_redis_says() {
    let bench = Bench::new(BILLING);
    let ran = bench.expect(0, &["apply", "--auto-approve", "--redis-url", &hostile_redis()]);
    let warned = ran.stderr.lines().find(|line| line.contains("is not known")).unwrap_or_else(|| panic!("{ran:?}"));
    assert!(warned.contains("\\u{1b}[31mred") && !warned.contains('\u{1b}'), "{warned:?}");
}
