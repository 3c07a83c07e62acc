//! Events that wait for a free place for longer than the broker lets a worker hold them.

use super::*;

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
