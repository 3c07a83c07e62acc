//! Redis answers a ping and no claim: what a worker gives back meanwhile.

use super::*;

#[rstest]
#[case::two_types("mail", "keen")]
#[case::one_of_them_keeps_order("mail", "strict")]
#[tokio::test(start_paused = true)]
async fn a_prefetched_event_is_given_back_once_and_not_with_every_ping(#[case] one: &str, #[case] other: &str) {
    const EACH: usize = 50;
    let world = World::new(Script { is_broker_silent: true, deaf: true.into(), ..Script::default() });
    for event_type in [one, other] {
        for n in 0..EACH {
            let mut message = incoming(&format!("{event_type}.now"), &[]);
            message.properties.message_id = Some(format!("{event_type} {n}"));
            world.put(message);
        }
    }
    let stop = CancellationToken::new();
    let worker = world.worker();
    let done = |_| async { Ok::<_, String>(Outcome::Done) };
    let worker = tokio::spawn(worker.handle(one, done).handle(other, done).run(stop.clone()));
    tokio::time::sleep(Duration::from_mins(10)).await;
    let came_back = world.came_back();
    assert!(came_back <= 2 * EACH, "{came_back}");
    world.deaf.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_mins(1)).await;
    stop.cancel();
    let summary = worker.await.expect("no panic").expect("it was told to stop");
    assert_eq!(summary.done, 2 * EACH as u64);
    let came_back = world.came_back();
    assert!(came_back <= 2 * EACH + 2, "{came_back}");
}

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
