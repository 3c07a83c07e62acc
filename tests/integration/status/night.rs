//! An operator's night: one thing after the other breaks and is mended. The test compares what `status` says, how soon, and whether
//! it goes on to say so, and nothing else, before, meanwhile and afterwards.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use hatchery::{
    Hatchery, NewEvent, Outcome, Run,
    internals::{ports::Reports as _, redis::RedisRegister},
};
use jiff::SignedDuration;
use lapin::{BasicProperties, Consumer};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::status;
use crate::support::{
    amqp::Amqp,
    broker::{eventually, text},
    declared::{Declared, publish_all},
    held::Held,
    process::{Place, Process},
    redis::{Server, free_port},
    workers::{Runs, Working},
};

/// The handler of `pay` runs in this process and does what [`Handler`] says. That of `mail` is a program.
const FILE: &str = "\
hatcheries: [5s]
types:
  pay: { handler-timeout: 2s, concurrency: 1, retry: { delays: [1s], max-attempts: 100 } }
  mail: { handler-timeout: 2s }
schedules: { poll: { type: pay, every: 5s } }
";

/// The time between two looks: somebody watches.
const APART: Duration = Duration::from_millis(500);

/// How long somebody watches what is broken after `status` has said it.
const WATCHED: Duration = Duration::from_secs(15);

/// How much longer a busy machine may take than the rows say.
const SLOW: u32 = 3;

/// What the handler of `pay` does.
#[derive(Clone, Copy)]
enum Handler {
    Works,
    /// The service that it needs is away.
    Lacks,
    Hangs,
    Fails,
}

struct Night<'a> {
    place: &'a Place<'a>,
    node: Held,
    redis: Option<Server>,
    port: u16,
    /// The folder of Redis.
    folder: TempDir,
    hatchery: Hatchery,
    handler: Arc<AtomicU8>,
    /// The program that works on `mail`.
    mail: Process,
    stranger: Option<(Amqp, Consumer)>,
}

/// What breaks, and what `status` says of it.
struct Row {
    what: &'static str,
    breaks: for<'n, 'a> fn(&'n mut Night<'a>) -> Pin<Box<dyn Future<Output = ()> + 'n>>,
    mends: for<'n, 'a> fn(&'n mut Night<'a>) -> Pin<Box<dyn Future<Output = ()> + 'n>>,
    /// The findings, as [`named`] has them. `unreachable` stands for the exit code 6.
    says: &'static [&'static str],
    /// Findings that it may say too, because they follow.
    may_say: &'static [&'static str],
    /// The seconds after which it says so at the latest on a quiet machine, and after which it is well again.
    soon: u64,
    over: u64,
}

/// Writes a step of a row, which is an async block, as a function.
macro_rules! step {
    (|$night:ident| $body:expr) => {
        |$night| Box::pin(async move { $body })
    };
}

