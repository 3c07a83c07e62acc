//! Rescheduling events, and running them now.

use std::time::Duration;

use hatchery::{EventSelector, MoveOutcome, NewEvent, Outcome};
use rstest::rstest;

use super::{HOUR, declared, from_now, put};
use crate::support::{
    declared::{Declared, publish, publish_all},
    process::Place,
    workers::Working,
};

const TYPES: &str = "{ import: { coalesce: latest, keep-payload: 4KiB }, newest: { coalesce: { delayed: latest }, \
                     keep-payload: 4KiB }, mail: { keep-payload: 4KiB, retry: { delays: [1h] } }, light: { coalesce: latest } }";

#[rstest]
#[case("import")]
#[case("newest")]
#[case("mail")]
#[tokio::test]
#[ignore = "runs several commands for each of three types; scripts/test --all runs it"]
async fn run_now_and_reschedule_run_a_waiting_event_once(#[case] event_type: &str) {
    let declared = declared(TYPES).await;
    let hatchery = declared.connect().await;
    put(&hatchery, event_type, "1234", "a", HOUR).await;
    put(&hatchery, event_type, "5678", "b", HOUR).await;
    let place = Place::new(&declared);
    let ended = place.events(0, &["run-now", "--type", event_type, "--reference", "1234"]).await;
    assert_eq!(ended.stdout, "Sent to run now: 1 event.\n");
    let worker = Working::start(&hatchery, event_type, |_| Outcome::Done);
    let seen = worker.runs.reach(1).await;
    assert_eq!((seen[0].event.id.as_str(), &seen[0].event.payload[..]), ("a", &b"\"a\""[..]));
    assert!(seen[0].event.reason.as_ref().unwrap().starts_with("run now: "), "{:?}", seen[0]);
    let ended = place.events(0, &["reschedule", "--type", event_type, "--reference", "5678", "--delay", "1s"]).await;
    assert!(ended.stdout.starts_with("Rescheduled to ") && ended.stdout.ends_with(": 1 event.\n"), "{ended:?}");
    assert_eq!(worker.runs.reach(2).await[1].event.id, "b");
    worker.stop().await;
    assert_eq!(place.ids(&[]).await, [""; 0]);
    let none = place.events(1, &["run-now", "--type", event_type, "--reference", "1234"]).await;
    assert!(none.stderr.contains("no event of 1234 waits"), "{none:?}");
}

#[tokio::test]
#[ignore = "waits for an event that is due in 40 s; scripts/test --all runs it"]
async fn a_rescheduled_event_does_not_run_at_its_old_time() {
    let declared = declared(TYPES).await;
    let hatchery = declared.connect().await;
    let (soon, later) = (from_now(Duration::from_secs(10)), from_now(Duration::from_secs(40)));
    let place = Place::new(&declared);
    let to = format!("{later:.3}");
    for (event_type, id) in [("import", "a"), ("newest", "b"), ("mail", "c"), ("light", "d")] {
        publish(&hatchery, NewEvent::new(event_type, "{}").reference("1234").id(id).at(soon)).await;
        let arguments = ["reschedule", "--type", event_type, "--reference", "1234", "--to", &to];
        place.events(0, &arguments).await;
    }
    let list = place.events_json(0, &["list"]).await;
    assert!(list["events"].as_array().unwrap().iter().all(|event| event["due"] == to.as_str()), "{list}");
    let mut ids = place.ids(&[]).await;
    ids.sort();
    assert_eq!(ids, ["a", "b", "c", "d"]);
    let workers = ["import", "newest", "mail", "light"]
        .map(|event_type| Working::start(&hatchery, event_type, |_| Outcome::Done));
    for worker in workers {
        let seen = worker.runs.reach(1).await;
        assert!(seen[0].at >= later, "{seen:?}");
        let runs = worker.runs.clone();
        worker.stop().await;
        assert_eq!(runs.seen().len(), 1);
    }
}

