//! Events that expire before they start. It is noon by Redis's clock.

use super::{clocks::Wrong, *};
use crate::{Event, Run, Transition};

const DAY: i64 = 86_400;
const PAST: &str = "2026-06-01T11:59:59.999Z";
const NOON: &str = "2026-06-01T12:00:00.000Z";
const AHEAD: &str = "2026-06-01T12:00:00.001Z";

/// A world with a type for each value of `on-expiry`, with the register and without it.
fn world() -> World {
    let file = "
version: 1
name: t
types:
  mail: { retry: { delays: [1s] } }
  keen: { on-failure: in-place, in-place: { tries: 3, delay: 1ms } }
  news: { on-expiry: discard }
  plain: { register: off, retry: { delays: [1s] } }
  quiet: { register: off, on-expiry: discard }
  strict: { on-failure: block, retry: { delays: [1ms] } }
  exact: { register: off, on-failure: block, retry: { delays: [1ms] } }
  import: { coalesce: latest }
";
    World::of(Arc::new(crate::file::read(file, "topology.yaml").expect("a valid file")), Script::default())
}

fn expiring(event_type: &str, expires: &str, headers: &[(&str, Value)]) -> Incoming {
    let mut all = headers.to_vec();
    all.push(("expires", Value::text(expires)));
    incoming(&format!("{event_type}.now"), &all)
}

/// The diary without the ends of consumers.
fn noted(world: &World) -> Vec<String> {
    world.diary.entries().into_iter().filter(|entry| entry != "close").collect()
}

fn ran(diary: &[String]) -> bool {
    diary.iter().any(|entry| entry == "handler")
}

#[rstest]
#[case::letter("mail", &["claim", "publish t.dead-letter mail.dead-letter", "told Expired letter", "settle copied", "acknowledge"])]
#[case::gone("news", &["claim", "settle finished", "told Expired gone", "acknowledge"])]
#[case::in_order("strict", &["claim alone", "publish t.dead-letter strict.dead-letter", "told Expired letter", "settle copied", "acknowledge"])]
#[case::letter_without_the_register("plain", &["publish t.dead-letter plain.dead-letter", "told Expired letter", "acknowledge"])]
#[case::gone_without_the_register("quiet", &["told Expired gone", "acknowledge"])]
#[case::in_order_without_the_register("exact", &["publish t.dead-letter exact.dead-letter", "told Expired letter", "acknowledge"])]
#[tokio::test(start_paused = true)]
async fn an_expired_event_does_not_run_and_is_told_once_its_end_is_confirmed(
    #[case] event_type: &str,
    #[case] expected: &[&str],
) {
    let world = world();
    world.put(expiring(event_type, NOON, &[]));
    let diary = world.diary.clone();
    let observer = move |_: &Event, transition: &Transition| match transition {
        Transition::Expired { at, dead_lettered } => {
            assert_eq!(at.to_string(), "2026-06-01T12:00:00Z");
            diary.note(format!("told Expired {}", if *dead_lettered { "letter" } else { "gone" }));
        }
        other => diary.note(format!("told {other:?}")),
    };
    let worker = world.worker().stop_when_empty(true).observe(observer);
    let worker = worker.handle(event_type, |_| async { Ok::<_, String>(Outcome::Done) });
    let summary = worker.run(CancellationToken::new()).await.expect("it stops when empty");
    assert_eq!(noted(&world), expected);
    let is_letter = expected.iter().any(|entry| entry.starts_with("publish"));
    assert_eq!((summary.dead_lettered, summary.expired, summary.done), (is_letter.into(), (!is_letter).into(), 0));
}

#[tokio::test(start_paused = true)]
async fn the_letter_of_an_expired_event_says_why_and_does_not_expire() {
    let world = world();
    world.put(expiring("mail", PAST, &[]));
    work(&world, Outcome::Done).await;
    let letter = world.published();
    let read = |name| header(&letter, name);
    let reason = "expired at 2026-06-01T11:59:59.999Z, before it started";
    assert_eq!(read("reason").as_deref(), Some(reason));
    assert_eq!(read("last_failure"), Some(format!("{NOON} expired before it started")));
    let rest = ["expires", "attempts", "generation"].map(read);
    assert_eq!(rest, [None, Some("0".to_owned()), Some("1".to_owned())]);
}

#[rstest]
#[case::not_yet("mail", expiring("mail", AHEAD, &[]))]
#[case::not_yet_without_the_register("plain", expiring("plain", AHEAD, &[]))]
#[case::a_later_copy("mail", expiring("mail", PAST, &[("generation", Value::I64(1))]))]
#[case::a_failed_one("mail", expiring("mail", PAST, &[("attempts", Value::I64(1))]))]
#[case::a_survivor_without_an_id("mail", expiring("mail", PAST, &[("crashes", Value::I64(1))]))]
#[case::one_that_competes("import", {
    let (version, slot) = (("version", Value::I64(5)), ("slot", Value::text("i")));
    expiring("import", PAST, &[("reference", Value::text("1")), version, slot])
})]
#[case::re_sent_by_a_person("mail", Incoming { routing_key: "mail.dead-letter".to_owned(), ..expiring("mail", PAST, &[]) })]
#[case::redelivered_without_the_register("plain", expiring("plain", PAST, &[came_back(1)]))]
#[case::redelivered_in_order("strict", expiring("strict", PAST, &[came_back(1)]))]
#[case::in_quarantine("plain", Incoming { routing_key: "plain.aside".to_owned(), ..expiring("plain", PAST, &[]) })]
#[tokio::test(start_paused = true)]
async fn what_may_have_been_started_or_must_not_expire_runs(#[case] event_type: &str, #[case] message: Incoming) {
    let world = world();
    let queue = if message.routing_key == "plain.aside" { "aside" } else { "processor" };
    world.broker.put(&format!("t.{queue}.{event_type}"), message);
    assert!(ran(&work(&world, Outcome::Done).await));
}

