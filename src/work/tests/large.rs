//! Follow-ups that are larger than the broker takes.

use super::*;

fn early() -> Incoming {
    incoming("mail.now", &[("nbf", Value::text("2026-06-01T12:00:05Z"))])
}

fn never() -> Outcome {
    Outcome::DeadLetter { reason: "never".into() }
}

fn tomorrow() -> Outcome {
    Outcome::Requeue { at: "2026-06-02T12:00:00Z".parse().expect("a time"), reason: "later".into() }
}

const REJECTED: [&str; 3] = ["too large", "release", "reject"];

#[rstest]
#[case::retry("mail", failure(), &["claim", "handler"], &REJECTED)]
#[case::dead_letter("mail", never(), &["claim", "handler"], &REJECTED)]
#[case::requeue("mail", tomorrow(), &["claim", "handler", "reserve e:id-1"], &REJECTED)]
#[case::in_place("keen", failure(), &["claim", "handler", "handler", "handler"], &REJECTED)]
#[case::in_order("strict", never(), &["claim alone", "handler"], &["too large", "release", "reject", "close"])]
#[case::without_the_register("plain", failure(), &["handler"], &["too large", "reject"])]
#[tokio::test(start_paused = true)]
async fn an_event_whose_follow_up_is_too_large_is_rejected(
    #[case] event_type: &str,
    #[case] outcome: Outcome,
    #[case] before: &[&str],
    #[case] after: &[&str],
) {
    let world = World::new(Script { narrow: true.into(), ..Script::default() });
    world.put(incoming(&format!("{event_type}.now"), &[]));
    assert_eq!(work(&world, outcome).await, [before, after].concat());
}

#[rstest]
#[case::early(early())]
#[case::poison(incoming("mail.now", &[("attempts", Value::text("many"))]))]
#[case::suspect(incoming("plain.now", &[came_back(2)]))]
#[tokio::test(start_paused = true)]
async fn an_event_that_does_not_run_and_is_too_large_to_copy_is_rejected(#[case] message: Incoming) {
    let world = World::new(Script { narrow: true.into(), ..Script::default() });
    world.put(message);
    assert_eq!(work(&world, Outcome::Done).await, ["too large", "reject"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_in_quarantine_whose_follow_up_is_too_large_is_rejected() {
    let world = World::new(Script { narrow: true.into(), ..Script::default() });
    world.put(incoming("plain.aside", &[]));
    assert_eq!(work(&world, failure()).await, ["handler", "too large", "reject"]);
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_that_is_too_large_is_logged_and_counted_as_rejected() {
    let (log, world) = (Log::default(), World::new(Script { narrow: true.into(), ..Script::default() }));
    let _kept = log.keep();
    world.put(incoming("mail.now", &[]));
    let worker = world.worker().stop_when_empty(true);
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(failure()) });
    let summary = worker.run(CancellationToken::new()).await.expect("it goes on");
    assert_eq!((summary.delivered, summary.rejected, summary.retried), (1, 1, 0), "{summary:?}");
    let said = log.lines("the broker takes no message of 2 bytes for t.retry").concat();
    assert!(said.contains("ERROR") && said.contains("id-1") && said.contains("event_type=mail"), "{:?}", log.lines(""));
}
