//! Events of a busy reference wait in memory for a moment, and after that in a hatchery.

use hatchery::NewEvent;

use crate::support::{
    amqp::shown,
    broker::eventually,
    declared::{Declared, publish},
    workers::Working,
};

async fn exclusive(more: &str) -> Declared {
    Declared::new(&format!("types: {{ mail: {{ exclusive: on, {more} }} }}")).await
}

#[tokio::test]
async fn an_event_whose_reference_is_busy_for_a_moment_waits_in_memory() {
    let declared = exclusive("prefetch: 8, concurrency: 4").await;
    let hatchery = declared.connect().await;
    for n in 0..4 {
        publish(&hatchery, NewEvent::new("mail", n.to_string()).reference("1234")).await;
    }
    let (worker, gate) = Working::gated(hatchery.worker(), "mail");
    worker.runs.reach(1).await;
    gate.let_through(4);
    let runs = worker.runs.reach(4).await;
    assert!(runs.iter().all(|run| run.event.busy == 0), "{runs:?}");
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.busy, summary.delivered), (4, 0, 4));
}

#[tokio::test]
async fn an_event_whose_reference_stays_busy_leaves_the_worker_after_a_second() {
    let declared = exclusive("prefetch: 8, concurrency: 4").await;
    let hatchery = declared.connect().await;
    for n in 0..2 {
        publish(&hatchery, NewEvent::new("mail", n.to_string()).reference("1234").reason("why")).await;
    }
    let (worker, gate) = Working::gated(hatchery.worker(), "mail");
    let first = worker.runs.reach(1).await.remove(0);
    let amqp = declared.amqp().await;
    // Looks as the management UI does: the message is put back afterwards.
    let looked = async || {
        for hatchery in amqp.filled(&declared.hatcheries()).await.into_keys() {
            if let Some(message) = amqp.look(&hatchery).await {
                return Some(message);
            }
        }
        None
    };
    let message = eventually("the event waits in a hatchery", looked).await;
    let reason = shown(&message, "reason").unwrap();
    assert!(
        reason.starts_with("busy: times=") && reason.ends_with(" its reference was taken, or could not be read; why"),
        "{reason}"
    );
    gate.let_through(2);
    let second = worker.runs.reach(2).await.remove(1);
    assert!(second.event.busy >= 1, "{second:?}");
    assert_eq!(second.event.reason.as_deref(), Some("why"), "{second:?}");
    assert!(second.at.duration_since(first.at).as_millis() >= 1_250, "{second:?}");
    let summary = worker.stop().await;
    assert_eq!(summary.done, 2);
}

/// With a prefetch of 4, at most two waiting events are held in memory.
#[tokio::test]
async fn a_busy_reference_does_not_take_the_whole_prefetch() {
    let declared = exclusive("prefetch: 4, concurrency: 4").await;
    let hatchery = declared.connect().await;
    for n in 0..6 {
        publish(&hatchery, NewEvent::new("mail", n.to_string()).reference("busy")).await;
    }
    publish(&hatchery, NewEvent::new("mail", "other").reference("other")).await;
    let (worker, gate) = Working::gated(hatchery.worker(), "mail");
    let runs = worker.runs.reach(2).await;
    assert_eq!(runs[1].event.reference.as_ref().unwrap().as_str(), "other");
    assert_eq!(runs[1].event.busy, 0, "the event of the other reference had to wait");
    gate.let_through(7);
    let runs = worker.runs.reach(7).await;
    assert!(runs.iter().any(|run| run.event.busy > 0), "{runs:?}");
    let amqp = declared.amqp().await;
    eventually("all events are handled", async || amqp.filled(&declared.passages()).await.is_empty().then_some(()))
        .await;
    let summary = worker.stop().await;
    assert_eq!(summary.done, 7);
}
