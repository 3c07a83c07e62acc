//! After a handler: the follow-up, the settlement, the acknowledgement.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_event_that_is_done_is_settled_before_it_is_acknowledged() {
    let world = World::default();
    world.put(incoming("mail.now", &[]));
    assert_eq!(work(&world, Outcome::Done).await, ["claim", "handler", "settle finished", "acknowledge"]);
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_is_confirmed_before_the_event_is_settled() {
    let world = World::new(Script { lose: AtomicUsize::new(2), ..Script::default() });
    world.put(incoming("mail.now", &[("attempts", Value::U8(1))]));
    let expected = [
        "claim",
        "handler",
        "not confirmed",
        "not confirmed",
        "publish t.retry mail.2s",
        "settle copied",
        "acknowledge",
    ];
    assert_eq!(work(&world, failure()).await, expected);
    assert_eq!(header(&world.published(), "attempts").as_deref(), Some("2"));
    assert_eq!(header(&world.published(), "generation").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_broker_takes_no_follow_up_is_no_crash() {
    let world = World::new(Script { lose: AtomicUsize::new(usize::MAX), ..Script::default() });
    world.put(incoming("mail.now", &[]));
    fail_and_stop(&world).await;
    let mut diary = world.diary.entries();
    diary.retain(|entry| entry != "not confirmed");
    assert_eq!(diary, ["claim", "release", "give back"]);
}

#[tokio::test(start_paused = true)]
async fn the_last_failure_is_buried_with_its_reason() {
    let world = World::default();
    world.put(incoming("mail.2s", &[("attempts", Value::I32(2))]));
    let diary = work(&world, failure()).await;
    assert_eq!(diary[2..], ["publish t.dead-letter mail.dead-letter", "settle copied", "acknowledge"]);
    let expected = "given up: attempt=3 failed_at=2026-06-01T12:00:00.000Z error=\"no luck\"";
    assert_eq!(header(&world.published(), "reason").as_deref(), Some(expected));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_the_file_drops_is_settled_as_done() {
    let world = World::default();
    world.put(incoming("ping.now", &[]));
    assert_eq!(work(&world, failure()).await, ["claim", "handler", "settle finished", "acknowledge"]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_the_handler_chooses_raises_the_due_time_first() {
    let world = World::default();
    world.put(incoming("mail.now", &[]));
    let after = Some(Duration::from_secs(5));
    let diary = work(&world, Outcome::Retry { reason: "busy".into(), after }).await;
    let expected = ["reserve e:id-1", "publish t.scheduler mail.5s", "settle copied", "acknowledge"];
    assert_eq!(diary[2..], expected);
    assert_eq!(header(&world.published(), "nbf").as_deref(), Some("2026-06-01T12:00:05.000Z"));
}

/// A handler that asks for it each time would else run without a pause.
#[rstest]
#[case::near("2026-06-01T12:00:00.010Z")]
#[case::now("2026-06-01T12:00:00Z")]
#[case::past("2020-06-01T12:00:00Z")]
#[tokio::test(start_paused = true)]
async fn a_requeue_takes_a_second_at_least(#[case] at: &str) {
    for message in [incoming("mail.now", &[]), versioned(), incoming("plain.now", &[])] {
        let world = World::default();
        let event_type = message.routing_key.split('.').next().expect("a word").to_owned();
        world.put(message);
        let diary = work(&world, Outcome::Requeue { at: at.parse().expect("a time"), reason: "later".into() }).await;
        // Four steps of 250 ms.
        let sent = diary.iter().find(|entry| entry.starts_with("publish")).expect("a copy");
        assert!(sent.starts_with(&format!("publish t.scheduler {event_type}.250ms-27.0.0.1.0.")), "{sent}");
        assert!(sent.ends_with(".0.0.0"), "{sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_with_jitter_goes_through_the_ladder() {
    let world = World::default();
    world.put(incoming("post.now", &[]));
    let diary = work(&world, failure()).await;
    assert!(diary[3].starts_with("publish t.scheduler post.250ms-27."), "{diary:?}");
    assert_eq!(
        (diary[2].as_str(), &diary[4..]),
        ("reserve e:id-1", &["settle copied", "acknowledge"].map(String::from)[..])
    );
    let nbf = header(&world.published(), "nbf").expect("a date");
    assert!(("2026-06-01T12:00:08.000Z".."2026-06-01T12:00:12.000Z").contains(&nbf.as_str()), "{nbf}");
    assert_eq!(header(&world.published(), "attempts").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_requeue_is_a_publish_like_any_other_into_the_slot_of_its_date() {
    let world = World::default();
    world.put(versioned());
    let at = "2026-06-01T12:00:05Z".parse().expect("a time");
    let diary = work(&world, Outcome::Requeue { at, reason: "next-change".into() }).await;
    let expected =
        ["reserve q:1780315205000", "publish t.scheduler import.5s", "record 8", "settle finished", "acknowledge"];
    assert_eq!(diary[2..], expected);
    let copy = world.published();
    assert_eq!(header(&copy, "slot").as_deref(), Some("q:1780315205000"));
    assert_eq!(header(&copy, "generation").as_deref(), Some("0"));
    assert_eq!(header(&copy, "reason").as_deref(), Some("next-change"));
}

/// Two of them that are put off to one time would replace each other in the slot of that time.
#[rstest]
#[case::of_a_date("d:1780315200000")]
#[case::of_any_date("d")]
#[case::put_off_before("q:1780315200000")]
#[tokio::test(start_paused = true)]
async fn a_dated_event_stays_in_its_slot_when_it_is_requeued(#[case] slot: &str) {
    let world = World::default();
    world.put(stamped(slot));
    let at = "2026-06-01T12:00:05Z".parse().expect("a time");
    let diary = work(&world, Outcome::Requeue { at, reason: "office\nhours".into() }).await;
    let reserve = format!("reserve {slot}");
    assert_eq!(diary[2..], [&reserve, "publish t.scheduler import.5s", "settle copied", "acknowledge"]);
    let copy = world.published();
    assert_eq!(header(&copy, "slot").as_deref(), Some(slot));
    assert_eq!((header(&copy, "version").as_deref(), header(&copy, "generation").as_deref()), (Some("5"), Some("1")));
    assert_eq!(header(&copy, "nbf").as_deref(), Some("2026-06-01T12:00:05.000Z"));
    assert_eq!(header(&copy, "reason").as_deref(), Some("office hours"));
}

/// It was to come out at the same time, however long the broker took nothing.
#[rstest]
#[case::requeued(Outcome::Requeue { at: "2026-06-01T12:00:05Z".parse().expect("a time"), reason: "later".into() })]
#[case::delayed(Outcome::Retry { reason: "busy".into(), after: Some(Duration::from_secs(5)) })]
#[tokio::test(start_paused = true)]
async fn a_copy_that_the_broker_takes_late_does_not_wait_as_long_again(#[case] outcome: Outcome) {
    let second = format!("mail.250ms-27.0.0.1{}", ".0".repeat(24));
    for (lost, key) in [(0, "mail.5s"), (1, &second), (2, "mail.now")] {
        let world = World::new(Script { lose: AtomicUsize::new(lost), ..Script::default() });
        world.put(incoming("mail.now", &[]));
        let diary = work_at(&world, outcome.clone(), Arc::new(Passing(world.clone()))).await;
        let published = diary.iter().find(|entry| entry.starts_with("publish"));
        assert_eq!(published, Some(&format!("publish t.scheduler {key}")), "{diary:?}");
    }
}

/// Noon, and half a day more for each publish that was not confirmed: as if the worker had been cut off, or stood still.
struct Slow(World);

impl Clock for Slow {
    fn now(&self) -> Timestamp {
        let lost = self.0.diary.entries().iter().filter(|entry| *entry == "not confirmed").count();
        Noon.now() + Duration::from_hours(12 * u64::try_from(lost).expect("few"))
    }
}

#[rstest]
#[case::cut_off(1, 0, "not confirmed")]
#[case::blocked(0, 1, "stuck")]
#[tokio::test(start_paused = true)]
async fn a_requeue_that_the_broker_takes_late_asks_for_another_version(
    #[case] lose: usize,
    #[case] stuck: usize,
    #[case] told: &str,
) {
    let (lose, stuck) = (AtomicUsize::new(lose), AtomicUsize::new(stuck));
    let world = World::new(Script { lose, stuck, ..Script::default() });
    world.put(versioned());
    let at = "2026-06-03T12:00:00Z".parse().expect("a time");
    let outcome = Outcome::Requeue { at, reason: "later".into() };
    let mut diary = work_at(&world, outcome, Arc::new(Slow(world.clone()))).await;
    diary.retain(|entry| entry != "renew");
    let reserve = "reserve q:1780488000000";
    assert_eq!(diary[2..5], [reserve, told, reserve]);
    assert!(diary[5].starts_with("publish t.scheduler import."), "{diary:?}");
    assert_eq!(diary[6..], ["record 9", "settle finished", "acknowledge"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_cancelled_while_it_runs_gets_no_follow_up() {
    let world = World::new(Script { stale: true, ..Script::default() });
    world.put(versioned());
    let outcome = Outcome::Requeue { at: Timestamp::MAX, reason: "later".into() };
    let diary = work(&world, outcome).await;
    // The event was cancelled, so there is nothing to settle.
    assert_eq!(diary[3..], ["release", "acknowledge"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_competes_with_nothing_keeps_its_slot_when_it_is_requeued() {
    let world = World::default();
    world.put(incoming("mail.now", &[]));
    let at = "2026-06-01T12:00:05Z".parse().expect("a time");
    let diary = work(&world, Outcome::Requeue { at, reason: "later".into() }).await;
    assert_eq!(diary[2..], ["reserve e:id-1", "publish t.scheduler mail.5s", "settle copied", "acknowledge"]);
    assert_eq!(header(&world.published(), "generation").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn tries_in_place_are_one_attempt_and_one_claim() {
    let world = World::default();
    world.put(incoming("keen.now", &[]));
    let diary = work(&world, failure()).await;
    let expected = [
        "claim",
        "handler",
        "handler",
        "handler",
        "publish t.dead-letter keen.dead-letter",
        "settle copied",
        "acknowledge",
    ];
    assert_eq!(diary, expected);
    let letter = world.published();
    assert_eq!(header(&letter, "attempts").as_deref(), Some("1"));
    let failed = "2026-06-01T12:00:00.000Z no luck";
    assert_eq!(header(&letter, "first_failure").as_deref(), Some(failed));
    assert_eq!(header(&letter, "last_failure").as_deref(), Some(failed));
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_stays_and_the_last_one_is_the_last() {
    let world = World::default();
    let first = ("first_failure", Value::text("2026-05-01T00:00:00.000Z the first"));
    let last = ("last_failure", Value::text("2026-05-02T00:00:00.000Z not the last"));
    world.put(incoming("mail.now", &[first, last]));
    work(&world, Outcome::DeadLetter { reason: "never".into() }).await;
    let letter = world.published();
    assert_eq!(header(&letter, "first_failure").as_deref(), Some("2026-05-01T00:00:00.000Z the first"));
    assert_eq!(header(&letter, "last_failure").as_deref(), Some("2026-06-01T12:00:00.000Z never"));
}
