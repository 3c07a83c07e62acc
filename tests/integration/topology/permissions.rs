//! The permissions in `docs/how-to/least-privilege.md` are enough, and each of them is needed.

mod sources;

use std::{collections::BTreeMap, fs, process::Stdio};

use lapin::BasicProperties;
use rstest::rstest;
use rustix::process::Signal;

use crate::support::{
    amqp::Amqp,
    broker::{PATIENCE, Rights, User, eventually},
    cli::{Bench, Ran},
    process::Process,
    redis::{self, free_port},
};

/// Returns a topology with short delays only, so that a test sees every event leave every queue.
fn topology() -> String {
    let prefix = redis::prefix();
    format!(
        "version: 1\nname: billing\nredis: {{ prefix: {prefix} }}\nhatcheries: [50ms]\n\
         ladder: {{ resolution: 50ms, horizon: 1500ms }}\ntypes:\n  mail: {{ lease: 1s, retry: {{ delays: [20ms] }} }}\n  \
         plain: {{ register: off, retry: {{ delays: [20ms] }} }}\n"
    )
}

/// Answers with a failure, then a requeue, then a dead letter: a follow-up for each exchange that a worker publishes
/// to.
const PROGRAM: &str = "\
echo run >> runs
case $(wc -l < runs) in
  1) exit 1 ;;
  2) echo '{\"requeue\": {\"after\": \"1s\", \"reason\": \"later\"}}' ;;
  *) exit 65 ;;
esac
";

const DEAD: &str = "billing.dead-letter.mail";

/// Reads the users and their rights from the commands in `docs/how-to/least-privilege.md`.
fn documented() -> BTreeMap<String, Rights> {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/least-privilege.md"));
    let mut users = BTreeMap::<String, Rights>::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("rabbitmqctl ")) {
        let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_matches('\'')).collect();
        match words[..] {
            ["set_permissions", "-p", "prod", user, configure, write, read] => {
                let rights = users.entry(user.to_owned()).or_default();
                (rights.configure, rights.write, rights.read) = (configure.into(), write.into(), read.into());
            }
            ["set_user_tags", user, tag] => tag.clone_into(&mut users.entry(user.to_owned()).or_default().tag),
            ["add_vhost", _] => {}
            _ => panic!("unknown command in docs/how-to/least-privilege.md: {line}"),
        }
    }
    let names: Vec<&str> = users.keys().map(String::as_str).collect();
    assert_eq!(names, ["both", "deployer", "feeder", "oncall", "publisher", "replayer", "source", "worker"]);
    users
}

fn rights(role: &str) -> Rights {
    documented()[role].clone()
}

/// Runs the binary as this user.
fn run(bench: &Bench, user: &User<'_>, arguments: &[&str]) -> Ran {
    let mut process = bench.process(arguments);
    process
        .env("AMQP_URL", user.amqp())
        .env("RABBITMQ_MANAGEMENT_URL", user.management())
        .env("REDIS_URL", redis::url());
    let mut command = assert_cmd::Command::from_std(process);
    Ran::run(command.timeout(4 * PATIENCE))
}

fn apply(bench: &Bench, rights: &Rights) -> Ran {
    run(bench, &bench.host.user("deployer", rights), &["apply", "--auto-approve"])
}

fn publish(bench: &Bench, rights: &Rights, delay: &str) -> Ran {
    run(bench, &bench.host.user("publisher", rights), &["publish", "mail", "--payload", "{}", "--delay", delay])
}

/// Starts a worker of this type.
fn work(bench: &Bench, user: &User<'_>, event_type: &str) -> Process {
    fs::write(bench.folder().join("program"), PROGRAM).unwrap();
    start(bench, user, &["work", "--type", event_type, "--exec", "sh", "program"])
}

