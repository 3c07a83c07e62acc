//! A worker that stops once its queues are empty.

use tokio::time::Instant;

use super::*;

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