/// The register counts the starts that were never settled.
#[rstest]
#[case(0, false)]
#[case(1, true)]
#[tokio::test(start_paused = true)]
async fn an_event_that_the_register_knows_as_started_runs(#[case] crashes: u32, #[case] runs: bool) {
    let world = world();
    let stamp = CopyVersion::uncontested("id-1", 0);
    world.claims.lock().expect("no panic").push(ClaimAnswer::Run { fence: 9, crashes, stamp });
    world.put(expiring("mail", PAST, &[came_back(1)]));
    assert_eq!(ran(&work(&world, Outcome::Done).await), runs);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn the_clock_of_the_worker_changes_nothing(
    #[values("mail", "news", "plain")] event_type: &str,
    #[values(-DAY, -4, 4, DAY)] ahead: i64,
    #[values(NOON, AHEAD)] expires: &str,
) {
    let world = world();
    world.put(expiring(event_type, expires, &[]));
    let diary = work_at(&world, Outcome::Done, Arc::new(Wrong(ahead))).await;
    assert_eq!(ran(&diary), expires == AHEAD, "{diary:?}");
}

#[rstest]
#[case::busy(ClaimAnswer::Busy, Some(AHEAD))]
#[case::put_off_by_a_person(ClaimAnswer::Later("2026-06-01T13:00:00Z".parse().expect("a time")), None)]
#[tokio::test(start_paused = true)]
async fn a_copy_before_the_start_expires_unless_a_person_has_put_it_off(
    #[case] answer: ClaimAnswer,
    #[case] expires: Option<&str>,
) {
    let world = world();
    world.claims.lock().expect("no panic").extend(std::iter::repeat_n(answer, 20));
    world.put(expiring("mail", AHEAD, &[]));
    work(&world, Outcome::Done).await;
    assert_eq!(header(&world.published(), "expires").as_deref(), expires);
}

#[rstest]
#[case::retried(failure())]
#[case::retried_later(Outcome::Retry { reason: "busy".into(), after: Some(Duration::from_secs(30)) })]
#[case::requeued(Outcome::Requeue { at: Noon.now() + Duration::from_secs(30), reason: "later".into() })]
#[case::dead_lettered(Outcome::dead_letter("550"))]
#[tokio::test(start_paused = true)]
async fn a_copy_after_the_start_does_not_expire(#[case] outcome: Outcome) {
    let world = world();
    world.put(expiring("mail", AHEAD, &[]));
    work(&world, outcome).await;
    assert_eq!(header(&world.published(), "expires"), None);
}

/// A run whose handler lacks something that is away does not count.
#[tokio::test(start_paused = true)]
async fn an_event_whose_handler_is_unavailable_expires() {
    let world = world();
    world.put(expiring("mail", AHEAD, &[]));
    let away = AtomicUsize::new(0);
    let handler = move |_: Run| {
        let is_first = away.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if is_first { Outcome::unavailable("refused") } else { Outcome::Done } }
    };
    let worker = world.worker().stop_when_empty(true).handle("mail", handler);
    worker.run(CancellationToken::new()).await.expect("it stops when empty");
    assert_eq!(header(&world.published(), "expires").as_deref(), Some(AHEAD));
}

/// The copy that waits for the handler tells that the event has run.
#[tokio::test(start_paused = true)]
async fn an_event_that_failed_in_place_before_its_handler_was_unavailable_does_not_expire() {
    let world = world();
    world.put(expiring("keen", NOON, &[("first_failure", Value::text(PAST))]));
    let worker = world.worker().stop_when_empty(true).handle("keen", |_: Run| async { Outcome::Done });
    let summary = worker.run(CancellationToken::new()).await.expect("it stops when empty");
    assert_eq!((summary.done, summary.dead_lettered), (1, 0));
}

/// A release would forget the start, and the delivery keeps its headers.
#[tokio::test(start_paused = true)]
async fn a_run_that_a_stop_cuts_off_is_given_back_without_a_release() {
    let world = world();
    world.put(expiring("mail", AHEAD, &[]));
    let stop = CancellationToken::new();
    let told = stop.clone();
    let handler = move |_: Run| {
        told.cancel();
        std::future::pending::<Result<Outcome, String>>()
    };
    let worker = world.worker().drain_timeout(Duration::from_millis(10)).handle("mail", handler);
    worker.run(stop).await.expect("it stops");
    assert_eq!(noted(&world), ["claim", "give back"]);
}