const ROWS: &[Row] = &[
    Row {
        what: "nothing, all is healthy",
        breaks: step!(|night| night.publish(20).await),
        mends: step!(|night| night.publish(20).await),
        says: &[],
        may_say: &[],
        soon: 10,
        over: 10,
    },
    Row {
        what: "the service is away",
        breaks: step!(|night| {
            night.set(Handler::Lacks);
            night.publish(6).await;
        }),
        mends: step!(|night| night.set(Handler::Works)),
        says: &["handler-unavailable"],
        may_say: &[],
        soon: 20,
        over: 30,
    },
    Row {
        what: "the handler hangs",
        breaks: step!(|night| {
            night.set(Handler::Hangs);
            night.publish(6).await;
        }),
        mends: step!(|night| night.set(Handler::Works)),
        says: &["failing: pay"],
        may_say: &[],
        soon: 60,
        over: 60,
    },
    Row {
        what: "all runs fail",
        breaks: step!(|night| {
            night.set(Handler::Fails);
            night.publish(6).await;
        }),
        mends: step!(|night| night.set(Handler::Works)),
        says: &["failing: pay"],
        may_say: &[],
        soon: 40,
        over: 60,
    },
    Row {
        what: "Redis is stopped",
        breaks: step!(|night| drop(night.redis.take())),
        mends: step!(|night| night.redis = Some(redis(night.port, night.folder.path()))),
        says: &["redis-away"],
        may_say: &[],
        soon: 10,
        over: 40,
    },
    Row {
        what: "the broker is stopped",
        breaks: step!(|night| assert!(night.node.ask("stop rabbitmq").await)),
        mends: step!(|night| assert!(night.node.ask("start rabbitmq").await)),
        says: &["unreachable"],
        may_say: &["no-consumer"],
        soon: 20,
        over: 90,
    },
    Row {
        what: "events are unroutable",
        breaks: step!(|night| {
            let amqp = night.place.declared.amqp().await;
            amqp.publish("t.scheduler", "nobody.now", BasicProperties::default(), b"{}").await;
        }),
        mends: step!(|night| night.place.declared.amqp().await.purge("t.unrouted").await),
        says: &["unrouted"],
        may_say: &[],
        soon: 20,
        over: 20,
    },
    Row {
        what: "a stranger consumes",
        breaks: step!(|night| {
            let amqp = night.place.declared.amqp().await;
            let consumer = amqp.hold("t.dead-letter.pay", 1).await;
            night.stranger = Some((amqp, consumer));
        }),
        mends: step!(|night| drop(night.stranger.take())),
        says: &["stranger: t.dead-letter.pay"],
        may_say: &[],
        soon: 20,
        over: 20,
    },
    Row {
        what: "a stranger binds a queue",
        breaks: step!(|night| night.place.declared.host.bind("t.processor", "t.processor.pay", "#")),
        mends: step!(|night| night.apply(&["--prune"]).await),
        says: &["misrouting: t.processor -> t.processor.pay (#)"],
        may_say: &[],
        soon: 10,
        over: 10,
    },
    Row {
        what: "a stranger sets a policy",
        breaks: step!(|night| {
            let definition = json!({ "message-ttl": 60_000_000 });
            let policy = json!({ "pattern": "^t\\.hatchery", "definition": definition, "apply-to": "queues" });
            night.place.declared.host.put("policies", "expire-all", &policy);
        }),
        mends: step!(|night| night.place.declared.host.delete("policies", &["expire-all"])),
        says: &["shadowed"],
        may_say: &[],
        soon: 10,
        over: 10,
    },
    Row {
        what: "an exchange is declared anew",
        breaks: step!(|night| night.declare_anew()),
        mends: step!(|night| night.apply(&["--migrate"]).await),
        says: &["wrong-objects"],
        may_say: &[],
        soon: 10,
        over: 30,
    },
    Row {
        what: "a clock is wrong",
        breaks: step!(|night| {
            let report = night.register().report_clock(SignedDuration::from_hours(24), Duration::from_mins(1)).await;
            report.unwrap();
        }),
        // The report expires.
        mends: step!(|_night| ()),
        says: &["clock-wrong"],
        may_say: &[],
        soon: 10,
        over: 60,
    },
    Row {
        what: "the disk is full",
        breaks: step!(|night| drop(night.node.ctl("set_disk_free_limit 100000GB").await)),
        mends: step!(|night| drop(night.node.ctl("set_disk_free_limit 1MB").await)),
        says: &["broker-alarm"],
        // The next event of the schedule is not published meanwhile.
        may_say: &["schedule-late"],
        soon: 30,
        over: 60,
    },
    Row {
        what: "a worker is frozen",
        breaks: step!(|night| {
            night.mail.signal(Signal::STOP);
            let events = (0..6).map(|_| NewEvent::new("mail", "{}")).collect();
            publish_all(&night.hatchery, events).await;
        }),
        mends: step!(|night| night.mail.signal(Signal::CONT)),
        says: &["not-acknowledging"],
        may_say: &[],
        soon: 60,
        over: 60,
    },
    Row {
        what: "a type is renamed, and nobody has applied it",
        breaks: step!(|night| night.rename().await),
        mends: step!(|night| night.apply_new_name().await),
        says: &["dead-letters", "drift"],
        may_say: &[],
        soon: 20,
        over: 60,
    },
    Row {
        what: "Redis is emptied, and others fill it at once",
        breaks: step!(|night| night.empty_redis().await),
        // A day passes.
        mends: step!(|night| night.say_to_redis(&["DEL", &night.place.declared.key("emptied")]).await),
        says: &["redis-emptied"],
        may_say: &["schedule-not-applied", "schedule-late"],
        soon: 40,
        over: 20,
    },
    Row {
        what: "nothing, all is healthy again",
        breaks: step!(|night| night.publish(20).await),
        mends: step!(|night| night.publish(20).await),
        says: &[],
        may_say: &[],
        soon: 10,
        over: 10,
    },
];

