//! A broken afternoon: five things are wrong at once. `status` names all five, and the commands of `docs/runbook.md`
//! mend them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hatchery::{Event, Hatchery, NewEvent, Outcome};
use lapin::{
    Connection, ConnectionProperties, Consumer,
    options::{BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{finding, kinds, line, seen, status};
use crate::support::{
    broker::{PATIENCE, eventually},
    declared::{Declared, publish_all},
    held::Held,
    process::{Place, Process},
    redis,
    workers::Working,
};

const FILE: &str = "\
hatcheries: [5s]
types:
  mail: { retry: { max-attempts: 1 } }
  import: {}
  report: { handler-timeout: 1s }
";

/// The type that the bad deploy publishes, and that was not applied.
const DEPLOYED: &str = "  receipt: {}\n";

/// The deliveries that the connection which does nothing holds.
const HELD: u32 = 200;

/// The events that leave the shadowed hatchery too early.
const DELAYED: u32 = 20;

/// How many events the other faults meet.
#[derive(Clone, Copy)]
struct Size {
    letters: u32,
    unrouted: u32,
    waiting: u32,
}

/// The two reasons of the outage. One event in ten has the second one.
const REASONS: [&str; 2] = ["connection refused", "timed out"];

fn reason(event: &Event) -> &'static str {
    REASONS[usize::from(event.id.ends_with('0'))]
}

fn id(event_type: &str, n: u32) -> String {
    format!("{event_type}-{n:05}")
}

fn events(event_type: &'static str, n: u32) -> Vec<NewEvent> {
    (0..n).map(|n| NewEvent::new(event_type, "{}").id(id(event_type, n))).collect()
}

/// The ids of the events that have run to the end, one for each such run.
#[derive(Clone, Default)]
struct Done(Arc<Mutex<Vec<String>>>);

impl Done {
    fn note(&self, event: &Event) -> Outcome {
        self.0.lock().unwrap().push(event.id.clone());
        Outcome::Done
    }

    async fn reach(&self, count: u32) {
        let count = usize::try_from(count).unwrap();
        eventually(&format!("{count} events are done"), async || (self.0.lock().unwrap().len() >= count).then_some(()))
            .await;
    }

    fn ids(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Consumes a queue, and acknowledges nothing for as long as the consumer lives.
async fn hold(url: &str, queue: &str) -> (Connection, Consumer) {
    // A worker that is frozen. Anybody else would be a stranger.
    let properties = ConnectionProperties::default()
        .with_connection_name("reports @ old-pod".into())
        .with_client_property("product".into(), "hatchery".into())
        // lapin sets both unless both are set.
        .with_client_property("version".into(), "0.1.0".into());
    let connection = Connection::connect(url, properties).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.basic_qos(u16::try_from(HELD).unwrap(), BasicQosOptions::default()).await.unwrap();
    let consumer =
        channel.basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default()).await;
    (connection, consumer.unwrap())
}

/// Returns the words of a command after its program, with other words in place of some. Fails if that section of the
/// runbook does not have the command.
fn by_the_book(section: &str, command: &str, instead: &[(&str, &str)]) -> Vec<String> {
    let text = fs::read_to_string(format!("{}/../docs/runbook.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (_, page) = text.split_once(&format!("\n## {section}\n")).expect("a section of the runbook");
    let page = page.split("\n## ").next().unwrap();
    assert!(page.contains(command), "the runbook's section `{section}` lacks `{command}`");
    let quoted_or_not = command.split(['"', '\'']).enumerate();
    let words =
        quoted_or_not.flat_map(|(n, part)| if n % 2 == 1 { vec![part] } else { part.split_whitespace().collect() });
    let word = |word: &str| instead.iter().find(|(told, _)| *told == word).map_or(word, |(_, other)| other).to_owned();
    words.skip(1).map(word).collect()
}

/// The person on call, who types what the runbook says.
struct OnCall<'a> {
    place: &'a Place<'a>,
    node: Held,
}

impl OnCall<'_> {
    /// Runs a command of `topology`, and returns what it prints.
    async fn topology(&self, section: &str, command: &str, instead: &[(&str, &str)]) -> String {
        let arguments = by_the_book(section, command, instead);
        let mut command = self.place.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        command.env("RABBITMQ_MANAGEMENT_URL", self.place.declared.host.management());
        self.place.run(&mut command).await.expect(0).stdout
    }

    async fn rabbitmqctl(&mut self, section: &str, command: &str, instead: &[(&str, &str)]) -> Vec<String> {
        self.node.ctl(&by_the_book(section, command, instead).join(" ")).await
    }

    /// Replays letters: first as a dry run, then in earnest. Both must tell this number.
    async fn replay(&self, section: &str, command: &str, instead: &[(&str, &str)], letters: u32) {
        let dry = self.topology(section, command, instead).await;
        assert!(dry.ends_with(&format!("Dry run: would replay {letters} letters. --yes does it.\n")), "{dry}");
        let done = self.topology(section, &format!("{command} --yes"), instead).await;
        assert_eq!(done, format!("Replayed: {letters} letters.\n"));
    }

    async fn expect_gone(&self, kind: &str) {
        eventually(&format!("status no longer says {kind}"), async || {
            (!kinds(&seen(self.place).await.1).contains(kind)).then_some(())
        })
        .await;
    }
}

/// Checks what `status` says while all five are wrong, and returns it.
async fn expect_all_five(place: &Place<'_>, size: Size) -> Value {
    // The outage that makes the dead letters also lets all runs fail.
    let kinds_of_all = ["shadowed", "unrouted", "no-consumer", "not-acknowledging", "failing", "dead-letters"];
    let expected = BTreeSet::from(kinds_of_all);
    let found = eventually("status names all five", async || {
        let (code, answer) = seen(place).await;
        let is_known = kinds(&answer) == expected
            && line(&answer, "mail")["dead"] == size.letters
            && line(&answer, "import")["due"] == size.waiting;
        is_known.then_some((code, answer))
    });
    let (code, found) = found.await;
    assert_eq!((code, &found["verdict"]), (Some(4), &json!("stuck")), "{found:#}");
    assert_eq!(finding(&found, "shadowed")["queues"], json!(["t.hatchery.5s"]));
    assert_eq!(finding(&found, "unrouted")["messages"], size.unrouted);
    let lonely = json!([{ "queue": "t.processor.import", "messages": size.waiting }]);
    assert_eq!(finding(&found, "no-consumer")["queues"], lonely);
    let silent = finding(&found, "not-acknowledging");
    assert_eq!((&silent["held"], &silent["program"]), (&json!(HELD), &json!("reports @ old-pod")), "{silent:#}");
    assert_eq!(silent["queues"], json!(["t.processor.report"]));
    assert!(silent["silent_seconds"].as_u64().unwrap() > 10, "{silent:#}");
    assert_eq!(finding(&found, "dead-letters")["queues"][0]["messages"], size.letters);

    // The screen says the same in words, in 80 columns.
    let screen = place.run(status(place, &[]).env("COLUMNS", "80")).await.expect(0).stdout;
    assert!(screen.contains(&format!("! {} events are in t.unrouted: no queue was bound", size.unrouted)), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80) && !screen.contains('\u{1b}'), "{screen}");
    // A list of events says what it cannot have.
    let list = place.run(&mut place.command(&["events", "list"])).await.expect(0).stdout;
    let unlisted = format!("Not in `topology events list`: at least {0} messages (t.unrouted {0}).", size.unrouted);
    assert!(list.contains(&unlisted), "{list}");
    found
}

/// Returns the process id of the connection of this name, from what `rabbitmqctl list_connections name pid` prints.
fn pid(connections: &[String], name: &str) -> String {
    let pid = connections.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    pid.unwrap_or_else(|| panic!("no connection {name} in {connections:#?}")).to_owned()
}

/// Expects each event to have run to its end exactly once.
fn account(size: Size, ran: impl IntoIterator<Item = String>) {
    let published = [
        ("mail", size.letters),
        ("receipt", size.unrouted),
        ("import", size.waiting),
        ("report", HELD),
        ("delayed", DELAYED),
    ];
    let mut runs: BTreeMap<String, u32> = BTreeMap::new();
    for (name, count) in published {
        runs.extend((0..count).map(|n| (id(name, n), 0)));
    }
    for id in ran {
        *runs.entry(id).or_default() += 1;
    }
    let wrong: Vec<_> = runs.iter().filter(|(_, runs)| **runs != 1).collect();
    assert!(wrong.is_empty(), "{} of {} events did not run once: {wrong:?}", wrong.len(), runs.len());
}

async fn broken_afternoon(size: Size) {
    let node = Held::start(None);
    let declared = Declared::on(node.host(), FILE, redis::url()).await;
    declared.own_register().await;
    let (place, amqp, hatchery) = (Place::new(&declared), declared.amqp().await, declared.connect().await);

    // A connection that holds deliveries and does nothing, beside a healthy worker.
    publish_all(&hatchery, events("report", HELD)).await;
    let queue = declared.processing("report");
    let (stuck, consumer) = hold(&declared.host.amqp(), &queue).await;
    eventually("it holds all", async || (amqp.ready(&queue).await == 0).then_some(())).await;
    let reports = Working::start(&hatchery, "report", |_| Outcome::Done);
    // A stranger's policy shadows a hatchery. Events leave it too early.
    let policy =
        json!({ "pattern": "^t\\.hatchery\\.5s$", "definition": { "message-ttl": 1_000 }, "apply-to": "queues" });
    declared.host.put("policies", "expire-all", &policy);
    let delayed = |n| NewEvent::new("report", "{}").id(id("delayed", n)).delay(Duration::from_secs(5));
    publish_all(&hatchery, (0..DELAYED).map(delayed).collect()).await;
    reports.runs.reach(usize::try_from(DELAYED).unwrap()).await;
    // An outage downstream: dead letters for two reasons.
    let (is_down, mailed) = (Arc::new(AtomicBool::new(true)), Done::default());
    let (down, done) = (Arc::clone(&is_down), mailed.clone());
    let mail = Working::start(&hatchery, "mail", move |event| {
        if down.load(Ordering::Relaxed) { Outcome::retry(reason(event)) } else { done.note(event) }
    });
    publish_all(&hatchery, events("mail", size.letters)).await;
    // A bad deploy: its file has a type that was not applied.
    let text = format!("{}{DEPLOYED}", declared.text);
    let newer = hatchery::file::read(&text, "topology.yaml").unwrap();
    let newer = Hatchery::builder(newer).amqp_url(declared.host.amqp()).redis_url(redis::url()).version_wait(PATIENCE);
    let newer = newer.name("test").connect().await.unwrap();
    publish_all(&newer, events("receipt", size.unrouted)).await;
    // A queue without a consumer.
    publish_all(&hatchery, events("import", size.waiting)).await;

    let found = expect_all_five(&place, size).await;
    let mut on_call = OnCall { place: &place, node };

    let host = declared.host.name.as_str();
    on_call.rabbitmqctl("Shadowed", "rabbitmqctl clear_policy -p / expire-all", &[("/", host)]).await;
    on_call.expect_gone("shadowed").await;

    place.write("topology.yaml", &text);
    on_call.topology("Unrouted", "topology apply --auto-approve", &[]).await;
    let received = Done::default();
    let done = received.clone();
    let receipts = Working::start(&newer, "receipt", move |event| done.note(event));
    on_call.replay("Unrouted", "topology dead-letter replay --unrouted", &[], size.unrouted).await;
    received.reach(size.unrouted).await;

    let script = place.write("import", "#!/bin/sh\necho \"$EVENT_ID\" >> imported\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    let work = by_the_book(
        "No consumer",
        "topology work --type mail --exec ./send-mail",
        &[("mail", "import"), ("./send-mail", "./import")],
    );
    let imports = Process::spawn(place.command(&work.iter().map(String::as_str).collect::<Vec<_>>()));
    let waiting = usize::try_from(size.waiting).unwrap();
    eventually("all imports have run", async || (place.lines("imported").len() >= waiting).then_some(())).await;

    let connections = on_call.rabbitmqctl("Not acknowledging", "rabbitmqctl list_connections name pid", &[]).await;
    let name = finding(&found, "not-acknowledging")["connection"].as_str().unwrap();
    let pid = pid(&connections, name);
    let close = "rabbitmqctl close_connection '<hatchery@localhost.1795533311.433.4>' idle";
    on_call.rabbitmqctl("Not acknowledging", close, &[("<hatchery@localhost.1795533311.433.4>", &pid)]).await;
    reports.runs.reach(usize::try_from(HELD + DELAYED).unwrap()).await;

    is_down.store(false, Ordering::Relaxed);
    let list = on_call.topology("Dead letters", "topology dead-letter list", &[]).await;
    assert!(list.ends_with(&format!("{} letters, 2 reasons.\n", size.letters)), "{list}");
    let second = size.letters / 10;
    for (reason, letters) in REASONS.into_iter().zip([size.letters - second, second]) {
        let command = "topology dead-letter replay --type mail --reason \"connection refused\"";
        on_call.replay("Dead letters", command, &[("connection refused", reason)], letters).await;
    }
    mailed.reach(size.letters).await;

    eventually("status is well", async || {
        let (code, answer) = seen(&place).await;
        (code == Some(0) && answer["verdict"] == "well" && kinds(&answer).is_empty()).then_some(())
    })
    .await;
    imports.signal(Signal::TERM);
    imports.ended().await.expect(0);
    let reported = reports.runs.clone();
    for working in [mail, receipts, reports] {
        working.stop().await;
    }
    amqp.expect_empty(&declared.queues()).await;
    amqp.expect_empty(&["t.processor.receipt".to_owned(), "t.dead-letter.receipt".to_owned()]).await;
    let reported = reported.seen();
    let mut delayed = reported.iter().filter(|seen| seen.event.id.starts_with("delayed"));
    assert!(delayed.all(|seen| seen.event.nbf.is_some_and(|due| seen.at >= due)), "an event ran too early");
    let reported = reported.into_iter().map(|seen| seen.event.id.clone());
    account(size, mailed.ids().into_iter().chain(received.ids()).chain(place.lines("imported")).chain(reported));
    drop((stuck, consumer));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "breaks a topology in five ways and mends it; scripts/test --all runs it"]
async fn status_names_all_five_faults_of_a_broken_afternoon_and_the_runbook_mends_them() {
    broken_afternoon(Size { letters: 60, unrouted: 5, waiting: 4 }).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "handles 2,000 dead letters; scripts/test --all runs it"]
async fn the_runbook_mends_two_thousand_dead_letters_and_100_unrouted_events() {
    broken_afternoon(Size { letters: 2_000, unrouted: 100, waiting: 40 }).await;
}
