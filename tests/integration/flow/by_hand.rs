//! Dead letters that a person sends back to be handled again.

use hatchery::{NewEvent, Outcome};
use rstest::rstest;

use crate::support::{
    declared::{Declared, publish},
    logs::Logs,
    workers::Working,
};

/// The cases are the ways in which a person sends a dead letter.
#[rstest]
#[case::to_the_processor("t.processor", "import.dead-letter")]
#[case::to_its_queue("", "t.processor.import")]
#[tokio::test]
async fn a_replaced_dead_letter_that_is_sent_again_is_dropped_with_a_warning(
    #[case] exchange: &str,
    #[case] key: &str,
) {
    let logs = Logs::capture();
    let declared = Declared::new("types: { import: { coalesce: latest } }").await;
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    let worker = Working::start(&hatchery, "import", |event| match &event.payload[..] {
        b"old" => Outcome::DeadLetter { reason: "no such employee".into() },
        _ => Outcome::Done,
    });
    let event = |payload: &str| NewEvent::new("import", payload.to_owned()).reference("1234");
    let old = publish(&hatchery, event("old")).await;
    let letter = amqp.take(&declared.dead_letters("import")).await;
    publish(&hatchery, event("new")).await;
    worker.runs.reach(2).await;
    // A copy without the reason of a dead letter is dropped without a warning.
    amqp.publish("t.processor", "import.now", letter.properties.clone().with_headers(ordinary(&letter)), b"old").await;
    amqp.publish(exchange, key, letter.properties.clone(), &letter.data).await;
    amqp.expect_empty(&declared.queues()).await;
    let summary = worker.stop().await;
    assert_eq!((summary.delivered, summary.stale + summary.replaced, summary.done), (4, 2, 1), "{summary:?}");
    let said = logs.with(&["dropped an event that was re-sent by hand"]);
    assert_eq!(said.len(), 1, "{said:?}");
    let told = [
        &*old,
        "import",
        "1234",
        "a newer event of its reference has replaced it: version 1",
        "which has been handled",
    ];
    assert_eq!(logs.with(&told), said);
}

/// Returns the headers without the reason, which marks a dead letter.
fn ordinary(letter: &lapin::message::BasicGetMessage) -> lapin::types::FieldTable {
    let mut headers = lapin::types::FieldTable::default();
    for (name, value) in letter.properties.headers().as_ref().unwrap().inner() {
        if name.as_str() != "reason" {
            headers.insert(name.clone(), value.clone());
        }
    }
    headers
}

#[tokio::test]
async fn a_dead_letter_that_is_sent_again_runs_once() {
    let logs = Logs::capture();
    let declared = Declared::new("types: { import: { coalesce: latest } }").await;
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    let dead = Outcome::DeadLetter { reason: "no such employee".into() };
    let worker =
        Working::start(&hatchery, "import", move |event| if event.by_hand { Outcome::Done } else { dead.clone() });
    publish(&hatchery, NewEvent::new("import", "old").reference("1234")).await;
    let letter = amqp.take(&declared.dead_letters("import")).await;
    for _ in 0..2 {
        amqp.publish("t.processor", "import.dead-letter", letter.properties.clone(), &letter.data).await;
        amqp.expect_empty(&declared.queues()).await;
    }
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.stale), (1, 1), "{summary:?}");
    assert_eq!(logs.with(&["dropped an event that was re-sent by hand", "it has been handled"]).len(), 1);
}
