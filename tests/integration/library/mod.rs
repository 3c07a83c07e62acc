//! The library, as an application uses it.

use std::{collections::BTreeMap, path::Path, process::Stdio, sync::Arc};

use futures_util::StreamExt as _;
use hatchery::{CancellationToken, NewEvent, Outcome, Run};
use rustix::process::Signal;
use tokio::sync::Mutex;
use tower::{ServiceBuilder, service_fn};

use crate::support::{
    broker::eventually,
    cli::Bench,
    declared::{Declared, publish},
    process::Process,
    redis,
};

#[tokio::test]
async fn the_payroll_example_imports_and_mails_every_change() {
    let bench = Bench::new(include_str!("../../../examples/payroll/topology.yaml"));
    bench.apply();
    let program = Path::new(env!("CARGO_BIN_EXE_topology")).with_file_name("examples").join("payroll");
    // Not built here: cargo inside a test has other environment variables, and would build most dependencies again.
    assert!(program.is_file(), "{} is missing; `cargo test` without `--test` builds the examples", program.display());
    let payroll = |verb: &str, stdout: Stdio| {
        let mut payroll = tokio::process::Command::new(&program);
        payroll.arg(verb).env("AMQP_URL", bench.host.amqp()).env("REDIS_URL", redis::url());
        payroll.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).kill_on_drop(true);
        payroll
    };

    let published = Process::spawn(payroll("publish", Stdio::piped())).ended().await.expect(0);
    assert_eq!(published.stdout.lines().filter(|line| line.starts_with("published ")).count(), 4, "{published:?}");
    let said = bench.folder().join("said");
    let worker = Process::spawn(payroll("work", std::fs::File::create(&said).unwrap().into()));
    let lines = || std::fs::read_to_string(&said).unwrap();
    eventually("both changes are imported and mailed", async || (lines().lines().count() >= 4).then_some(())).await;
    worker.signal(Signal::TERM);
    worker.ended().await.expect(0);
    let mut expected = [
        "import 1234: Ada earns 5200",
        "import 1234: Ada earns 6000",
        "mail to Ada: You earn 5200 from now on.",
        "mail to Ada: You earn 6000 from now on.",
        "done: 4, failed: 0, replaced by newer ones: 2",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut lines: Vec<String> = lines().lines().map(str::to_owned).collect();
    assert_eq!(lines.last(), expected.last(), "{lines:?}");
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn one_worker_runs_a_function_a_json_function_and_a_service() {
    let declared = Declared::new("types: { mail: {}, count: {}, plain: {} }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::json("count", &BTreeMap::from([("pages", 3)])).unwrap()).await;
    publish(&hatchery, NewEvent::new("count", "three")).await;
    publish(&hatchery, NewEvent::new("mail", "{}")).await;
    publish(&hatchery, NewEvent::new("plain", "{}")).await;

    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = |kind: &'static str| {
        let seen = Arc::clone(&seen);
        move |text: String| {
            let seen = Arc::clone(&seen);
            async move {
                seen.lock().await.push(format!("{kind} {text}"));
                Ok::<_, String>(Outcome::Done)
            }
        }
    };
    let (counted, mailed, plain) = (note("count"), note("mail"), note("plain"));
    let mail = ServiceBuilder::new().concurrency_limit(1).service(service_fn(move |run: Run| mailed(text(&run))));
    let worker = hatchery
        .worker()
        .handle_json("count", move |count: BTreeMap<String, u32>, _: Run| counted(count["pages"].to_string()))
        .service("mail", mail)
        .handle("plain", move |run: Run| plain(text(&run)))
        .stop_when_empty(true);
    let summary = worker.run(CancellationToken::new()).await.unwrap();
    let mut seen = seen.lock().await.clone();
    seen.sort();
    assert_eq!(seen, ["count 3", "mail {}", "plain {}"]);
    assert_eq!((summary.done, summary.dead_lettered), (3, 1));
    assert_eq!(declared.amqp().await.ready("t.dead-letter.count").await, 1);
}

fn text(run: &Run) -> String {
    String::from_utf8(run.event.payload.to_vec()).unwrap()
}

#[tokio::test]
async fn a_stream_of_events_is_published_completely() {
    let declared = Declared::new("types: { mail: {} }").await;
    let hatchery = declared.connect().await;
    let events = futures_util::stream::iter(0..500).map(|n: u32| NewEvent::new("mail", n.to_string()));
    let publisher = hatchery.publisher().in_flight(20);
    let published: Vec<_> = publisher.publish_stream(events).collect().await;
    assert!(published.iter().all(Result::is_ok) && published.len() == 500);
    assert_eq!(declared.amqp().await.ready(&declared.processing("mail")).await, 500);
}
