//! What an observer is told, and when.

use super::*;
use crate::{Event, Transition};

/// The name of a transition.
fn name(transition: &Transition) -> String {
    let text = format!("{transition:?}");
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Works off what waits with a handler that always answers this, and notes in the diary what an observer is told.
async fn observe(world: &World, outcome: Outcome) -> (Vec<String>, Vec<Transition>) {
    let (diary, told) = (world.diary.clone(), Arc::new(Mutex::new(Vec::new())));
    let observer = {
        let (diary, told) = (diary.clone(), Arc::clone(&told));
        move |event: &Event, transition: &Transition| {
            assert_eq!(event.id, "id-1");
            diary.note(format!("told {}", name(transition)));
            told.lock().expect("no panic").push(transition.clone());
        }
    };
    let handler = move |_| {
        diary.note("handler");
        let outcome = outcome.clone();
        async move { Ok::<_, String>(outcome) }
    };
    let event_type = world.broker.waiting().remove(0).message.routing_key.split('.').next().expect("a word").to_owned();
    let worker = world.worker().stop_when_empty(true).observe(observer).handle(&event_type, handler);
    worker.run(CancellationToken::new()).await.expect("it stops when empty");
    let told = told.lock().expect("no panic").clone();
    (world.diary.entries(), told)
}

#[rstest]
#[case::done("mail", Outcome::Done, &["settle finished", "told Done"])]
#[case::discarded("mail", Outcome::discard("left"), &["settle finished", "told Discarded"])]
#[case::dropped("ping", failure(), &["told Dropped", "settle finished"])]
#[case::failed("mail", failure(), &["publish t.retry mail.1s", "told Failed", "settle copied"])]
#[case::dead_lettered("mail", Outcome::dead_letter("550"), &["publish t.dead-letter mail.dead-letter", "told DeadLettered", "settle copied"])]
#[tokio::test(start_paused = true)]
async fn a_transition_is_told_once_its_effect_is_confirmed(
    #[case] event_type: &str,
    #[case] outcome: Outcome,
    #[case] end: &[&str],
) {
    let world = World::default();
    world.put(incoming(&format!("{event_type}.now"), &[]));
    let (diary, _) = observe(&world, outcome).await;
    assert_eq!(diary, [&["claim", "told Started", "handler"], end, &["acknowledge"]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_requeue_is_told_after_the_confirm_of_its_copy() {
    let world = World::default();
    world.put(versioned());
    let at = "2026-06-01T13:00:00Z".parse().expect("a time");
    let (diary, told) = observe(&world, Outcome::Requeue { at, reason: "later".into() }).await;
    let place = |entry: &str| diary.iter().position(|noted| noted.starts_with(entry));
    assert!(
        place("publish t.scheduler") < place("told Requeued") && place("told Requeued") < place("settle"),
        "{diary:?}"
    );
    assert!(matches!(&told[1], Transition::Requeued { at: due, reason, .. } if *due == at && reason == "later"));
}

#[tokio::test(start_paused = true)]
async fn each_failed_try_in_place_is_told_with_its_number() {
    let world = World::default();
    world.put(incoming("keen.now", &[("attempts", Value::U8(1))]));
    let (_, told) = observe(&world, failure()).await;
    let failures: Vec<_> = told.iter().filter(|transition| name(transition) != "Started").collect();
    let in_place = |transition: &Transition, number| matches!(transition, Transition::Failed { attempt: 2, then: crate::Then::InPlace { tried, .. }, .. } if *tried == number);
    assert!(in_place(failures[0], 1) && in_place(failures[1], 2), "{failures:?}");
    assert!(matches!(failures[2], Transition::DeadLettered { .. }), "{failures:?}");
    assert_eq!((told.len(), failures.len()), (6, 3));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_never_ran_here_is_dead_lettered_without_a_time() {
    let world = World::default();
    let stamp = CopyVersion::uncontested("id-1", 0);
    world.claims.lock().expect("no panic").push(ClaimAnswer::Run { fence: 9, crashes: 7, stamp });
    world.put(incoming("mail.now", &[]));
    let (_, told) = observe(&world, Outcome::Done).await;
    assert!(matches!(&told[..], [Transition::DeadLettered { took: None, .. }]), "{told:?}");
}

#[rstest]
#[case::replaced(ClaimAnswer::Replaced, &["Replaced"])]
#[case::stale(ClaimAnswer::Stale, &[])]
#[tokio::test(start_paused = true)]
async fn a_replaced_event_is_told_and_a_stale_copy_is_not(#[case] answer: ClaimAnswer, #[case] expected: &[&str]) {
    let world = World::default();
    world.claims.lock().expect("no panic").push(answer);
    world.put(incoming("mail.now", &[]));
    let (_, told) = observe(&world, Outcome::Done).await;
    assert_eq!(told.iter().map(name).collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_stops_nothing() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    world.put(incoming("mail.now", &[]));
    let worker = world.worker().stop_when_empty(true).observe(|_, _| panic!("observers may"));
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) });
    let summary = worker.run(CancellationToken::new()).await.expect("it stops when empty");
    assert_eq!((summary.done, log.lines("an observer has panicked").len()), (1, 2));
}
