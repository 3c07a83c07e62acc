//! What workers, publishers and people tell the stream of the life of events, and what becomes of events when it cannot be told.

use std::time::Duration;

use hatchery::{
    LifeCycleRecord, NewEvent, Outcome,
    jiff::{SignedDuration, Timestamp},
};
use rstest::rstest;

use crate::support::{
    broker::eventually,
    declared::{Declared, publish, publish_all},
    logs::Logs,
    process::Place,
    records::Records,
    workers::Working,
};

const STREAM: &str = "t.life-cycle";

/// Returns the transitions of an event, in order.
fn story(records: &[LifeCycleRecord], id: &str) -> Vec<String> {
    let of_it = records.iter().filter(|record| record.id.as_deref() == Some(id));
    of_it.map(|record| record.transition.to_string()).collect()
}

#[rstest]
#[case::all("all", &["published", "started", "failed", "started", "requeued", "started", "done"], &["published", "started", "discarded"])]
#[case::failures("failures", &["failed"], &["discarded"])]
#[tokio::test]
async fn the_stream_tells_what_has_happened_to_each_event(
    #[case] events: &str,
    #[case] of_the_first: &[&str],
    #[case] of_the_second: &[&str],
) {
    let file = format!("life-cycle: {events}\ntypes: {{ mail: {{ retry: {{ delays: [50ms], max-attempts: 2 }} }} }}");
    let declared = Declared::new(&file).await;
    let hatchery = declared.connect().await;
    let first = publish(&hatchery, NewEvent::new("mail", "first").reference("1234")).await;
    let second = publish(&hatchery, NewEvent::new("mail", "second")).await;
    let third = publish(&hatchery, NewEvent::new("mail", "third")).await;
    let worker = Working::start(&hatchery, "mail", |event| match (&event.payload[..], event.attempts) {
        (b"first", _) if event.reason.as_deref().is_some_and(|reason| reason.contains("not yet")) => Outcome::Done,
        (b"first", 0) => Outcome::Retry { reason: "no luck".into(), after: None },
        (b"first", _) => {
            Outcome::Requeue { at: Timestamp::now() + SignedDuration::from_millis(100), reason: "not yet".into() }
        }
        (b"second", _) => Outcome::Discard { reason: "nobody wants it".into() },
        _ => Outcome::DeadLetter { reason: "no such person".into() },
    });
    let amqp = declared.amqp().await;
    amqp.take(&declared.dead_letters("mail")).await;
    eventually("the first event is done", async || (worker.runs.count() >= 5).then_some(())).await;
    worker.stop().await;
    hatchery.close().await;
    let of_the_third = if events == "all" { 3 } else { 1 };
    let all = of_the_first.len() + of_the_second.len() + of_the_third;
    let records = Records::open(&amqp, STREAM).await.reach(all, |_| true).await;
    assert_eq!(story(&records, &first), of_the_first, "{records:#?}");
    assert_eq!(story(&records, &second), of_the_second, "{records:#?}");
    assert_eq!(story(&records, &third).last().map(String::as_str), Some("dead-lettered"), "{records:#?}");

    let failed = records.iter().find(|record| record.transition.as_str() == "failed").unwrap();
    assert_eq!(failed.event_type.as_deref(), Some("mail"));
    assert_eq!(failed.reference.as_deref(), Some("1234"));
    assert_eq!((failed.attempt, failed.max_attempts, failed.then.as_deref()), (Some(1), Some(2), Some("retry")));
    assert!(failed.due > Some(failed.at) && failed.took.is_some(), "{failed:?}");
    assert_eq!((failed.reason.as_deref(), failed.by.as_deref()), (Some("no luck"), Some("test")));
}

