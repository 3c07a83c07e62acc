//! How a run ends, and who hears of it.

use super::{shelf::Shelf, *};
use crate::{WorkError, handler::Run};

/// Works off one event of this type. Its handler hands out its token, and waits for it where it is told to, or for ever.
async fn run_one(fake: &Arc<Fake>, event_type: &str, waits: bool) -> CancellationToken {
    fake.incoming.lock().expect("no panic").push(incoming(&format!("{event_type}.now"), &[]));
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
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).stop_when_empty(true);
    worker.handle(event_type, handler).run(CancellationToken::new()).await.expect("it stops when empty");
    handed.lock().expect("no panic").take().expect("it has run")
}

#[rstest]
#[case::registered("mail")]
#[case::without_the_register("plain")]
#[tokio::test(start_paused = true)]
async fn what_goes_on_beyond_the_time_limit_hears_that_its_run_is_over(#[case] event_type: &str) {
    let fake = Arc::new(Fake::default());
    let lost = run_one(&fake, event_type, false).await;
    assert!(lost.is_cancelled());
    assert!(header(&fake.published(), "reason").expect("a reason").contains("handler-timeout"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_hears_that_its_lease_is_lost_and_its_outcome_counts_all_the_same() {
    let fake = Arc::new(Fake { lost: true, ..Fake::default() });
    assert!(run_one(&fake, "mail", true).await.is_cancelled());
    assert_eq!(fake.diary.entries(), ["claim", "renew", "settle finished", "acknowledge"]);
}

#[rstest]
#[case::side_by_side("mail")]
#[case::in_order("strict")]
#[tokio::test(start_paused = true)]
async fn what_stays_with_the_worker_when_its_consumer_ends_is_not_given_back(#[case] event_type: &str) {
    let (shelf, fake) = (Shelf::default(), Arc::new(Fake::default()));
    shelf.be_careful();
    for n in 0..30 {
        let mut message = incoming(&format!("{event_type}.now"), &[]);
        message.properties.message_id = Some(n.to_string());
        shelf.put(message);
    }
    let slow = |_| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok::<_, String>(Outcome::Done)
    };
    let worker = Worker::new(topology(), Arc::new(shelf.clone()), fake, Arc::new(Noon));
    let worker = worker.concurrency(1).stop_when_empty(true).handle(event_type, slow);
    let summary = worker.run(CancellationToken::new()).await.expect("it stops when empty");
    assert_eq!((summary.done, shelf.came_back()), (30, 0));
}

#[rstest]
#[case::a_follow_up("mail", &["claim", "release", "give back"])]
#[case::a_follow_up_without_the_register("plain", &["give back"])]
#[case::a_follow_up_in_order("exact", &["close"])]
#[tokio::test]
async fn what_cannot_be_published_because_the_connection_was_closed_is_given_back(
    #[case] event_type: &str,
    #[case] expected: &[&str],
) {
    let fake = Arc::new(Fake { closed: true.into(), ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(incoming(&format!("{event_type}.now"), &[]));
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon));
    let handler = |_| async { Ok::<_, String>(Outcome::DeadLetter { reason: "never".into() }) };
    let ended = worker.handle(event_type, handler).run(CancellationToken::new()).await;
    assert!(matches!(ended, Err(WorkError::Broker(BrokerError::Closed))), "{ended:?}");
    assert_eq!(fake.diary.entries(), expected);
}

#[tokio::test(start_paused = true)]
async fn what_redis_did_not_hear_of_is_released_once_it_does() {
    let fake = Arc::new(Fake { deaf: true.into(), unreleased: 4.into(), ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    let stop = CancellationToken::new();
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon));
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) }).run(stop.clone());
    let worker = tokio::spawn(worker);
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.cancel();
    worker.await.expect("no panic").expect("it was told to stop");
    tokio::time::sleep(Duration::from_secs(15)).await;
    let diary = fake.diary.entries();
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
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    let (diary, stop) = (fake.diary.clone(), CancellationToken::new());
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
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).drain_timeout(Duration::ZERO);
    worker.stop_when_empty(true).handle("mail", handler).run(stop).await.expect("it ends");
    let mut diary = fake.diary.entries();
    diary.retain(|entry| entry != "renew");
    assert_eq!(diary, expected);
}

#[tokio::test]
async fn a_panic_is_a_failure_of_the_event_alone() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).stop_when_empty(true);
    let handler = |run: crate::handler::Run| async move {
        assert!(run.fence < Some(0), "boom");
        Ok::<_, String>(Outcome::Done)
    };
    worker.handle("mail", handler).run(CancellationToken::new()).await.expect("the worker goes on");
    assert_eq!(fake.diary.entries()[1..], ["publish t.retry mail.1s", "settle copied", "acknowledge"]);
    let reason = header(&fake.published(), "reason").expect("a reason");
    assert!(reason.contains("error=\"panic: boom\""), "{reason}");
}

#[tokio::test]
async fn what_runs_at_the_drain_limit_is_released_and_given_back() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    let stop = CancellationToken::new();
    let (diary, told) = (fake.diary.clone(), stop.clone());
    let handler = move |_| {
        diary.note("handler");
        told.cancel();
        std::future::pending::<Result<Outcome, String>>()
    };
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).drain_timeout(Duration::ZERO);
    worker.handle("mail", handler).run(stop).await.expect("it was told to stop");
    assert_eq!(fake.diary.entries(), ["claim", "handler", "release", "give back"]);
}

#[tokio::test]
async fn a_handler_that_cannot_start_stops_the_worker_and_spends_no_attempt() {
    struct Missing;
    #[async_trait]
    impl crate::handler::Handler for Missing {
        async fn handle(&self, _: crate::handler::Run) -> Result<Outcome, crate::handler::HandlerError> {
            Err(crate::handler::HandlerError::CannotStart("gone".into()))
        }
    }
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon));
    let error = worker.handler("mail", Arc::new(Missing)).run(CancellationToken::new()).await;
    assert!(error.expect_err("it stops").to_string().contains("gone"));
    assert_eq!(fake.diary.entries(), ["claim", "release", "give back"]);
}
