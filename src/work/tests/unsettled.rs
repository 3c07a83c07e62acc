//! Events that cannot be settled, and what they hold up.

use super::*;
use crate::handler::Run;

fn event(event_type: &str, id: &str) -> Incoming {
    let mut message = incoming(&format!("{event_type}.now"), &[]);
    message.properties.message_id = Some(id.to_owned());
    message
}

/// A worker on `mail` and `plain` that notes what runs.
fn start(world: &World) -> (CancellationToken, tokio::task::JoinHandle<crate::Summary>) {
    let diary = world.diary.clone();
    let note = move |run: Run| {
        diary.note(format!("run {}", run.event.id));
        std::future::ready(Ok::<_, String>(Outcome::Done))
    };
    let worker = world.worker();
    let worker = worker.handle("mail", note.clone()).handle("plain", note);
    let stop = CancellationToken::new();
    let told = stop.clone();
    (stop, tokio::spawn(async move { worker.run(told).await.expect("it was told to stop") }))
}

/// Time passes only where nothing else is left to do.
async fn a_while() {
    tokio::time::sleep(Duration::from_secs(30)).await;
}

#[tokio::test(start_paused = true)]
async fn a_suspect_that_has_run_holds_up_no_type_that_needs_no_redis() {
    let world = World::new(Script { is_broker_silent: true, ..Script::default() });
    *world.claims.lock().expect("no panic") = vec![ClaimAnswer::Alone];
    world.unsettled.lock().expect("no panic").insert("suspect".to_owned(), unreachable());
    world.put(event("mail", "suspect"));
    let (stop, worker) = start(&world);
    a_while().await;
    assert_eq!(world.diary.entries()[..4], ["claim", "claim alone", "run suspect", "1 not settled"]);
    world.put(event("plain", "other"));
    a_while().await;
    assert!(world.diary.entries().contains(&"run other".to_owned()), "{:?}", world.diary.entries());
    world.unsettled.lock().expect("no panic").clear();
    a_while().await;
    stop.cancel();
    assert_eq!(worker.await.expect("no panic").done, 2);
    assert_eq!(world.diary.entries().last().map(String::as_str), Some("settle finished"));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_while_its_event_cannot_be_settled_does_not_say_that_the_event_is_given_back() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    world.unsettled.lock().expect("no panic").insert("id-1".to_owned(), unreachable());
    world.put(incoming("mail.now", &[]));
    let (stop, worker) = start(&world);
    a_while().await;
    stop.cancel();
    assert_eq!(worker.await.expect("no panic").given_back, 0);
    assert_eq!(log.lines("1 delivery not settled").len(), 1, "{:?}", log.lines(""));
    assert_eq!(log.lines("1 delivery could not be settled").len(), 1, "{:?}", log.lines(""));
    assert!(log.lines("given back").is_empty(), "{:?}", log.lines(""));
}

