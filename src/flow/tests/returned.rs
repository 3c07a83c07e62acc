//! Events that go on as a copy without having run.

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

/// A prefetch full of them would stop consumption, and with it what ends a disk alarm.
#[rstest]
#[case::to_be_counted_anew("mail.now", 50)]
#[case::to_be_put_aside("plain.now", 2)]
#[tokio::test(start_paused = true)]
async fn events_that_came_back_run_as_they_came_while_the_broker_blocks_publishers(
    #[case] routing_key: &str,
    #[case] returns: i64,
) {
    let fake = Arc::new(Fake { blocked: true.into(), ..Fake::default() });
    let events = (0..3).map(|_| incoming(routing_key, &[came_back(returns)]));
    fake.incoming.lock().expect("no panic").extend(events);
    let worked = tokio::time::timeout(Duration::from_mins(1), work(&fake, Outcome::Done)).await;
    let diary = worked.unwrap_or_else(|_| panic!("they wait: {:?}", fake.diary.entries()));
    let times = |what: &str| diary.iter().filter(|entry| *entry == what).count();
    assert_eq!((times("blocked"), times("handler"), times("acknowledge")), (3, 3, 3), "{diary:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_reference_was_busy_runs_once_it_is_free_while_the_broker_blocks_publishers() {
    let fake = Arc::new(Fake { blocked: true.into(), ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(versioned());
    // More looks than there is time for in memory.
    fake.claims.lock().expect("no panic").extend((0..50).map(|_| Claimed::Busy));
    let worked = tokio::time::timeout(Duration::from_mins(5), work(&fake, Outcome::Done)).await;
    let diary = worked.unwrap_or_else(|_| panic!("it waits: {:?}", fake.diary.entries()));
    assert!(diary.contains(&"blocked".to_owned()), "{diary:?}");
    assert_eq!(diary[diary.len() - 3..], ["handler", "settle finished", "acknowledge"]);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_confirms_late_takes_one_copy_of_an_event_whose_reference_is_busy() {
    let fake = Arc::new(Fake { confirms_after: Duration::from_secs(30).into(), ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(versioned());
    fake.claims.lock().expect("no panic").extend((0..1_000).map(|_| Claimed::Busy));
    let diary = work(&fake, Outcome::Done).await;
    let copies = diary.iter().filter(|entry| entry.starts_with("publish ")).count();
    assert_eq!((copies, diary.last().map(String::as_str)), (1, Some("acknowledge")), "{diary:?}");
}