#[tokio::test]
async fn the_stream_tells_what_people_do() {
    let file = "ladder: { resolution: 50ms, horizon: 1h }\nhatcheries: [30m]\ntypes: { mail: { keep-payload: 4KiB } }\n\
                schedules: { daily: { type: mail, every: 1d } }";
    let declared = Declared::new(file).await;
    let place = Place::new(&declared);
    let run = async |arguments: &[&str]| place.run(&mut place.command(arguments)).await.expect(0);
    let id = |n: u32| format!("event-{n}");
    for n in 0..3 {
        run(&["publish", "mail", "--payload", "{}", "--id", &id(n), "--delay", "30m"]).await;
    }
    run(&["events", "cancel", "--type", "mail", "--id", &id(0)]).await;
    run(&["events", "reschedule", "--type", "mail", "--id", &id(1), "--delay", "40m"]).await;
    run(&["events", "run-now", "--type", "mail", "--id", &id(2)]).await;
    run(&["pause", "mail", "--reason", "the provider moves", "--until", "1h"]).await;
    run(&["pause", "--schedule", "daily", "--reason", "a holiday"]).await;
    run(&["resume", "mail"]).await;
    let amqp = declared.amqp().await;
    let records = Records::open(&amqp, STREAM).await.reach(6, |_| true).await;
    let told: Vec<_> = records.iter().map(|record| (record.transition.as_str(), record.id.as_deref())).collect();
    let (zero, one, two) = (id(0), id(1), id(2));
    let expected = [
        ("cancelled", Some(&*zero)),
        ("rescheduled", Some(&*one)),
        ("run-now", Some(&*two)),
        ("paused", None),
        ("paused", None),
        ("resumed", None),
    ];
    assert_eq!(told, expected, "{records:#?}");
    let of: Vec<_> = records.iter().filter_map(|record| record.of.as_deref()).collect();
    assert_eq!(of, ["type mail", "schedule daily", "type mail"]);
    assert_eq!(records[3].reason.as_deref(), Some("the provider moves"));
    assert!(records[3].due > Some(records[3].at), "{:?}", records[3]);
    assert!(records[1].by.as_deref().is_some_and(|by| by.starts_with("topology events @")), "{records:#?}");
}

#[tokio::test]
async fn a_burst_is_recorded_whole_and_at_once() {
    const MANY: usize = 5_000;
    let declared = Declared::new("life-cycle: all\ntypes: { mail: {} }").await;
    let (hatchery, logs) = (declared.connect_patiently().await, Logs::capture());
    let mut records = Records::open(&declared.amqp().await, STREAM).await;
    publish_all(&hatchery, (0..MANY).map(|n| NewEvent::new("mail", n.to_string())).collect()).await;
    records.reach(MANY, |record| record.transition.as_str() == "published").await;
    hatchery.close().await;
    assert_eq!(logs.with(&[]), Vec::<String>::new());
}

#[rstest]
#[case::the_exchange_is_deleted("exchanges")]
#[case::the_stream_is_deleted("queues")]
#[tokio::test]
async fn events_go_on_when_their_records_are_refused(#[case] kind: &str) {
    let declared = Declared::new("life-cycle: all\ntypes: { mail: {} }").await;
    declared.host.delete(kind, &[STREAM]);
    let logs = Logs::capture();
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    for n in 0..50 {
        publish(&hatchery, NewEvent::new("mail", n.to_string())).await;
    }
    worker.runs.reach(50).await;
    let said = "what happens to events is not recorded";
    eventually("the worker says so", async || (!logs.with(&[said]).is_empty()).then_some(())).await;
    let summary = worker.stop().await;
    assert_eq!((summary.done, logs.with(&[said]).len()), (50, 1));

    declared.apply().await;
    let mut records = Records::open(&declared.amqp().await, STREAM).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    // The next try comes some seconds after the last error.
    eventually("the stream is told again", async || {
        publish(&hatchery, NewEvent::new("mail", "again")).await;
        (!records.rest(Duration::from_millis(100)).await.is_empty()).then_some(())
    })
    .await;
    worker.stop().await;
}
