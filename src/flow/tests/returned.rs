//! Redelivered events without an id.

use super::*;

fn without_id(fake: &Arc<Fake>, events: usize) {
    let nameless = || {
        let mut message = incoming("mail.now", &[]);
        message.properties.message_id = None;
        message
    };
    fake.redelivered.store(true, Ordering::SeqCst);
    fake.incoming.lock().expect("no panic").extend((0..events).map(|_| nameless()));
}

#[tokio::test(start_paused = true)]
async fn a_redelivered_event_without_an_id_is_published_again_with_one_and_a_pause_and_does_not_run_as_it_came() {
    let fake = Arc::new(Fake::default());
    without_id(&fake, 1);
    assert_eq!(
        work(&fake, Outcome::Done).await,
        ["publish t.scheduler mail.250ms-27.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0", "acknowledge"]
    );
    assert!(fake.published().properties.message_id.is_some());
    assert_eq!(header(&fake.published(), "crashes").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn redelivered_events_without_an_id_run_as_they_came_while_the_broker_blocks_publishers() {
    let fake = Arc::new(Fake { blocked: true.into(), ..Fake::default() });
    without_id(&fake, 3);
    let diary = work(&fake, Outcome::Done).await;
    let times = |what: &str| diary.iter().filter(|entry| *entry == what).count();
    assert_eq!((times("blocked"), times("handler"), times("acknowledge")), (3, 3, 3), "{diary:?}");
}

/// The handler of the first event runs until the worker stops.
#[tokio::test(start_paused = true)]
async fn a_redelivered_event_without_an_id_waits_for_no_handler_and_keeps_none_from_starting() {
    let fake = Arc::new(Fake::default());
    without_id(&fake, 1);
    fake.incoming.lock().expect("no panic").insert(0, incoming("mail.now", &[]));
    let (diary, stop) = (fake.diary.clone(), CancellationToken::new());
    let (noted, stopped) = (diary.clone(), stop.clone());
    let handler = move |_| {
        let (diary, stop) = (noted.clone(), stopped.clone());
        async move {
            stop.cancelled().await;
            diary.note("handler");
            Ok::<_, String>(Outcome::Done)
        }
    };
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).handle("mail", handler);
    let began = tokio::time::Instant::now();
    let moved = async {
        while !diary.entries().contains(&"acknowledge".to_owned()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let waited = began.elapsed();
        stop.cancel();
        waited
    };
    let (ended, waited) = tokio::join!(worker.run(stop.clone()), moved);
    ended.expect("it was told to stop");
    assert!(waited < Duration::from_secs(1), "{waited:?}");
}
