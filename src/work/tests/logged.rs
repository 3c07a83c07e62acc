//! What a log says, and how often.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_outage_is_said_once_when_it_begins_and_once_when_it_is_over() {
    let (log, world) = (Log::default(), World::new(Script { lose: AtomicUsize::new(3), ..Script::default() }));
    let _kept = log.keep();
    let publisher = world.publisher();
    let events = (1..=3).map(|n| NewEvent::new("mail", n.to_string())).collect();
    assert!(publisher.publish_batch(events).await.iter().all(Result::is_ok));
    assert_eq!(log.lines("publishing waits").len(), 1, "{:?}", log.lines(""));
    assert_eq!(log.lines("the broker confirms again").len(), 1, "{:?}", log.lines(""));
}

/// Redis answers a ping and no claim.
#[tokio::test(start_paused = true)]
async fn an_outage_of_claims_alone_is_logged_once_when_it_begins_and_once_when_it_ends() {
    let log = Log::default();
    let _kept = log.keep();
    let world = World::new(Script { deaf: true.into(), ..Script::default() });
    for n in 0..10 {
        let mut message = incoming("mail.now", &[]);
        message.properties.message_id = Some(n.to_string());
        world.put(message);
    }
    let stop = CancellationToken::new();
    let worker = world.worker();
    let worker = tokio::spawn(worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) }).run(stop.clone()));
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(log.lines("no event of a type that needs it is started").len(), 1, "{:?}", log.lines("WARN"));
    assert!(log.lines("Redis answers again").is_empty(), "{:?}", log.lines("WARN"));
    world.deaf.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(log.lines("Redis answers again").len(), 1, "{:?}", log.lines("WARN"));
    stop.cancel();
    assert_eq!(worker.await.expect("no panic").expect("it was told to stop").done, 10);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_killed_its_worker_before_is_logged_when_it_runs_again() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    let message = incoming("strict.now", &[]);
    let stamp = CopyVersion::uncontested("id-1", 0);
    world.claims.lock().expect("no panic").push(ClaimAnswer::Run { fence: 9, crashes: 7, stamp });
    world.put(message);
    work(&world, Outcome::Done).await;
    let said = log.lines("it was started before and never settled").concat();
    assert!(said.contains("id=id-1 event_type=strict crashes=7"), "{:?}", log.lines(""));
}

#[rstest]
#[case::no_event(incoming("mail.now", &[("attempts", Value::text("many"))]), "poison: the header `attempts`")]
#[case::too_large(incoming("mail.now", &[("x", Value::text(&"x".repeat(100_000)))]), "no room for those of a copy")]
#[tokio::test(start_paused = true)]
async fn a_message_that_is_no_event_is_logged(#[case] message: Incoming, #[case] what: &str) {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    world.put(message);
    work(&world, Outcome::Done).await;
    let said = log.lines(what).concat();
    assert!(said.contains("id-1") && said.contains("event_type=mail"), "{:?}", log.lines(""));
}

#[rstest]
#[case::retry(
    "mail",
    failure(),
    "INFO",
    "attempt 1 of 3 failed, retrying in 1s: no luck event_type=mail id=id-1 in=0ms"
)]
#[case::asked_for("mail", Outcome::Retry { reason: "busy".into(), after: Some(Duration::from_secs(7)) }, "INFO", "attempt 1 of 3 failed, retrying in 7s: busy")]
#[case::dead_letter(
    "mail",
    Outcome::dead_letter("no such mailbox"),
    "WARN",
    "event dead-lettered: dead-letter: no such mailbox event_type=mail id=id-1 in=0ms"
)]
#[case::drop("ping", failure(), "WARN", "event dropped after a failure: drop: attempt=1")]
#[case::discard(
    "mail",
    Outcome::discard("left"),
    "INFO",
    "discarded by its handler: left event_type=mail id=id-1 in=0ms"
)]
#[case::in_place("quick", failure(), "INFO", "try 1 of attempt 1 failed, trying again in 1ms: no luck")]
#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_no_success_has_one_line(
    #[case] event_type: &str,
    #[case] outcome: Outcome,
    #[case] level: &str,
    #[case] expected: &str,
) {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    world.put(incoming(&format!("{event_type}.now"), &[]));
    work(&world, outcome).await;
    let said = log.lines(expected);
    assert!(said.len() == 1 && said[0].contains(level), "{:?}", log.lines(""));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_blocks_its_type_says_so_at_each_attempt() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    world.put(incoming("strict.now", &[]));
    let fails = AtomicUsize::new(2);
    let handler = move |_| {
        let is_failing = fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        std::future::ready(if is_failing { failure() } else { Outcome::Done })
    };
    let worker = world.worker().stop_when_empty(true).handle("strict", handler);
    worker.run(CancellationToken::new()).await.expect("it goes on");
    for attempt in [1, 2] {
        let expected = format!("attempt {attempt} failed, trying again in 1ms; the events behind it wait: no luck");
        assert_eq!(log.lines(&expected).len(), 1, "{:?}", log.lines(""));
    }
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_counts_once_the_broker_has_it() {
    let world = World::new(Script { lose: AtomicUsize::new(usize::MAX), ..Script::default() });
    world.put(incoming("mail.now", &[]));
    let summary = fail_and_stop(&world).await;
    assert_eq!((summary.delivered, summary.retried), (1, 0), "{summary:?}");
}

#[tokio::test(start_paused = true)]
async fn a_requeue_beyond_the_horizon_is_told_and_keeps_its_date() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    world.put(incoming("mail.now", &[]));
    let at = Noon.now() + Duration::from_hours(24 * 3_000);
    work(&world, Outcome::Requeue { at, reason: "end_date".into() }).await;
    let said = log.lines("beyond the ladder's horizon").concat();
    assert!(said.contains("WARN") && said.contains("id=id-1 event_type=mail"), "{:?}", log.lines(""));
    let sent = world.published.lock().expect("no panic");
    let nbf = sent.iter().find_map(|message| message.properties.headers.get("nbf"));
    assert_eq!(nbf, Some(&Value::text(&format!("{at:.3}"))));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_redelivered_often_is_logged() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    world.put(incoming("mail.now", &[came_back(50)]));
    work(&world, Outcome::Done).await;
    let said = log.lines("event redelivered 50 times").concat();
    assert!(said.contains("WARN") && said.contains("id=id-1 event_type=mail returns=50"), "{:?}", log.lines(""));
}
