//! A worker whose clock is wrong, and events that only look like a schedule's. It is noon by Redis's clock.

use super::{
    scheduled::{HOUR, NOON, arm, definition, scheduled, state},
    *,
};
use crate::domain::schedule::{rule::Arm, template::Template};

/// The clock of a machine that is so many seconds ahead of Redis's.
pub(super) struct Wrong(pub(super) i64);

impl Clock for Wrong {
    fn now(&self) -> Timestamp {
        Noon.now() + jiff::SignedDuration::from_secs(self.0)
    }

    fn ahead(&self) -> Option<jiff::SignedDuration> {
        Some(jiff::SignedDuration::from_secs(self.0))
    }
}

const DAY: i64 = 86_400;

#[rstest]
#[tokio::test(start_paused = true)]
async fn a_worker_with_a_wrong_clock_arms_the_next_event_by_that_of_redis(
    #[values(-30 * DAY, -DAY, -60, 60, DAY, 30 * DAY, 73 * 365 * DAY)] ahead: i64,
) {
    let world = scheduled();
    arm(&world, "hourly", NOON).await;
    work_at(&world, Outcome::Done, Arc::new(Wrong(ahead))).await;
    let next = world.published();
    assert_eq!(next.properties.message_id.as_deref(), Some("hourly@2026-06-01T13:00:00Z"));
    assert_eq!(header(&next, "nbf").as_deref(), Some("2026-06-01T13:00:00.000Z"));
    let state = state(&world, "hourly").await;
    assert_eq!(state.armed.map(|armed| (armed.arm.position, armed.published)), Some((NOON + HOUR, Some(NOON))));
    let run = state.run.expect("a run");
    assert_eq!((run.started, run.ended), (NOON, Some(NOON)));
}

#[tokio::test(start_paused = true)]
async fn a_due_event_is_not_put_off_by_a_clock_that_is_behind() {
    let world = World::default();
    world.put(incoming("mail.now", &[("nbf", Value::text("2026-06-01T11:59:59.000Z"))]));
    let diary = work_at(&world, Outcome::Done, Arc::new(Wrong(-DAY))).await;
    assert_eq!(diary, ["claim", "handler", "settle finished", "acknowledge"]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_a_handler_asks_for_ends_by_the_clock_of_redis() {
    let world = World::default();
    world.put(incoming("mail.now", &[]));
    let after = Some(Duration::from_secs(30));
    work_at(&world, Outcome::Retry { reason: "later".into(), after }, Arc::new(Wrong(DAY))).await;
    assert_eq!(header(&world.published(), "nbf").as_deref(), Some("2026-06-01T12:00:30.000Z"));
}

/// `topology work` asks so for `{"requeue": {"after": "30s"}}`.
#[rstest]
#[tokio::test(start_paused = true)]
async fn a_requeue_after_a_while_ends_by_the_clock_of_redis(#[values(-DAY, DAY)] ahead: i64) {
    let world = World::default();
    world.put(incoming("mail.now", &[]));
    let handler = |run: crate::Run| async move {
        Ok::<_, String>(Outcome::Requeue {
            at: run.now() + jiff::SignedDuration::from_secs(30),
            reason: "later".into(),
        })
    };
    let worker = world.worker_at(Arc::new(Wrong(ahead))).stop_when_empty(true).handle("mail", handler);
    worker.run(CancellationToken::new()).await.expect("it stops when empty");
    let copy = world.published();
    assert_eq!(header(&copy, "nbf").as_deref(), Some("2026-06-01T12:00:30.000Z"));
    let published = &world.diary.entries()[2];
    assert!(published.starts_with("publish t.scheduler mail.250ms-27.0.0.0.1.1.1.1.0"), "30 s: {published}");
}

#[tokio::test(start_paused = true)]
async fn an_event_with_the_id_of_an_instant_does_not_take_its_place() {
    let world = scheduled();
    let mut message = incoming("mail.now", &[]);
    message.properties.message_id = Some("hourly@2026-06-01T13:00:00Z".to_owned());
    world.put(message);
    assert_eq!(work(&world, Outcome::Done).await, ["publish t.dead-letter mail.dead-letter", "acknowledge"]);
}

#[rstest]
#[case::next_month("hourly", NOON + 30 * 24 * HOUR)]
#[case::the_last_number("poll", i64::MAX / 1_000)]
#[tokio::test(start_paused = true)]
async fn an_event_of_a_schedule_waits_for_its_instant_whoever_has_published_it(
    #[case] name: &str,
    #[case] position: i64,
) {
    let world = scheduled();
    let arm = Arm { position, due: NOON };
    let mut forged = Template::of(&definition(&world, name)).event(arm, Noon.now());
    forged.nbf = None;
    let properties = crate::domain::wire::encode(&forged);
    world.put(Incoming { routing_key: "mail.now".to_owned(), properties, body: forged.payload });
    let diary = work(&world, Outcome::Done).await;
    assert!(diary.iter().any(|entry| entry.starts_with("publish t.scheduler mail.250ms-27.")), "{diary:?}");
    assert!(!diary.iter().any(|entry| entry == "claim" || entry.starts_with("replace")), "{diary:?}");
}

/// Somebody has read the digest in the management UI.
#[tokio::test(start_paused = true)]
async fn an_event_with_a_forged_payload_goes_to_dead_letter() {
    let world = scheduled();
    let arm = Arm { position: NOON, due: NOON };
    let event = Template::of(&definition(&world, "hourly")).event(arm, Noon.now());
    let properties = crate::domain::wire::encode(&event);
    let body = r#"{"full":false}"#.into();
    world.put(Incoming { routing_key: "mail.now".to_owned(), properties, body });
    assert_eq!(work(&world, Outcome::Done).await, ["publish t.dead-letter mail.dead-letter", "acknowledge"]);
    let reason = header(&world.published(), "reason").expect("a reason");
    assert!(reason.contains("not of the schedule `hourly`"), "{reason}");
}
