//! A hatchery worker handles the events that Python publishes: at once, through a named hatchery, through the ladder. Python
//! computes the same keys, names and times as hatchery.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use hatchery::{
    Outcome, Ttl,
    internals::{
        delay::{Ladder, Route},
        time::millis_text,
    },
};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

use super::{example, folder};
use crate::support::{
    declared::Declared,
    process::{Place, python},
    workers::{Seen, Working},
};

/// Publishes one event, and returns the producer's output.
async fn publish(place: &Place<'_>, arguments: &[&str]) -> Value {
    let arguments = [&["mail", "--hatcheries", "300ms,1h"], arguments].concat();
    let ended = place.run(&mut example(place, "publish.py", &arguments)).await.expect(0);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn nbf(published: &Value) -> Option<Timestamp> {
    published["nbf"].as_str().map(|text| text.parse().unwrap())
}

#[tokio::test]
async fn events_with_every_kind_of_delay_reach_the_worker_and_none_early() {
    let declared = Declared::new("hatcheries: [300ms, 1h]\ntypes: { mail: {} }").await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let place = Place::new(&declared);
    let ways: [(&[&str], &str); 6] = [
        (&[], "mail.now"),
        (&["--delay", "300ms"], "mail.300ms"),
        (&["--delay", "1ms"], "mail.50ms-5.1.0.0.0.0"),
        (&["--delay", "650ms"], "mail.50ms-5.1.0.1.1.0"),
        (&["--delay", "651ms"], "mail.50ms-5.0.1.1.1.0"),
        // Beyond the horizon of 1.55 s, so the event passes the ladder more than once.
        (&["--delay", "2s"], "mail.50ms-5.1.1.1.1.1"),
    ];
    let mut published = Vec::new();
    for (arguments, key) in ways {
        let payload = format!("{{\"way\" :  \"{key}\"}}");
        let more = ["--payload", &payload, "--reference", "Ünï 1"];
        let event = publish(&place, &[arguments, &more].concat()).await;
        assert_eq!(event["key"], key);
        published.push((event, payload));
    }
    // A date with more digits than `nbf` has. On a slow machine little of the delay is left when it is published.
    let at = format!("{:.9}", Timestamp::now() + Duration::from_secs(4));
    published.push((publish(&place, &["--at", &at]).await, "{}".to_owned()));
    // A past date is due now.
    let past = publish(&place, &["--at", "2020-06-01T09:00:00Z"]).await;
    assert_eq!(past["key"], "mail.now");
    published.push((past, "{}".to_owned()));

    let runs = worker.runs.reach(published.len()).await;
    for (event, payload) in &published {
        let of_it: Vec<&Seen> = runs.iter().filter(|run| event["id"] == run.event.id.as_str()).collect();
        let [run] = of_it[..] else { panic!("{event} ran {} times", of_it.len()) };
        assert_eq!(run.event.payload, payload.as_bytes());
        assert_eq!((run.event.nbf, run.event.attempts), (nbf(event), 0));
        assert_eq!(run.event.content_type.as_deref(), Some("application/json"));
        assert!(nbf(event).is_none_or(|nbf| run.at >= nbf), "early: {run:?}");
    }
    assert_eq!(published.iter().filter(|(event, _)| nbf(event).is_some()).count(), 7);
    assert_eq!(runs[0].event.reference.as_ref().map(ToString::to_string).as_deref(), Some("Ünï 1"));
    assert_eq!(worker.stop().await.done, published.len() as u64);
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty(), "a message is left in a queue");
}

#[tokio::test]
async fn an_event_with_an_unknown_delay_is_kept_in_the_unrouted_queue() {
    let declared = Declared::new("types: { mail: {} }").await;
    let place = Place::new(&declared);
    let published = publish(&place, &["--delay", "1h"]).await;
    let kept = declared.amqp().await.take("t.unrouted").await;
    assert_eq!((published["key"].as_str(), kept.routing_key.as_str()), (Some("mail.1h"), "mail.1h"));
}

