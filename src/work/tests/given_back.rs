//! Events that a worker gives back without a run: while Redis answers a ping and no claim, and when they have waited for a free place for
//! longer than the broker lets a worker hold them.

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

/// The broker takes no copy of the older event, so that one comes back to the loop when the younger one waits already.
#[tokio::test(start_paused = true)]
async fn an_event_that_came_back_to_the_loop_late_is_given_back_at_its_own_deadline() {
    let mut topology = (*topology()).clone();
    // Events go back after half of it.
    topology.ack_timeout = Duration::from_secs(20);
    let blocked = Script { blocked: true.into(), forgets: true.into(), ..Script::default() };
    let (world, stop) = (World::new(blocked), CancellationToken::new());
    let named = |id: &str, headers: &[_]| {
        let mut message = incoming("mail.now", headers);
        message.properties.message_id = Some(id.to_owned());
        message
    };
    let broker = Arc::new(world.broker.clone());
    let worker = Worker::new(Arc::new(topology), broker, world.register.clone(), Arc::new(Noon));
    let endless = |_| std::future::pending::<Result<Outcome, String>>();
    let worker = worker.concurrency(1).drain_timeout(Duration::ZERO).handle("mail", endless);
    let worker = tokio::spawn(worker.run(stop.clone()));
    let began = tokio::time::Instant::now();
    world.put_all([named("runs", &[]), named("older", &[came_back(50)])]);
    tokio::time::sleep(Duration::from_secs(4)).await;
    world.put(named("younger", &[]));
    for (until, expected) in [(9, 0), (11, 1), (13, 1), (15, 2)] {
        tokio::time::sleep_until(began + Duration::from_secs(until)).await;
        assert_eq!(world.came_back(), expected, "after {until} s: {:?}", world.diary.entries());
    }
    stop.cancel();
    worker.await.expect("no panic").expect("it was told to stop");
}
