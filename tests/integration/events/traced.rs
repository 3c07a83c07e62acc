//! `topology trace`: what has happened to an event, on a real stream.

use std::{process::Stdio, time::Duration};

use hatchery::{EventSelector, LifeCycleRecord, NewEvent, Outcome};
use rstest::rstest;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::{
    broker::{PATIENCE, eventually},
    declared::{Declared, publish},
    process::{Ended, Place},
    workers::Working,
};

async fn trace(place: &Place<'_>, code: i32, arguments: &[&str]) -> Ended {
    place.run(&mut place.command(&[&["trace"], arguments].concat())).await.expect(code)
}

/// Waits until the stream has told this of an event.
async fn told(place: &Place<'_>, id: &str, last: &str) {
    eventually(&format!("the stream has told {last}"), async || {
        let ended = place.run(&mut place.command(&["trace", id, "-o", "ndjson"])).await;
        ended.stdout.contains(&format!("\"transition\":\"{last}\"")).then_some(())
    })
    .await;
}

#[rstest]
#[case::by_its_id(&["a"], &["a"])]
#[case::without_a_reference(&["b"], &["b"])]
#[case::by_its_reference(&["--reference", "1234"], &["a", "c"])]
#[case::of_its_type(&["--type", "mail", "--since", "1h"], &["a", "b", "c"])]
#[tokio::test]
async fn the_life_of_an_event_is_found(#[case] arguments: &[&str], #[case] ids: &[&str]) {
    let declared = Declared::new("life-cycle: all\ntypes: { mail: {}, pay: {} }").await;
    let hatchery = declared.connect().await;
    for (event_type, id, reference) in
        [("mail", "a", "1234"), ("mail", "b", ""), ("mail", "c", "1234"), ("pay", "d", "5")]
    {
        let event = NewEvent::new(event_type, "{}").id(id);
        publish(&hatchery, if reference.is_empty() { event } else { event.reference(reference) }).await;
    }
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(3).await;
    worker.stop().await;
    let place = Place::new(&declared);
    for id in ids {
        told(&place, id, "done").await;
    }
    let ended = trace(&place, 0, &[arguments, &["-o", "json"]].concat()).await;
    let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(answer["events"], "all");
    let records = answer["records"].as_array().unwrap();
    for id in ids {
        let of_it: Vec<_> =
            records.iter().filter(|r| r["id"] == **id).map(|r| r["transition"].as_str().unwrap()).collect();
        assert_eq!(of_it, ["published", "started", "done"], "{id}: {answer:#}");
    }
    assert_eq!(records.len(), ids.len() * 3, "{answer:#}");
    let screen = trace(&place, 0, arguments).await.stdout;
    assert_eq!(screen.matches("published").count(), ids.len(), "{screen}");
}

#[tokio::test]
async fn an_event_whose_end_nobody_has_told_is_where_redis_says() {
    let declared = Declared::new("ladder: { resolution: 50ms, horizon: 2h }\ntypes: { mail: {} }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "{}").id("a").reference("1234").delay(Duration::from_hours(1))).await;
    hatchery.events().cancel(&EventSelector::id("mail", "a").of("1234")).await.unwrap();
    let place = Place::new(&declared);
    told(&place, "a", "cancelled").await;
    let ended = trace(&place, 0, &["--reference", "1234"]).await;
    assert!(ended.stdout.contains("mail  a  reference 1234") && ended.stdout.contains("cancelled"), "{ended:?}");
    assert!(ended.stderr.contains("there are no publishes, starts"), "{ended:?}");

    publish(&hatchery, NewEvent::new("mail", "{}").id("b").delay(Duration::from_hours(1))).await;
    let waits = trace(&place, 0, &["b"]).await.stdout;
    assert!(waits.contains("waiting") && waits.contains("due"), "{waits}");
    let unknown = trace(&place, 1, &["nobody"]).await;
    assert!(
        unknown.stderr.contains("Redis knows nothing of it") && unknown.stderr.contains("Oldest record: 20"),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn a_trace_ends_while_records_keep_coming() {
    let declared = Declared::new("life-cycle: all\ntypes: { mail: {}, pay: {} }").await;
    let (hatchery, place) = (declared.connect().await, Place::new(&declared));
    for event_type in ["mail", "pay"] {
        publish(&hatchery, NewEvent::new(event_type, "{}").id("a").reference(event_type)).await;
    }
    told(&place, "a", "published").await;
    let publishing = async {
        loop {
            publish(&hatchery, NewEvent::new("mail", "{}")).await;
        }
    };
    // The same id in another type has another reference, which the broker filters by.
    let arguments = ["a", "--type", "pay", "-o", "ndjson"];
    let ended = tokio::select! {
        ended = trace(&place, 0, &arguments) => ended,
        () = publishing => unreachable!("it publishes without end"),
    };
    assert_eq!(ended.stdout.matches("published").count(), 1, "{ended:?}");
}

#[tokio::test]
async fn a_topology_without_the_stream_says_so() {
    let declared = Declared::new("life-cycle: off\ntypes: { mail: {} }").await;
    let ended = trace(&Place::new(&declared), 1, &["a"]).await;
    assert!(ended.stderr.contains("`life-cycle: off`"), "{ended:?}");
}

#[tokio::test]
async fn what_happens_is_followed() {
    let declared = Declared::new("life-cycle: all\ntypes: { mail: {} }").await;
    let (hatchery, place) = (declared.connect().await, Place::new(&declared));
    publish(&hatchery, NewEvent::new("mail", "{}").id("before").reference("1234")).await;
    told(&place, "before", "published").await;
    let mut command = place.command(&["trace", "--reference", "1234", "--follow", "-o", "ndjson"]);
    let mut following = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("a line").unwrap().unwrap();
        let record = LifeCycleRecord::parse(line.as_bytes()).unwrap();
        (record.id.unwrap(), record.transition.to_string())
    };
    assert_eq!(next().await, ("before".to_owned(), "published".to_owned()));
    publish(&hatchery, NewEvent::new("mail", "{}").id("other")).await;
    publish(&hatchery, NewEvent::new("mail", "{}").id("after").reference("1234")).await;
    assert_eq!(next().await, ("after".to_owned(), "published".to_owned()));
}
