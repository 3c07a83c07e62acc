//! A hatchery worker handles the events that Python publishes: at once, through a named hatchery, through the ladder.

use std::{path::Path, time::Duration};

use hatchery::Outcome;
use jiff::Timestamp;
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