impl Night<'_> {
    fn set(&self, handler: Handler) {
        self.handler.store(handler as u8, Ordering::SeqCst);
    }

    async fn publish(&self, events: u32) {
        publish_all(&self.hatchery, (0..events).map(|_| NewEvent::new("pay", "{}")).collect()).await;
    }

    async fn say_to_redis(&self, command: &[&str]) {
        self.redis.as_ref().unwrap().say(command).await;
    }

    fn register(&self) -> RedisRegister {
        let Declared { host, topology, redis_url, .. } = self.place.declared;
        RedisRegister::new(redis_url, &host.name, &topology.name, &topology.redis).unwrap()
    }

    /// Empties Redis, and at once writes what a publisher would that has known nothing before.
    async fn empty_redis(&self) {
        let script = "redis.call('FLUSHALL'); redis.call('SET', KEYS[1], '1')";
        self.say_to_redis(&["EVAL", script, "1", &self.place.declared.key("last")]).await;
        self.place.declared.own_register().await;
    }

    fn declare_anew(&self) {
        let host = &self.place.declared.host;
        let bindings: Vec<Value> = host.list("bindings");
        host.delete("exchanges", &["t.retry"]);
        host.put(
            "exchanges",
            "t.retry",
            &json!({ "type": "topic", "durable": true, "arguments": { "x-hatchery-owner": "t" } }),
        );
        for binding in bindings.iter().filter(|binding| binding["source"] == "t.retry") {
            let name = |key: &str| binding[key].as_str().unwrap().to_owned();
            if binding["destination_type"] == "queue" {
                host.bind("t.retry", &name("destination"), &name("routing_key"));
            }
        }
    }

    async fn apply(&self, more: &[&str]) {
        let mut command = self.place.command(&["apply", "--auto-approve"]);
        command.args(more).env("RABBITMQ_MANAGEMENT_URL", self.place.declared.host.management());
        self.place.run(&mut command).await.expect(0);
    }

    /// Renames `mail` in the file. A letter of it lies there.
    async fn rename(&self) {
        let Declared { text, .. } = self.place.declared;
        let amqp = self.place.declared.amqp().await;
        amqp.publish("t.dead-letter", "mail.dead-letter", BasicProperties::default(), b"{}").await;
        self.place.write("topology.yaml", &text.replace("  mail: {", "  letter: { renamed-from: mail,"));
    }

    /// Deploys the new name everywhere but at the publisher, and clears the letter.
    async fn apply_new_name(&mut self) {
        self.apply(&["--migrate"]).await;
        let worker = Process::spawn(self.place.worker("letter", &self.place.path("mail")));
        let former = std::mem::replace(&mut self.mail, worker);
        former.signal(Signal::TERM);
        former.ended().await.expect(0);
        let discard = ["dead-letter", "discard", "--type", "letter", "--save", "letters.ndjson", "--yes"];
        let mut discard = self.place.command(&discard);
        discard.env("RABBITMQ_MANAGEMENT_URL", self.place.declared.host.management());
        self.place.run(&mut discard).await.expect(0);
        assert_eq!(self.place.lines("letters.ndjson").len(), 1);
        publish_all(&self.hatchery, (0..6).map(|_| NewEvent::new("mail", "{}")).collect()).await;
    }

    /// Returns the findings. None but that of a stranger may advise to close a connection.
    async fn look(&self) -> BTreeSet<String> {
        let ended = self.place.run(&mut status(self.place, &["--detailed-exitcode", "-o", "json"])).await;
        if ended.status.code() == Some(6) {
            return BTreeSet::from(["unreachable".to_owned()]);
        }
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        let findings = answer["findings"].as_array().unwrap();
        let advice = |finding: &Value| {
            finding["kind"] != "stranger" && finding["command"].as_str().unwrap().contains("close_connection")
        };
        assert!(!findings.iter().any(advice), "{answer:#}");
        findings.iter().map(named).collect()
    }

    /// Looks once. Returns whether `status` says all of this, or nothing if this is nothing. It says nothing but what it may.
    async fn says(&self, expected: &[&str], may_say: &[&str]) -> Result<bool, String> {
        let seen = self.look().await;
        let is_true = |said: &&String| !expected.contains(&said.as_str()) && !may_say.contains(&said.as_str());
        let others: Vec<_> = seen.iter().filter(is_true).collect();
        if !others.is_empty() {
            return Err(format!("it says {others:?}"));
        }
        Ok(if expected.is_empty() { seen.is_empty() } else { expected.iter().all(|said| seen.contains(*said)) })
    }

    /// Looks until `status` says this and no more, and returns how long that took. It says nothing but what it may.
    async fn until(&self, what: &str, expected: &[&str], may_say: &[&str], limit: u64) -> Result<Duration, String> {
        let began = Instant::now();
        loop {
            let said = self.says(expected, may_say).await;
            let elapsed = began.elapsed();
            if said.map_err(|untrue| format!("{what}: after {elapsed:.1?} {untrue}"))? {
                return Ok(elapsed);
            }
            if elapsed > SLOW * Duration::from_secs(limit) {
                return Err(format!("{what}: after {elapsed:.1?} it does not say {expected:?}"));
            }
            tokio::time::sleep(APART).await;
        }
    }

    /// Looks for a while. `status` says this each time, and nothing but what it may. On a busy machine one look may find the broker slow.
    async fn goes_on(&self, what: &str, expected: &[&str], may_say: &[&str]) -> Result<(), String> {
        let (began, mut was_untrue) = (Instant::now(), false);
        while began.elapsed() < WATCHED {
            let untrue = match self.says(expected, may_say).await {
                Ok(true) => None,
                Ok(false) => Some("it is not said".to_owned()),
                Err(untrue) => Some(untrue),
            };
            if let Some(untrue) = untrue.as_ref().filter(|_| was_untrue) {
                return Err(format!("{what}: {:.1?} after it was said {untrue}", began.elapsed()));
            }
            was_untrue = untrue.is_some();
            tokio::time::sleep(APART).await;
        }
        Ok(())
    }

    /// Breaks and mends. Returns what was untrue, and how long it took until it was said and until all was well.
    async fn go_through(&mut self, row: &Row) -> (Vec<String>, [Option<Duration>; 2]) {
        let Row { what, breaks, mends, says, may_say, soon, over } = row;
        breaks(self).await;
        let mut said = self.until(&format!("{what}, broken"), says, may_say, *soon).await;
        if said.is_ok() {
            said = self.goes_on(&format!("{what}, broken"), says, may_say).await.and(said);
        }
        mends(self).await;
        let may_still: Vec<&str> = says.iter().chain(*may_say).copied().collect();
        let well = self.until(&format!("{what}, mended"), &[], &may_still, *over).await;
        let times = [&said, &well].map(|took| took.as_ref().ok().copied());
        let mut untrue: Vec<String> = [said, well].into_iter().filter_map(Result::err).collect();
        if let Err(error) = self.until(&format!("{what}, later"), &[], &[], 120).await {
            untrue.push(error);
        }
        (untrue, times)
    }
}