#[rstest]
#[case::run_now(None)]
#[case::reschedule(Some(Duration::from_secs(1)))]
#[tokio::test]
#[ignore = "waits twelve seconds for the former due time; scripts/test --all runs it"]
async fn an_event_that_was_brought_forward_does_not_run_again_at_its_former_time(#[case] to: Option<Duration>) {
    // The register remembers a run for four seconds, and a publish has half of them. The former copy is delivered when the run is
    // long forgotten.
    let types = "redis: { dedup-retention: 4s }\nladder: { resolution: 50ms, horizon: 2h }\n\
                 defaults: { keep-payload: 4KiB, retry: { delays: [100ms] } }\n\
                 types: { import: { coalesce: latest }, newest: { coalesce: { delayed: latest } }, mail: {} }\n";
    let declared = Declared::new(types).await;
    let hatchery = declared.connect().await;
    let events = hatchery.events();
    let workers = ["import", "newest", "mail"].map(|name| (name, Working::start(&hatchery, name, |_| Outcome::Done)));
    for (event_type, _) in &workers {
        let (which, soon) = (EventSelector::id(*event_type, "a").of("1234"), Duration::from_secs(12));
        put(&hatchery, event_type, "1234", "a", soon).await;
        if *event_type == "import" {
            // First into the slot of rescheduled events, then out of that slot again.
            events.reschedule(&which, from_now(soon + Duration::from_secs(1))).await.unwrap();
        }
        let moved = match to {
            None => events.run_now(&which).await.unwrap(),
            Some(to) => events.reschedule(&which, from_now(to)).await.unwrap(),
        };
        assert!(matches!(&moved[..], [(_, MoveOutcome::Done)]), "{moved:?}");
    }
    declared.amqp().await.expect_empty(&declared.queues()).await;
    for (event_type, worker) in workers {
        let runs = worker.runs.clone();
        let summary = worker.stop().await;
        let former = if event_type == "import" { 2 } else { 1 };
        assert_eq!((runs.seen().len(), summary.stale), (1, former), "{event_type}: {summary:?}");
    }
}

#[tokio::test]
async fn run_now_without_a_kept_payload_says_which_setting_is_missing() {
    let declared = declared(TYPES).await;
    let hatchery = declared.connect().await;
    put(&hatchery, "light", "1234", "a", HOUR).await;
    let large = NewEvent::new("import", "7".repeat(4_097)).reference("1234").id("large").delay(HOUR);
    publish(&hatchery, large).await;
    let place = Place::new(&declared);
    for event_type in ["light", "import"] {
        let named = ["--type", event_type, "--reference", "1234"];
        let ended = place.events(1, &[&["run-now"][..], &named].concat()).await;
        assert!(ended.stdout.contains("Not moved: 1 event; running it now takes its payload"), "{ended:?}");
        assert!(ended.stdout.contains("keep-payload"), "{ended:?}");
        let json = place.events_json(1, &[&["reschedule", "--to", "5m"][..], &named].concat()).await;
        assert_eq!(json["events"][0]["result"], "not-kept");
        assert!(json["events"][0]["why"].as_str().unwrap().starts_with("an earlier time takes"), "{json}");
        place.events(0, &[&["reschedule", "--to", "90m"][..], &named].concat()).await;
    }
}

#[tokio::test]
#[ignore = "moves hundreds of events; scripts/test --all runs it"]
async fn a_filter_reschedules_and_runs_hundreds_of_events() {
    let declared = declared(TYPES).await;
    let hatchery = declared.connect().await;
    let events = (0..600).map(|n| {
        let event = NewEvent::new("import", n.to_string()).reference(n.to_string()).id(n.to_string());
        event.delay(HOUR)
    });
    publish_all(&hatchery, events.collect()).await;
    let place = Place::new(&declared);
    let chosen = ["--type", "import", "--due-after", "30m"];
    let shown = place.events(0, &[&["run-now"][..], &chosen].concat()).await;
    assert!(shown.stdout.ends_with("Dry run: would run now 600 events. --yes does it.\n"), "{}", shown.stdout);
    let moved = place.events_json(0, &[&["reschedule", "--to", "45m", "--yes"][..], &chosen].concat()).await;
    assert_eq!((&moved["found"], &moved["results"]), (&600.into(), &serde_json::json!({ "done": 600 })));
    assert_eq!((moved["events"].as_array().unwrap().len(), &moved["more"]), (20, &true.into()));
    let sent = place.events(0, &[&["run-now", "--yes"][..], &chosen].concat()).await;
    assert_eq!(sent.stdout, "Sent to run now: 600 events.\n");
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(600).await;
    let runs = worker.runs.clone();
    worker.stop().await;
    let mut numbers: Vec<u32> = runs.payloads().iter().map(|text| text.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..600).collect::<Vec<_>>());
}

#[tokio::test]
async fn run_now_runs_a_dead_letter_with_its_kept_payload() {
    let declared = declared(TYPES).await;
    let hatchery = declared.connect().await;
    put(&hatchery, "mail", "", "a", Duration::ZERO).await;
    let worker = Working::start(&hatchery, "mail", |event| match event.reason {
        None => Outcome::DeadLetter { reason: "no such address".into() },
        Some(_) => Outcome::Done,
    });
    worker.runs.reach(1).await;
    let place = Place::new(&declared);
    let letter = ["list", "--state", "dead-letter"];
    crate::support::broker::eventually("the event is listed as a dead letter", async || {
        let list = place.events_json(0, &letter).await;
        list["events"].get(0).is_some().then_some(())
    })
    .await;
    let moved = hatchery.events().run_now(&EventSelector::id("mail", "a")).await.unwrap();
    assert!(matches!(&moved[..], [(_, MoveOutcome::Done)]), "{moved:?}");
    worker.runs.reach(2).await;
    assert_eq!(worker.stop().await.done, 1);
}