/// `docs/wire-format.md` says that a message with a reference and no version is not coalesced, and how to get a
/// version.
#[tokio::test]
async fn events_published_through_topology_publish_are_coalesced_and_those_sent_with_pika_are_not() {
    let declared = Declared::new("types: { import: { coalesce: latest } }").await;
    let place = Place::new(&declared);
    let lines: Vec<String> =
        (1..=5).map(|n| format!("{{\"type\": \"import\", \"reference\": \"1234\", \"payload\": {n}}}")).collect();
    let mut command = place.program(python());
    let binaries = Path::new(env!("CARGO_BIN_EXE_topology")).parent().unwrap().display();
    command.env("PATH", format!("{binaries}:{}", std::env::var("PATH").unwrap()));
    let input = std::fs::File::open(place.write("events.ndjson", &(lines.join("\n") + "\n"))).unwrap();
    let ended = place.run(command.arg(folder().join("batch.py")).stdin(input)).await.expect(0);
    assert_eq!(ended.stdout.lines().count(), 5, "{ended:?}");
    let newest = ended.stdout.lines().last().unwrap();

    let list = async || place.run(&mut place.command(&["events", "list", "-o", "ndjson"])).await.expect(0).stdout;
    let listed = list().await;
    assert!(listed.lines().count() == 1 && listed.contains(newest), "{listed}");
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(1).await;
    declared.amqp().await.expect_empty(&declared.passages()).await;
    let runs = worker.runs.clone();
    assert_eq!((worker.stop().await.done, runs.payloads()), (1, vec!["5".to_owned()]));

    for n in 1..=5 {
        let payload = format!("{n}");
        let more = ["import", "--reference", "1234", "--payload", &payload];
        place.run(&mut example(&place, "publish.py", &more)).await.expect(0);
    }
    assert_eq!(list().await, "");
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(5).await;
    assert_eq!(worker.stop().await.done, 5);
}

/// Evaluates a Python expression of `line` for each line, and returns the results.
fn ask(expression: &str, lines: &[String]) -> Vec<String> {
    let program = format!("import sys, wire\nfor line in sys.stdin:\n  line = line.rstrip()\n  print({expression})");
    let mut python = Command::new(python())
        .args(["-c", &program])
        .env("PYTHONPATH", folder())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = python.stdin.take().unwrap();
    let lines = lines.join("\n");
    let writing = std::thread::spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
    let output = python.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Returns numbers that are spread over all magnitudes up to this many bits.
fn numbers(count: u64, bits: u32) -> impl Iterator<Item = u64> {
    let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    (1..=count).map(move |n| spread(n) >> (u64::BITS - 1 - u32::try_from(n).unwrap() % bits))
}

fn ttl(text: &str) -> Ttl {
    text.parse().unwrap()
}

#[test]
fn python_computes_the_same_routing_key_for_every_delay() {
    let hatcheries = [ttl("5s"), ttl("1m"), ttl("90m")];
    let mut asked = Vec::new();
    let mut expected = Vec::new();
    for (resolution, horizon) in [("250ms", "365d"), ("50ms", "1500ms"), ("1s", "1s"), ("7ms", "3650d"), ("1m", "30d")]
    {
        let ladder = Ladder::new(ttl(resolution), ttl(horizon)).unwrap();
        let steps = [0, 1, 2, 3].map(|n| n * ladder.resolution().as_millis());
        let around = steps.into_iter().flat_map(|ms| [ms.saturating_sub(1), ms, ms + 1]);
        for ms in around.chain([4_999, 5_000, 60_000, 5_400_000]).chain(numbers(1_000, 40)) {
            asked.push(format!("{ms} {ladder}"));
            let route = Route::after(Duration::from_millis(ms), &hatcheries, ladder);
            expected.push(route.key(&"mail".parse().unwrap()));
        }
    }
    let route = "wire.route('mail', int(line.split()[0]), ['5s', '60s', '90m'], line.split()[1])";
    assert_eq!(ask(route, &asked), expected);
}

#[test]
fn python_gives_a_ttl_the_same_name() {
    let millis: Vec<u64> =
        numbers(500, 38).chain([1, 1_000, 60_000, 90_000, 86_400_000]).filter(|ms| *ms > 0).collect();
    let names: Vec<String> =
        millis.iter().map(|ms| Ttl::new(Duration::from_millis(*ms)).unwrap().to_string()).collect();
    let asked: Vec<String> = millis.iter().map(ToString::to_string).collect();
    assert_eq!(ask("wire.ttl_name(int(line))", &asked), names);
    assert_eq!(ask("wire.millis(line)", &names), asked);
}

#[test]
fn python_reads_and_writes_times_in_the_same_way() {
    let times = numbers(300, 41).map(|ms| Timestamp::from_millisecond(i64::try_from(ms).unwrap()).unwrap());
    let times: Vec<String> = times.map(millis_text).collect();
    let here = TimeZone::fixed(jiff::tz::offset(-7));
    let asked: Vec<String> = times
        .iter()
        .map(|text| {
            text.parse::<Timestamp>().unwrap().to_zoned(here.clone()).strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string()
        })
        .collect();
    assert_eq!(ask("wire.time_text(wire.parse_time(line))", &asked), times);
    // Finer times are rounded up, so that no event is early.
    let finer = ["2026-06-01T09:00:00.0001Z", "2026-06-01T09:00:00.123000001Z", "2026-06-01T08:59:59.9999999Z"];
    let rounded = ["2026-06-01T09:00:00.001Z", "2026-06-01T09:00:00.124Z", "2026-06-01T09:00:00.000Z"];
    assert_eq!(ask("wire.time_text(wire.parse_time(line))", &finer.map(str::to_owned)), rounded);
}
