//! The end of a delivery, by what it holds, and by what the register answers to its claim.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_too_early_waits_for_the_rest_of_its_time() {
    let world = World::default();
    let nbf = Value::text("2026-06-01T12:00:00.001Z");
    world.put(incoming("mail.now", &[("nbf", nbf)]));
    let diary = work(&world, Outcome::Done).await;
    assert_eq!(diary.len(), 2, "{diary:?}");
    assert!(diary[0].starts_with("publish t.scheduler mail.250ms-27.1.0.0"), "{}", diary[0]);
    assert!(diary[0].ends_with(".0.0"), "{}", diary[0]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_no_event_is_dead_lettered_as_it_came() {
    let world = World::default();
    let foreign = ("x-foreign", Value::Array(vec![Value::Bool(true)]));
    let headers = [("attempts", Value::text("many")), foreign.clone(), ("x-death", Value::Void)];
    world.put(incoming("mail.now", &headers));
    let diary = work(&world, Outcome::Done).await;
    assert_eq!(diary, ["publish t.dead-letter mail.dead-letter", "acknowledge"]);
    let buried = world.published();
    assert_eq!(buried.properties.headers.get(foreign.0), Some(&foreign.1));
    assert_eq!(buried.properties.headers.get("x-death"), None);
    assert_eq!(header(&buried, "attempts").as_deref(), Some("many"));
    let reason = header(&buried, "reason").expect("a reason");
    assert!(reason.starts_with("poison: the header `attempts`"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_headers_are_too_large_to_copy_is_rejected() {
    let world = World::default();
    world.put(incoming("mail.now", &[("x-large", Value::Text(vec![b'x'; 100_000]))]));
    assert_eq!(work(&world, Outcome::Done).await, ["reject"]);
}

#[tokio::test(start_paused = true)]
async fn the_queue_decides_the_type_of_a_message_that_was_moved_to_it_by_hand() {
    let world = World::default();
    world.broker.put("t.processor.mail", incoming("t.processor.mail", &[]));
    let worker = world.worker().stop_when_empty(true);
    let handler = |run: crate::handler::Run| async move { Err::<Outcome, _>(run.event.event_type.to_string()) };
    worker.handle("mail", handler).run(CancellationToken::new()).await.expect("it stops when empty");
    assert_eq!(world.diary.entries()[1], "publish t.retry mail.1s");
    assert_eq!(world.published().properties.kind.as_deref(), Some("mail"));
}

#[rstest]
#[case::stale(ClaimAnswer::Stale, &["claim", "acknowledge"])]
#[case::replaced(ClaimAnswer::Replaced, &["claim", "acknowledge"])]
#[case::busy(ClaimAnswer::Busy, &["claim", "claim", "handler", "settle finished", "acknowledge"])]
#[case::later(ClaimAnswer::Later("2026-06-01T12:00:05Z".parse().expect("a time")), &["claim", "publish t.scheduler mail.5s", "acknowledge"])]
#[case::suspect(ClaimAnswer::Alone, &["claim", "claim alone", "handler", "settle finished", "acknowledge"])]
#[tokio::test(start_paused = true)]
async fn the_register_decides_whether_it_runs(#[case] answer: ClaimAnswer, #[case] expected: &[&str]) {
    let world = World::new(Script { claims: Mutex::new(vec![answer]), ..Script::default() });
    world.put(incoming("mail.now", &[("generation", Value::I64(3))]));
    assert_eq!(work(&world, Outcome::Done).await, expected);
    for copy in world.published.lock().expect("no panic").iter() {
        assert_eq!(header(copy, "generation").as_deref(), Some("3"), "the same copy waits on");
        assert_eq!(header(copy, "attempts").as_deref(), Some("0"), "no attempt is spent");
    }
}

/// It is noon here, and not there yet.
#[rstest]
#[case::past("2026-06-01T11:59:50Z")]
#[case::now("2026-06-01T12:00:00Z")]
#[case::in_a_moment("2026-06-01T12:00:00.001Z")]
#[tokio::test(start_paused = true)]
async fn an_event_that_a_slow_clock_puts_off_does_not_go_round_without_a_pause(#[case] later: Timestamp) {
    let world = World::new(Script { claims: Mutex::new(vec![ClaimAnswer::Later(later)]), ..Script::default() });
    world.put(incoming("mail.now", &[]));
    assert_eq!(work(&world, Outcome::Done).await, ["claim", "publish t.scheduler mail.250ms", "acknowledge"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_finds_no_place_in_memory_waits_in_the_busy_hatchery() {
    let world = World::new(Script { claims: Mutex::new(vec![ClaimAnswer::Busy]), ..Script::default() });
    world.put(incoming("ping.now", &[]));
    assert_eq!(work(&world, Outcome::Done).await, ["claim", "publish t.scheduler ping.250ms", "acknowledge"]);
    assert_eq!(header(&world.published(), "busy").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_reference_stays_busy_waits_in_memory_for_a_second_at_most() {
    let world = World::new(Script { claims: Mutex::new(vec![ClaimAnswer::Busy; 50]), ..Script::default() });
    world.put(incoming("mail.now", &[]));
    let began = tokio::time::Instant::now();
    let diary = work(&world, Outcome::Done).await;
    let looks = diary.iter().take_while(|entry| *entry == "claim").count();
    assert!((4..=20).contains(&looks), "{diary:?}");
    assert_eq!(diary[looks..], ["publish t.scheduler mail.250ms", "acknowledge"]);
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_killed_its_worker_too_often_is_dead_lettered_and_not_started() {
    let stamp = crate::domain::register::CopyVersion::uncontested("id-1", 0);
    let crashed = ClaimAnswer::Run { fence: 9, crashes: 5, stamp };
    let world = World::new(Script { claims: Mutex::new(vec![ClaimAnswer::Alone, crashed]), ..Script::default() });
    world.put(incoming("mail.now", &[]));
    let diary = work(&world, Outcome::Done).await;
    assert_eq!(diary[2..], ["publish t.dead-letter mail.dead-letter", "settle copied", "acknowledge"]);
    assert_eq!(
        header(&world.published(), "reason").as_deref(),
        Some("crash: it was started 5 times and never settled")
    );
}

#[tokio::test(start_paused = true)]
async fn a_version_given_out_by_nobody_is_not_carried_on() {
    let stamp = crate::domain::register::CopyVersion::uncontested("id-1", 0);
    let run = ClaimAnswer::Run { fence: 9, crashes: 0, stamp };
    let world = World::new(Script { claims: Mutex::new(vec![run]), ..Script::default() });
    world.put(versioned());
    work(&world, failure()).await;
    assert_eq!(header(&world.published(), "slot").as_deref(), Some("e:id-1"));
    assert_eq!(header(&world.published(), "version"), None);
}

#[rstest]
#[case::often(49, &["claim", "handler", "settle finished", "acknowledge"])]
#[case::too_often(50, &[
    "publish t.scheduler mail.now", "acknowledge", "claim", "handler", "settle finished", "acknowledge",
])]
#[tokio::test(start_paused = true)]
async fn an_event_that_the_broker_would_soon_dead_letter_is_republished_as_the_same_copy(
    #[case] times: i64,
    #[case] expected: &[&str],
) {
    let world = World::default();
    world.put(incoming("mail.now", &[came_back(times), ("generation", Value::I64(3))]));
    assert_eq!(work(&world, Outcome::Done).await, expected);
    if expected.len() > 4 {
        let copy = world.published();
        assert_eq!(header(&copy, "generation").as_deref(), Some("3"), "to the register it is the same");
        assert_eq!(header(&copy, "x-delivery-count"), None);
    }
}