/// Returns the kind of a finding, and of some kinds what they are about.
fn named(finding: &Value) -> String {
    let kind = text(finding, "kind");
    let about: Vec<&str> = match kind {
        "stranger" => finding["queues"].as_array().unwrap().iter().filter_map(Value::as_str).collect(),
        "misrouting" => finding["bindings"].as_array().unwrap().iter().filter_map(Value::as_str).collect(),
        "failing" => finding["types"].as_array().unwrap().iter().map(|failing| text(failing, "type")).collect(),
        _ => return kind.to_owned(),
    };
    format!("{kind}: {}", about.join(", "))
}

/// Prints a row of the table of times to standard output, also if the test passes.
fn print(what: &str, [said, well]: [Option<Duration>; 2]) {
    let seconds = |took: Option<Duration>| took.map_or("-".to_owned(), |took| format!("{:.1} s", took.as_secs_f64()));
    let _ = writeln!(std::io::stdout(), "| {what:<48} | {:>7} | {:>7} |", seconds(said), seconds(well));
}

/// Starts a Redis that keeps its data.
fn redis(port: u16, folder: &Path) -> Server {
    let (port_text, folder) = (port.to_string(), folder.display().to_string());
    let kept = ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--dir", &folder];
    Server::run(port, &[&["--bind", "127.0.0.1", "--port", &port_text][..], &kept].concat())
}

