//! `on-failure: in-place`: a few quick tries in the same worker.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use hatchery::{NewEvent, Outcome, Run};
use lapin::BasicProperties;

use crate::support::{
    amqp::shown,
    declared::{Declared, publish},
    workers::{Runs, Working},
};

fn failure(reason: &str) -> Outcome {
    Outcome::Retry { reason: reason.into(), after: None }
}

#[tokio::test]
async fn a_round_of_tries_is_one_attempt_and_the_next_round_passes_the_retry_queue() {
    let declared = Declared::new(
        "types: { mail: { on-failure: in-place, in-place: { tries: 2, delay: 60ms }, \
         retry: { delays: [150ms], max-attempts: 2 } } }",
    )
    .await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "{}")).await;
    let tries = AtomicUsize::new(0);
    let worker =
        Working::start(&hatchery, "mail", move |_| failure(&format!("try {}", tries.fetch_add(1, Ordering::SeqCst))));
    let amqp = declared.amqp().await;
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    let runs = worker.runs.seen();
    let seen: Vec<_> = runs.iter().map(|run| (run.event.attempts, run.event.stamp.generation)).collect();
    assert_eq!(seen, [(0, 0), (0, 0), (1, 1), (1, 1)]);
    // Each round has one claim, and so one fence.
    assert_eq!((runs[0].fence, runs[2].fence), (runs[1].fence, runs[3].fence));
    let waited: Vec<i128> = runs.windows(2).map(|pair| pair[1].at.duration_since(pair[0].at).as_millis()).collect();
    assert!(waited[0] >= 60 && waited[1] >= 150 && waited[2] >= 60, "{waited:?}");

    assert_eq!(shown(&letter, "attempts").as_deref(), Some("2"));
    let reason = shown(&letter, "reason").unwrap();
    assert!(reason.starts_with("given up: attempt=2 tries=2 failed_at=") && reason.ends_with("\"try 3\""), "{reason}");
    let (first, last) = (shown(&letter, "first_failure").unwrap(), shown(&letter, "last_failure").unwrap());
    assert!(first.starts_with("20") && first.ends_with("Z try 0"), "{first}");
    assert!(last.ends_with("Z try 3"), "{last}");
    let retried = runs[2].event.reason.clone().unwrap();
    assert!(retried.starts_with("retry: attempt=1 tries=2 failed_at="), "{retried}");
    let summary = worker.stop().await;
    assert_eq!((summary.delivered, summary.retried, summary.dead_lettered), (2, 3, 1));
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_type_without_retry_queues_dead_letters_after_its_tries() {
    let declared = Declared::new("types: { mail: { on-failure: in-place, in-place: { delay: 0s } } }").await;
    assert!(!declared.queues().iter().any(|queue| queue.contains(".retry.")), "{:?}", declared.queues());
    let hatchery = declared.connect().await;
    for payload in ["hopeless", "never", "third time lucky"] {
        publish(&hatchery, NewEvent::new("mail", payload)).await;
    }
    let lucky = AtomicUsize::new(0);
    let worker = Working::start(&hatchery, "mail", move |event| match &event.payload[..] {
        b"never" => Outcome::DeadLetter { reason: "never".into() },
        b"third time lucky" if lucky.fetch_add(1, Ordering::SeqCst) == 2 => Outcome::Done,
        _ => failure("no luck"),
    });
    let amqp = declared.amqp().await;
    let letters = [amqp.take(&declared.dead_letters("mail")).await, amqp.take(&declared.dead_letters("mail")).await];
    worker.runs.reach(7).await;
    let summary = worker.stop().await;
    assert_eq!((summary.delivered, summary.done, summary.dead_lettered, summary.retried), (3, 1, 2, 4));
    for letter in letters {
        let expected =
            if letter.data == b"never" { ("dead-letter: never", "0") } else { ("given up: attempt=1 tries=3 ", "1") };
        let reason = shown(&letter, "reason").unwrap();
        assert!(reason.starts_with(expected.0), "{reason}");
        assert_eq!(shown(&letter, "attempts").as_deref(), Some(expected.1));
    }
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn each_try_has_its_own_timeout_and_the_lease_lasts_through_all_tries() {
    let declared = Declared::new(
        "types: { mail: { on-failure: in-place, in-place: { tries: 6, delay: 50ms }, handler-timeout: 500ms, lease: 1500ms } }",
    )
    .await;
    let hatchery = declared.connect().await;
    let runs = Runs::default();
    let (noted, tries) = (runs.clone(), Arc::new(AtomicUsize::new(0)));
    let worker = hatchery.worker().handle("mail", move |run: Run| {
        noted.note(&run);
        let last = tries.fetch_add(1, Ordering::SeqCst) == 5;
        async move { if last { Ok::<_, String>(Outcome::Done) } else { std::future::pending().await } }
    });
    let worker = Working::run(worker, runs);
    publish(&hatchery, NewEvent::new("mail", "{}").id("the-event")).await;
    worker.runs.reach(2).await;
    // A second copy of the event, which would run if the lease had ended.
    let again = BasicProperties::default().with_message_id("the-event".into());
    let amqp = declared.amqp().await;
    amqp.publish("t.scheduler", "mail.now", again, b"{}").await;
    let runs = worker.runs.reach(6).await;
    assert!(runs.iter().all(|run| run.fence == runs[0].fence && run.event.attempts == 0), "{runs:?}");
    amqp.expect_empty(&declared.queues()).await;
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.retried, summary.stale), (1, 5, 1));
}