/// Whatever killed the process there would make two dead letters of one.
#[rstest]
#[case::settled_soon(Duration::from_secs(1), &["settle copied", "run other"])]
#[case::not_settled_for_long(Duration::from_mins(1), &["run other", "settle copied"])]
#[tokio::test(start_paused = true)]
async fn a_dead_letter_for_crashes_that_is_not_settled_keeps_others_from_starting_for_a_while(
    #[case] away: Duration,
    #[case] expected: &[&str],
) {
    let world = World::new(Script { is_broker_silent: true, ..Script::default() });
    let stamp = CopyVersion::uncontested("culprit", 0);
    let limit = ClaimAnswer::Run { fence: 9, crashes: 100, stamp };
    *world.claims.lock().expect("no panic") = vec![ClaimAnswer::Alone, limit];
    world.unsettled.lock().expect("no panic").insert("culprit".to_owned(), unreachable());
    world.put(event("mail", "culprit"));
    let (stop, worker) = start(&world);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let diary = world.diary.entries();
    assert_eq!(diary[..3], ["claim", "claim alone", "1 not settled"]);
    world.put(event("plain", "other"));
    tokio::time::sleep(away).await;
    world.unsettled.lock().expect("no panic").clear();
    a_while().await;
    stop.cancel();
    let summary = worker.await.expect("no panic");
    assert_eq!((summary.done, summary.dead_lettered), (1, 1), "{summary:?}");
    let diary = world.diary.entries();
    let of_both: Vec<_> = diary.iter().filter(|entry| expected.contains(&entry.as_str())).collect();
    assert_eq!(of_both, expected, "{diary:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_redis_refuses_to_settle_holds_up_no_other() {
    let world = World::new(Script { is_broker_silent: true, ..Script::default() });
    let log = Log::default();
    let _kept = log.keep();
    let unreadable = RegisterError::Unreadable { url: "redis".into(), reason: "WRONGTYPE".into() };
    world.unsettled.lock().expect("no panic").insert("bad".to_owned(), unreadable);
    world.put(event("mail", "bad"));
    for n in 0..20 {
        world.put(event("mail", &n.to_string()));
    }
    let (stop, worker) = start(&world);
    a_while().await;
    let (settled, diary) = (world.settled.lock().expect("no panic").clone(), world.diary.entries());
    assert_eq!(settled.len(), 20, "{settled:?} {diary:?}");
    // What waits until nothing runs does not wait for it either.
    world.put(incoming("plain.aside", &[]));
    a_while().await;
    let diary = world.diary.entries();
    assert!(diary.contains(&"run id-1".to_owned()), "{diary:?}");
    assert_eq!(diary.last().map(String::as_str), Some("1 not settled"));
    assert!(!diary.contains(&"ping".to_owned()), "Redis was not away: {diary:?}");
    let errors = log.lines("ERROR");
    assert!(errors.len() == 1 && errors[0].contains("id=\"bad\""), "{errors:?}");
    world.unsettled.lock().expect("no panic").clear();
    a_while().await;
    stop.cancel();
    assert_eq!(worker.await.expect("no panic").done, 22);
    assert_eq!(world.came_back(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_settled_while_redis_is_down_holds_up_no_type_that_needs_none() {
    let world = World::new(Script { is_broker_silent: true, ..Script::default() });
    world.unsettled.lock().expect("no panic").insert("stuck".to_owned(), unreachable());
    world.put(event("mail", "stuck"));
    world.put(incoming("plain.aside", &[]));
    let (stop, worker) = start(&world);
    // The quarantine looks for events again and again meanwhile.
    for n in 0..10 {
        world.put(event("plain", &n.to_string()));
        a_while().await;
        let diary = world.diary.entries();
        assert!(diary.contains(&format!("run {n}")), "{diary:?}");
    }
    world.unsettled.lock().expect("no panic").clear();
    a_while().await;
    let diary = world.diary.entries();
    assert!(diary.contains(&"settle finished".to_owned()) && diary.contains(&"run id-1".to_owned()), "{diary:?}");
    stop.cancel();
    assert_eq!(worker.await.expect("no panic").done, 12);
}

#[tokio::test(start_paused = true)]
async fn a_follow_up_that_the_broker_does_not_take_keeps_no_suspect_waiting() {
    let suspects = vec!["suspect".to_owned()];
    let world = World::new(Script { lose: AtomicUsize::new(usize::MAX), suspects, ..Script::default() });
    world.put_all([event("mail", "fails"), event("mail", "suspect")]);
    let stop = CancellationToken::new();
    let told = stop.clone();
    let handler = move |run: Run| {
        let outcome = if run.event.id == "suspect" { Outcome::Done } else { failure() };
        if outcome == Outcome::Done {
            told.cancel();
        }
        std::future::ready(Ok::<_, String>(outcome))
    };
    let worker = world.worker().drain_timeout(Duration::ZERO);
    let ended = tokio::time::timeout(Duration::from_mins(1), worker.handle("mail", handler).run(stop)).await;
    assert_eq!(ended.expect("the suspect has run").expect("it was told to stop").done, 1);
}
