//! `apply`, `destroy` and `events` refuse a register that another broker or topology uses.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
    thread,
};

use hatchery::internals::{ports::Register as _, redis::RedisRegister, register::Owner};

use super::{
    bench::{given, spec, topology},
    owner::{owner, reserve},
};
use crate::support::{
    broker::{Another, PASSWORD, Rights, block_on, text},
    cli::Bench,
    redis::{self, Server, free_port},
};

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
    // The armed event of the schedule waits in a queue.
    const DESTROY: [&str; 3] = ["destroy", "--auto-approve", "--force"];
    let redis = Arc::new(Server::start(free_port(), &[]));
    let applying =
        Applying::new(&format!("{BILLING}schedules: {{ nightly: {{ type: mail, cron: '0 3 * * *' }} }}\n"), &redis);
    let is_to_be_armed = || applying.expect_of(0, &["plan"]).contains("+ schedule nightly");
    let reserved = || given(block_on(async { applying.register().reserve(&reserve()).await.unwrap()[0] }));
    applying.expect(0, &[]);
    let before = reserved();
    // A register that belongs to another broker stays with that broker, and so do the schedules.
    applying.set_owner("another");
    applying.expect_of(0, &DESTROY);
    assert_eq!(applying.owners(), [owner("another")].into());
    assert!(!is_to_be_armed());
    applying.expect(0, &["--moved-from", "another"]);
    applying.expect_of(0, &DESTROY);
    assert_eq!(applying.owners(), BTreeSet::new());
    assert!(is_to_be_armed());
    assert!(reserved() > before);
    // An earlier destroy removed all objects and was interrupted before it wrote to Redis.
    applying.set_owner("shared");
    applying.expect_of(0, &DESTROY);
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
