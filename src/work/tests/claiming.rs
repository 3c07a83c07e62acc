//! What the register answers, and what becomes of the delivery.

use super::*;

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
