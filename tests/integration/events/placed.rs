//! `topology events show` of events that are not where their state in Redis puts them.

use hatchery::{EventSelector, MoveOutcome, NewEvent, Outcome, parse_time};
use serde_json::{Value, json};

use super::declared;
use crate::support::{
    broker::eventually,
    declared::{Declared, publish},
    process::Place,
    workers::Working,
};

const KEPT: &str = "{ mail: { keep-payload: 4KiB }, import: {} }";

/// Returns an event that was due long ago, so that it cannot be on its way to its queue.
fn overdue(event_type: &str, id: &str) -> NewEvent {
    NewEvent::new(event_type, format!("\"{id}\"")).id(id).at(parse_time("2026-06-01T09:00:00Z").unwrap())
}

/// Runs `topology events show ID` until its JSON is as expected: the management API's figures are some seconds old.
async fn shown(place: &Place<'_>, id: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
    eventually("the event is shown where it is", async || {
        let mut command = place.command(&["events", "show", id, "-o", "json"]);
        let command = command.env("RABBITMQ_MANAGEMENT_URL", place.declared.host.management());
        let ended = place.run(command).await.expect(0);
        let event = serde_json::from_str::<Value>(&ended.stdout).unwrap()["events"][0].take();
        is_expected(&event).then_some(event)
    })
    .await
}

fn says(event: &Value, part: &str) -> bool {
    event["where"].as_str().unwrap().contains(part)
}

/// Whether no queue can have the event. At first the management API may still count a message that has just been taken.
fn is_removed(event: &Value) -> bool {
    event["queues"] == json!([]) && says(event, "somebody removed its message")
}

#[tokio::test]
#[ignore = "looks twice, six seconds apart; scripts/test --all runs it"]
async fn show_names_unrouted_where_an_event_is_that_no_queue_took() {
    let declared = declared("{ mail: {} }").await;
    let place = Place::new(&declared);
    // The file has a type that was not applied.
    place.write("topology.yaml", &declared.text.replace("{ mail: {} }", "{ mail: {}, import: {} }"));
    let publish = ["publish", "import", "--id", "lost", "--payload", "{}", "--at", "2026-06-01T09:00:00Z"];
    place.run(&mut place.command(&publish)).await.expect(0);
    let event = shown(&place, "lost", |event| event["queues"] == json!(["t.unrouted"])).await;
    assert!(says(&event, "t.unrouted (1 message)"), "{event}");
    assert!(!says(&event, "waits for a worker"), "{event}");
    assert_eq!(event["commands"], json!(["topology dead-letter show --unrouted lost"]));
    let letter = place.run(&mut place.command(&["dead-letter", "show", "--unrouted", "lost"])).await.expect(0);
    assert!(letter.stdout.contains("t.unrouted"), "{letter:?}");
}

#[tokio::test]
#[ignore = "looks twice, six seconds apart, several times; scripts/test --all runs it"]
async fn show_says_that_a_message_was_removed_and_run_now_brings_it_back_once() {
    let declared = declared(KEPT).await;
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    let place = Place::new(&declared);
    publish(&hatchery, overdue("mail", "kept")).await;
    publish(&hatchery, overdue("import", "not-kept")).await;
    let removed = amqp.take(&declared.processing("mail")).await;
    amqp.take(&declared.processing("import")).await;

    let event = shown(&place, "not-kept", is_removed).await;
    assert!(says(&event, "t.processor.import (0 ready, 0 unacknowledged)"), "{event}");
    assert!(says(&event, "its payload is not kept"), "{event}");
    assert_eq!(event["commands"], json!([]));

    let event = shown(&place, "kept", is_removed).await;
    assert_eq!(event["commands"], json!(["topology events run-now --type mail --id kept"]));
    place.events(0, &["run-now", "--type", "mail", "--id", "kept"]).await;
    let event = shown(&place, "kept", |event| says(event, "t.processor.mail (1 ready")).await;
    assert!(!says(&event, "removed"), "{event}");

    // The former message turns up after all, before and after the run.
    let (properties, body) = (removed.delivery.properties.clone(), removed.delivery.data.clone());
    amqp.publish("t.processor", "mail", properties.clone(), &body).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(1).await;
    amqp.publish("t.processor", "mail", properties, &body).await;
    amqp.expect_empty(&[declared.processing("mail")]).await;
    assert_eq!(worker.runs.payloads(), ["\"kept\""]);
    worker.stop().await;
}

#[tokio::test]
#[ignore = "looks twice, six seconds apart; scripts/test --all runs it"]
async fn show_says_that_a_dead_letter_was_removed() {
    let declared = declared(KEPT).await;
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    let place = Place::new(&declared);
    publish(&hatchery, overdue("mail", "hopeless")).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::DeadLetter { reason: "no such address".into() });
    worker.runs.reach(1).await;
    worker.stop().await;
    let event = shown(&place, "hopeless", |event| says(event, "t.dead-letter.mail (1 ready")).await;
    assert_eq!(event["commands"], json!(["topology dead-letter show --type mail hopeless"]));

    amqp.take(&declared.dead_letters("mail")).await;
    let event = shown(&place, "hopeless", is_removed).await;
    assert!(!says(&event, "for people"), "{event}");
    assert_eq!(event["state"], "dead-letter");
    assert_eq!(event["commands"], json!(["topology events run-now --type mail --id hopeless"]));
    let moved = hatchery.events().run_now(&EventSelector::id("mail", "hopeless")).await.unwrap();
    assert!(matches!(&moved[..], [(_, MoveOutcome::Done)]), "{moved:?}");
}

#[tokio::test]
async fn show_says_that_the_worker_of_a_started_event_may_be_gone() {
    let declared = declared("{ mail: { lease: 500ms } }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, overdue("mail", "killer").reference("ann")).await;
    let (worker, _gate) = Working::gated(hatchery.worker(), "mail");
    worker.runs.reach(1).await;
    let place = Place::new(&declared);
    let event = shown(&place, "killer", |event| event["state"] == "running").await;
    assert_eq!((&event["leased"], &event["starts"]), (&true.into(), &1.into()));
    worker.kill().await;
    let event = shown(&place, "killer", |event| event["state"] == "started").await;
    assert_eq!((&event["leased"], &event["starts"]), (&false.into(), &1.into()));
    assert!(!says(&event, "a worker has it"), "{event}");
    let text = place.events(0, &["show", "--type", "mail", "--reference", "ann"]).await.stdout;
    assert!(text.contains("state      started\n") && text.contains("starts     1, none of which has ended"), "{text}");
}

#[tokio::test]
async fn what_redis_does_not_know_is_looked_for_among_the_letters() {
    let declared: Declared = declared("{ mail: {} }").await;
    let place = Place::new(&declared);
    let unknown = place.events(1, &["show", "poison-1"]).await;
    let command = "`topology dead-letter show poison-1`, also with --unrouted";
    assert!(
        unknown.stderr.contains("nothing is known of the event poison-1") && unknown.stderr.contains(command),
        "{unknown:?}"
    );
    let none = place.run(&mut place.command(&["dead-letter", "show", "poison-1"])).await.expect(1);
    assert!(none.stderr.contains("no such letter; --unrouted searches"), "{none:?}");
}
