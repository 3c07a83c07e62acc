//! A worker that gets no consumer: how long it waits between two tries, and whether its queues are empty meanwhile.

use tokio::time::Instant;

use super::*;

/// The waits while nobody is there, and how often it was tried in all.
async fn waits() -> Vec<Duration> {
    let world = World::new(Script { absent: true.into(), ..Script::default() });
    let stop = CancellationToken::new();
    let worker = world.worker();
    let worker = worker.handle("plain", |_| async { Ok::<_, String>(Outcome::Done) }).run(stop.clone());
    let worker = tokio::spawn(worker);
    tokio::time::sleep(Duration::from_mins(10)).await;
    stop.cancel();
    worker.await.expect("no panic").expect("it was told to stop");
    let asked = world.asked.lock().expect("no panic");
    asked.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn the_waits_grow_with_jitter_up_to_five_seconds() {
    let (one, other) = (waits().await, waits().await);
    for waits in [&one, &other] {
        let mut least = Duration::from_millis(100);
        for wait in waits {
            // The timer has a resolution of a millisecond.
            let most = 2 * least + Duration::from_millis(2);
            assert!(*wait >= least && *wait <= most, "{wait:?} is not within {least:?} and {most:?}: {waits:?}");
            least = (2 * least).min(Duration::from_millis(2_500));
        }
        // It goes on for ever: ten minutes in waits of five seconds at most.
        assert!(waits.len() >= 119, "{}", waits.len());
    }
    assert_ne!(one, other, "two workers do not come at the same times");
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_consumer_does_not_say_that_the_queue_is_empty() {
    let world = World::default();
    world.leaderless.store(true, Ordering::SeqCst);
    let elected = world.clone();
    let electing = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(10)).await;
        elected.leaderless.store(false, Ordering::SeqCst);
    });
    let began = Instant::now();
    let worker = world.worker().stop_when_empty(true).handle("mail", async |_| Ok::<_, String>(Outcome::Done));
    worker.run(CancellationToken::new()).await.expect("it stops when empty");
    assert!(began.elapsed() >= Duration::from_secs(10), "it ended after {:?}", began.elapsed());
    electing.await.expect("it ends");
}