/// Starts a worker. Its log goes to the file `log`.
fn start(bench: &Bench, user: &User<'_>, arguments: &[&str]) -> Process {
    let mut process = bench.process(&[&["-v"], arguments].concat());
    process
        .env("PATH", std::env::var("PATH").unwrap())
        .env("AMQP_URL", user.amqp())
        .env("RABBITMQ_MANAGEMENT_URL", user.management())
        .env("REDIS_URL", redis::url())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(bench.folder().join("log")).unwrap());
    let mut process = tokio::process::Command::from(process);
    process.kill_on_drop(true);
    Process::spawn(process)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_permissions_are_enough_to_apply_publish_and_work() {
    let bench = Bench::new(&topology());
    apply(&bench, &rights("deployer")).expect(0);
    run(&bench, &bench.host.user("deployer", &rights("deployer")), &["plan", "--detailed-exitcode"]).expect(0);
    let user = bench.host.user("worker", &rights("worker"));
    let worker = work(&bench, &user, "mail");
    for delay in ["0s", "50ms", "70ms"] {
        publish(&bench, &rights("publisher"), delay).expect(0);
    }
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    eventually("all three events are dead letters", async || (amqp.ready(DEAD).await == 3).then_some(())).await;
    worker.signal(Signal::TERM);
    worker.ended().await.expect(0);
    let log = fs::read_to_string(bench.folder().join("log")).unwrap();
    assert!(!log.contains("REFUSED") && !log.contains("not published"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "waits for the server's second look at the status, after 30 s; scripts/test --all runs it"]
async fn the_documented_permissions_are_enough_for_the_server_which_tells_what_the_status_finds() {
    let bench = Bench::new(&topology());
    bench.apply();
    let user = bench.host.user("oncall", &rights("oncall"));
    let [api, metrics] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    let server = start(&bench, &user, &["serve", "--listen", &api, "--metrics", &metrics]);
    let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().unwrap();
    let publish = || client.post(format!("http://{api}/v1/events")).json(&serde_json::json!({ "type": "mail" }));
    eventually("an event is published", async || (publish().send().await.ok()?.status() == 201).then_some(())).await;
    eventually("the metrics have what is found and how many events wait", async || {
        let page = client.get(format!("http://{metrics}/metrics")).send().await.ok()?.text().await.ok()?;
        let has = |line: &str| page.lines().any(|other| other == line);
        let found = has("hatchery_status_finding{kind=\"no-consumer\",severity=\"stuck\"} 1");
        (found && has("hatchery_status_events{type=\"mail\",state=\"due\"} 1")).then_some(())
    })
    .await;
    server.signal(Signal::TERM);
    server.ended().await.expect(0);
    let log = fs::read_to_string(bench.folder().join("log")).unwrap();
    assert!(!log.contains("REFUSED") && !log.contains("cannot be looked up"), "{log}");
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_permissions_are_enough_for_the_quarantine(#[values("worker", "both")] role: &str) {
    let bench = Bench::new(&topology());
    bench.apply();
    let publisher = bench.host.user("publisher", &rights("publisher"));
    run(&bench, &publisher, &["publish", "plain", "--payload", "{}"]).expect(0);
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    amqp.requeue_first("billing.processor.plain", 2).await;
    let user = bench.host.user(role, &rights(role));
    let worker = work(&bench, &user, "plain");
    eventually("the event is a dead letter", async || {
        (amqp.ready("billing.dead-letter.plain").await == 1).then_some(())
    })
    .await;
    worker.signal(Signal::TERM);
    worker.ended().await.expect(0);
    let log = fs::read_to_string(bench.folder().join("log")).unwrap();
    assert!(log.contains("put aside") && !log.contains("REFUSED"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_permissions_are_enough_for_schedules() {
    let bench = Bench::new(&(topology() + "schedules: { tick: { type: mail, every: 1s } }\n"));
    apply(&bench, &rights("deployer")).expect(0);
    let user = bench.host.user("worker", &rights("worker"));
    let worker = work(&bench, &user, "mail");
    let publisher = bench.host.user("publisher", &rights("publisher"));
    let oncall = bench.host.user("oncall", &rights("oncall"));
    for (user, act) in [(&publisher, "list"), (&oncall, "pause"), (&oncall, "resume"), (&publisher, "run-now")] {
        let schedule: &[&str] = if act == "list" { &[] } else { &["tick"] };
        run(&bench, user, &[&["schedule", act], schedule].concat()).expect(0);
    }
    // Each is armed by the one before.
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    eventually("events of the schedule are dead letters", async || (amqp.ready(DEAD).await >= 3).then_some(())).await;
    worker.signal(Signal::TERM);
    worker.ended().await.expect(0);
    let log = fs::read_to_string(bench.folder().join("log")).unwrap();
    assert!(!log.contains("REFUSED") && !log.contains("not healed"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs every verb of a person on call; scripts/test --all runs it"]
async fn the_documented_permissions_are_enough_for_the_person_on_call() {
    let bench = Bench::new(&topology());
    bench.apply();
    let publisher = bench.host.user("publisher", &rights("publisher"));
    for id in ["first", "second"] {
        run(&bench, &publisher, &["publish", "mail", "--payload", "{}", "--id", id]).expect(0);
    }
    let worker = bench.host.user("worker", &rights("worker"));
    run(&bench, &worker, &["work", "--type", "mail", "--stop-when-empty", "--exec", "/bin/sh", "-c", "exit 65"])
        .expect(0);
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    amqp.publish("billing.scheduler", "letter.now", BasicProperties::default(), b"{}").await;

    let all = rights("oncall");
    let oncall = bench.host.user("oncall", &all);
    // RabbitMQ's figures are seconds old.
    let screen = eventually("status names the unrouted event", async || {
        let screen = run(&bench, &oncall, &["status"]).expect(0);
        screen.stdout.contains("1 event is in billing.unrouted").then_some(screen)
    });
    let screen = screen.await;
    assert!(!screen.stdout.contains("not known"), "{screen:?}");
    for commands in ["events list", "events show first", "dead-letter list --unrouted"] {
        let ran = run(&bench, &oncall, &commands.split(' ').collect::<Vec<_>>()).expect(0);
        assert!(!ran.stderr.contains("REFUSED"), "{ran:?}");
    }
    let replay = ["dead-letter", "replay", "--id", "first", "--yes"];
    let pause = ["pause", "mail", "--reason", "R"];
    for taken in ["configure", "write", "read"] {
        let mut less = all.clone();
        let right = match taken {
            "configure" => &mut less.configure,
            "write" => &mut less.write,
            _ => &mut less.read,
        };
        "^$".clone_into(right);
        let less = bench.host.user("less", &less);
        let ran = run(&bench, &less, &replay);
        assert!(ran.code != 0 && ran.stderr.contains("ACCESS_REFUSED"), "without {taken}: {ran:?}");
        let ran = run(&bench, &less, &pause).expect(6);
        assert!(ran.stderr.contains("ACCESS_REFUSED") && ran.stderr.contains("billing.control"), "{taken}: {ran:?}");
    }
    run(&bench, &oncall, &pause).expect(0);
    run(&bench, &oncall, &["resume", "mail"]).expect(0);
    assert_eq!(run(&bench, &oncall, &replay).expect(0).last(), "Replayed: 1 letter.");
    let discard = ["dead-letter", "discard", "--id", "second", "--save", "letters.ndjson", "--yes"];
    assert_eq!(run(&bench, &oncall, &discard).expect(0).last(), "Discarded: 1 letter.");
    assert_eq!((amqp.ready("billing.processor.mail").await, amqp.ready(DEAD).await), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "migrates and removes queues, whose count of 0 has to last 12 s; scripts/test --all runs it"]
async fn the_documented_permissions_are_enough_to_migrate_prune_and_destroy() {
    let bench = Bench::new(&topology());
    let deployer = bench.host.user("deployer", &rights("deployer"));
    run(&bench, &deployer, &["apply", "--auto-approve"]).expect(0);
    publish(&bench, &rights("publisher"), "0s").expect(0);
    bench.write(&topology().replace("mail:", "letter:").replace("lease", "renamed-from: mail, lease"));
    let ran = run(&bench, &deployer, &["apply", "--auto-approve", "--migrate", "--prune"]).expect(0);
    assert!(ran.last().contains("2 migrated with 1 message,"), "{ran:?}");
    assert!(!ran.stderr.contains("Not removed"), "{ran:?}");
    run(&bench, &deployer, &["destroy", "--auto-approve"]).expect(4);
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    amqp.take("billing.processor.letter").await;
    run(&bench, &deployer, &["destroy", "--auto-approve", "--force"]).expect(0);
    assert_eq!(bench.host.names("queues"), Vec::<String>::new());
}

#[test]
fn a_plan_needs_only_the_tag() {
    let bench = Bench::new(&topology());
    let nothing = || "^$".to_owned();
    let only = Rights { tag: rights("deployer").tag, configure: nothing(), write: nothing(), read: nothing() };
    run(&bench, &bench.host.user("viewer", &only), &["plan", "--detailed-exitcode"]).expect(3);
}

/// Each case takes one right away from the deployer.
#[rstest]
#[case::tag(|rights: &mut Rights| rights.tag.clear(), 6, "policymaker")]
#[case::a_lower_tag(|rights: &mut Rights| rights.tag = "management".into(), 6, "policymaker")]
#[case::configure(|rights: &mut Rights| rights.configure = "^$".into(), 6, "queue 'billing.lock'")]
#[case::write(|rights: &mut Rights| rights.write = "^$".into(), 5, "access to queue 'billing.unrouted'")]
#[case::read(|rights: &mut Rights| rights.read = "^$".into(), 5, "access to exchange 'billing.unrouted'")]
fn a_deployer_needs_each_documented_right(#[case] without: fn(&mut Rights), #[case] code: i32, #[case] says: &str) {
    let bench = Bench::new(&topology());
    let mut rights = rights("deployer");
    without(&mut rights);
    let ran = apply(&bench, &rights).expect(code);
    assert!(ran.stderr.contains(says) && !ran.stderr.contains("applied"), "{ran:?}");
}

#[test]
fn a_publisher_needs_write_permission() {
    let bench = Bench::new(&topology());
    bench.apply();
    let nothing = Rights { write: "^$".into(), ..rights("publisher") };
    for delay in ["0s", "50ms", "70ms"] {
        let ran = publish(&bench, &nothing, delay).expect(6);
        assert!(ran.stderr.contains("ACCESS_REFUSED") && ran.stderr.contains("billing.scheduler"), "{ran:?}");
    }
}

#[test]
fn a_worker_needs_read_permission() {
    let bench = Bench::new(&topology());
    bench.apply();
    let blind = Rights { read: "^$".into(), ..rights("worker") };
    let work = ["work", "--type", "mail", "--exec", "/bin/true"];
    for (read, lacks) in [("^$", "billing.control"), ("^billing\\.control$", "billing.processor.mail")] {
        let user = bench.host.user("worker", &Rights { read: read.into(), ..blind.clone() });
        let ran = run(&bench, &user, &work).expect(6);
        assert!(ran.stderr.contains("ACCESS_REFUSED") && ran.stderr.contains(lacks), "{ran:?}");
    }
}

/// RabbitMQ 4.3 requires a permission to check whether a queue exists. Older versions tell every user.
#[test]
fn a_worker_that_may_read_everything_names_a_missing_queue() {
    let bench = Bench::new(&topology());
    bench.apply();
    let seeing = Rights { read: r"^billing\.".into(), ..rights("worker") };
    let user = bench.host.user("worker", &seeing);
    for queue in ["billing.retry.mail.20ms", "billing.ladder.50ms-5.03-400ms"] {
        bench.host.delete("queues", &[queue]);
        let ran = run(&bench, &user, &["work", "--type", "mail", "--exec", "/bin/true"]).expect(1);
        assert!(ran.stderr.contains(&format!("the queue {queue} does not exist")), "{ran:?}");
        bench.apply();
    }
}

#[rstest]
#[case("retry")]
#[case("scheduler")]
#[case("dead-letter")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_needs_write_permission_on_each_exchange_and_loses_nothing_without_it(
    #[case] exchange: &str,
    #[values("worker", "both")] role: &str,
) {
    let bench = Bench::new(&topology());
    bench.apply();
    let all = rights(role);
    let write = all.write.replacen(exchange, "nothing", 1);
    assert_ne!(write, all.write, "the documented pattern does not name the exchange");
    let user = bench.host.user(role, &Rights { write, ..all.clone() });
    publish(&bench, &rights("publisher"), "0s").expect(0);
    let worker = work(&bench, &user, "mail");
    let refuses = format!("billing.{exchange}");
    eventually(&format!("{refuses} refuses a publish"), async || {
        let log = fs::read_to_string(bench.folder().join("log")).unwrap();
        log.lines().any(|line| line.contains("ACCESS_REFUSED") && line.contains(&refuses)).then_some(())
    })
    .await;
    drop(worker);
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    eventually("the event is back in its queue", async || {
        (amqp.ready("billing.processor.mail").await == 1).then_some(())
    })
    .await;
    // With the permission, the event goes its way to the dead letters.
    drop(user);
    let user = bench.host.user(role, &all);
    let worker = work(&bench, &user, "mail");
    eventually("the event is a dead letter", async || (amqp.ready(DEAD).await == 1).then_some(())).await;
    worker.signal(Signal::TERM);
    worker.ended().await.expect(0);
}