async fn run(handler: Arc<AtomicU8>) -> Result<Outcome, String> {
    match handler.load(Ordering::SeqCst) {
        handler if handler == Handler::Lacks as u8 => Ok(Outcome::unavailable("connection refused")),
        handler if handler == Handler::Hangs as u8 => std::future::pending().await,
        handler if handler == Handler::Fails as u8 => Err("421".to_owned()),
        _ => Ok(Outcome::Done),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "breaks a topology in a dozen ways and mends it; scripts/test --all runs it"]
async fn status_says_soon_what_is_broken_and_nothing_else_in_an_operators_night() {
    let (node, port, folder) = (Held::start(None), free_port(), TempDir::new().unwrap());
    let redis = redis(port, folder.path());
    let declared = Declared::on(node.host(), FILE, &redis.url).await;
    let place = Place::new(&declared);
    let hatchery = declared.connect_patiently().await;
    let handler = Arc::new(AtomicU8::new(Handler::Works as u8));
    let does = Arc::clone(&handler);
    let worker = hatchery.worker().handle("pay", move |_: Run| run(Arc::clone(&does)));
    let working = Working::run(worker, Runs::default());
    let script = place.write("mail", "exit 0\n");
    let mail = Process::spawn(place.worker("mail", &script));
    let mut night =
        Night { place: &place, node, redis: Some(redis), port, folder, hatchery, handler, mail, stranger: None };
    night.apply(&[]).await;
    eventually("status is well", async || night.look().await.is_empty().then_some(())).await;

    let _ = writeln!(std::io::stdout(), "| {:<48} | {:>7} | {:>7} |", "broken", "said", "well");
    let mut untrue = Vec::new();
    for row in ROWS {
        let (wrong, times) = night.go_through(row).await;
        print(row.what, times);
        untrue.extend(wrong);
    }
    assert!(untrue.is_empty(), "{untrue:#?}\n{}", fs::read_to_string(place.path("log")).unwrap_or_default());
    working.stop().await;
    night.mail.signal(Signal::TERM);
    night.mail.ended().await.expect(0);
}
