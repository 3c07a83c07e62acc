//! How a run ends, and what its handler learns of it.

use super::*;
use crate::{WorkError, handler::Run};

/// Works off one event of this type. Its handler hands out its token, and waits for it where it is told to, or for ever.
async fn run_one(world: &World, event_type: &str, waits: bool) -> CancellationToken {
    world.put(incoming(&format!("{event_type}.now"), &[]));
    let handed = Arc::new(Mutex::new(None));
    let hands_out = Arc::clone(&handed);
    let handler = move |run: Run| {
        *hands_out.lock().expect("no panic") = Some(run.lost.clone());
        async move {
            if !waits {
                std::future::pending::<()>().await;
            }
            run.lost.cancelled().await;
            Ok::<_, String>(Outcome::Done)
        }
    };
    let worker = world.worker().stop_when_empty(true);
    worker.handle(event_type, handler).run(CancellationToken::new()).await.expect("it stops when empty");
    handed.lock().expect("no panic").take().expect("it has run")
}

#[rstest]
#[case::registered("mail")]
#[case::without_the_register("plain")]
#[tokio::test(start_paused = true)]
async fn a_handler_beyond_its_time_limit_learns_that_its_run_is_over(#[case] event_type: &str) {
    let world = World::default();
    let lost = run_one(&world, event_type, false).await;
    assert!(lost.is_cancelled());
    assert!(header(&world.published(), "reason").expect("a reason").contains("handler-timeout"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_hears_that_its_lease_is_lost_and_its_outcome_counts_all_the_same() {
    let world = World::new(Script { lost: true, ..Script::default() });
    assert!(run_one(&world, "mail", true).await.is_cancelled());
    assert_eq!(world.diary.entries(), ["claim", "renew", "settle finished", "acknowledge"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_key_cannot_be_read_is_lost_alone() {
    let world = World::new(Script { unrenewed: vec!["bad".to_owned()], ..Script::default() });
    for id in ["bad", "good"] {
        let mut message = incoming("hasty.now", &[]);
        message.properties.message_id = Some(id.to_owned());
        world.put(message);
    }
    let diary = world.diary.clone();
    let handler = move |run: Run| {
        let diary = diary.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            diary.note(format!("{} lost: {}", run.event.id, run.lost.is_cancelled()));
            Ok::<_, String>(Outcome::Done)
        }
    };
    let worker = world.worker().stop_when_empty(true).handle("hasty", handler);
    worker.run(CancellationToken::new()).await.expect("it stops when empty");
    let entries = world.diary.entries();
    let noted: Vec<_> = entries.iter().filter(|entry| entry.contains("lost")).collect();
    assert_eq!(noted, ["bad lost: true", "good lost: false"]);
}

#[rstest]
#[case::side_by_side("mail")]
#[case::in_order("strict")]
#[tokio::test(start_paused = true)]
async fn a_delivery_that_outlives_its_consumer_is_not_given_back(#[case] event_type: &str) {
    let world = World::new(Script { is_broker_silent: true, ..Script::default() });
    world.careful.store(true, Ordering::SeqCst);
    for n in 0..30 {
        let mut message = incoming(&format!("{event_type}.now"), &[]);
        message.properties.message_id = Some(n.to_string());
        world.put(message);
    }
    let slow = |_| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok::<_, String>(Outcome::Done)
    };
    let worker = world.worker();
    let worker = worker.concurrency(1).stop_when_empty(true).handle(event_type, slow);
    let summary = worker.run(CancellationToken::new()).await.expect("it stops when empty");
    assert_eq!((summary.done, world.came_back()), (30, 0));
}

#[rstest]
#[case::a_follow_up("mail", &["claim", "release", "give back"])]
#[case::a_follow_up_without_the_register("plain", &["give back"])]
#[case::a_follow_up_in_order("exact", &["close"])]
#[tokio::test(start_paused = true)]
async fn an_event_whose_follow_up_cannot_be_published_on_a_closed_connection_is_given_back(
    #[case] event_type: &str,
    #[case] expected: &[&str],
) {
    let world = World::new(Script { closed: true.into(), ..Script::default() });
    world.put(incoming(&format!("{event_type}.now"), &[]));
    let worker = world.worker();
    let handler = |_| async { Ok::<_, String>(Outcome::DeadLetter { reason: "never".into() }) };
    let ended = worker.handle(event_type, handler).run(CancellationToken::new()).await;
    assert!(matches!(ended, Err(WorkError::Broker(BrokerError::Closed))), "{ended:?}");
    assert_eq!(world.diary.entries(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_released_once_redis_answers_again() {
    let world =
        World::new(Script { deaf: true.into(), unreleased: 4.into(), forgets: true.into(), ..Script::default() });
    world.put(incoming("mail.now", &[]));
    let stop = CancellationToken::new();
    let worker = world.worker();
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) }).run(stop.clone());
    let worker = tokio::spawn(worker);
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.cancel();
    worker.await.expect("no panic").expect("it was told to stop");
    tokio::time::sleep(Duration::from_secs(15)).await;
    let diary = world.diary.entries();
    let told: Vec<_> = diary.iter().filter(|entry| *entry != "ping").collect();
    assert_eq!(told, ["give back", "release nothing"], "{diary:?}");
}

/// Notes when it is dropped.
struct Noting(Diary);

impl Drop for Noting {
    fn drop(&mut self) {
        self.0.note("dropped");
    }
}

#[rstest]
#[case::at_the_time_limit(false, &["claim", "dropped", "publish t.retry mail.1s", "settle copied", "acknowledge"])]
#[case::at_the_drain_limit(true, &["claim", "dropped", "release", "give back"])]
#[tokio::test(start_paused = true)]
async fn a_handler_that_is_ended_has_let_go_of_everything_before_its_event_goes_on(
    #[case] stops: bool,
    #[case] expected: &[&str],
) {
    let world = World::default();
    world.put(incoming("mail.now", &[]));
    let (diary, stop) = (world.diary.clone(), CancellationToken::new());
    let told = stop.clone();
    let handler = move |_| {
        let held = Noting(diary.clone());
        if stops {
            told.cancel();
        }
        async move {
            std::future::pending::<()>().await;
            drop(held);
            Ok::<_, String>(Outcome::Done)
        }
    };
    let worker = world.worker().drain_timeout(Duration::ZERO);
    worker.stop_when_empty(true).handle("mail", handler).run(stop).await.expect("it ends");
    let mut diary = world.diary.entries();
    diary.retain(|entry| entry != "renew");
    assert_eq!(diary, expected);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_the_event_alone() {
    let world = World::default();
    world.put(incoming("mail.now", &[]));
    let worker = world.worker().stop_when_empty(true);
    let handler = |run: crate::handler::Run| async move {
        assert!(run.fence < Some(0), "boom");
        Ok::<_, String>(Outcome::Done)
    };
    worker.handle("mail", handler).run(CancellationToken::new()).await.expect("the worker goes on");
    assert_eq!(world.diary.entries()[1..], ["publish t.retry mail.1s", "settle copied", "acknowledge"]);
    let reason = header(&world.published(), "reason").expect("a reason");
    assert!(reason.contains("error=\"panic: boom\""), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_runs_at_the_drain_limit_is_released_and_given_back() {
    let world = World::default();
    world.put(incoming("mail.now", &[]));
    let stop = CancellationToken::new();
    let (diary, told) = (world.diary.clone(), stop.clone());
    let handler = move |_| {
        diary.note("handler");
        told.cancel();
        std::future::pending::<Result<Outcome, String>>()
    };
    let worker = world.worker().drain_timeout(Duration::ZERO);
    worker.handle("mail", handler).run(stop).await.expect("it was told to stop");
    assert_eq!(world.diary.entries(), ["claim", "handler", "release", "give back"]);
}
