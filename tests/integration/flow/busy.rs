//! A reference that is busy: its events wait in memory for a moment, and then by way of the busy hatchery.

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
async fn what_is_busy_for_a_moment_waits_in_memory() {
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
async fn what_stays_busy_leaves_after_a_second() {
    let declared = exclusive("prefetch: 8, concurrency: 4").await;
    let hatchery = declared.connect().await;
    for n in 0..2 {
        publish(&hatchery, NewEvent::new("mail", n.to_string()).reference("1234").reason("why")).await;
    }
    let (worker, gate) = Working::gated(hatchery.worker(), "mail");
    let first = worker.runs.reach(1).await.remove(0);
    let amqp = declared.amqp().await;
    // As in the management UI: it is there again afterwards.
    let looked = async || {
        for hatchery in amqp.filled(&declared.hatcheries()).await.into_keys() {
            if let Some(message) = amqp.look(&hatchery).await {
                return Some(message);
            }
        }
        None
    };
    let message = eventually("it is in the busy hatchery", looked).await;
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

/// Of a prefetch of 4 two places are for those that wait.
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
    assert_eq!(runs[1].event.busy, 0, "it was let past, and waited for nobody");
    gate.let_through(7);
    let runs = worker.runs.reach(7).await;
    assert!(runs.iter().any(|run| run.event.busy > 0), "{runs:?}");
    let amqp = declared.amqp().await;
    eventually("all is handled", async || amqp.filled(&declared.passages()).await.is_empty().then_some(())).await;
    let summary = worker.stop().await;
    assert_eq!(summary.done, 7);
}
