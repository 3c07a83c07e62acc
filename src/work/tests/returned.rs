//! Events that go on as a copy without having run.

use super::{
    paused::{MINUTE, named, runs},
    *,
};
use crate::Run;

fn without_id(world: &World, events: usize) {
    let nameless = || {
        let mut message = incoming("mail.now", &[came_back(1)]);
        message.properties.message_id = None;
        message
    };
    world.put_all((0..events).map(|_| nameless()));
}

#[tokio::test(start_paused = true)]
async fn a_redelivered_event_without_an_id_is_published_again_with_one_and_a_pause_and_does_not_run_as_it_came() {
    let world = World::default();
    without_id(&world, 1);
    assert_eq!(
        work(&world, Outcome::Done).await,
        ["publish t.scheduler mail.250ms-27.0.0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0", "acknowledge"]
    );
    assert!(world.published().properties.message_id.is_some());
    assert_eq!(header(&world.published(), "crashes").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn redelivered_events_without_an_id_run_as_they_came_while_the_broker_blocks_publishers() {
    let world = World::new(Script { blocked: true.into(), ..Script::default() });
    without_id(&world, 3);
    let diary = work(&world, Outcome::Done).await;
    let times = |what: &str| diary.iter().filter(|entry| *entry == what).count();
    assert_eq!((times("blocked"), times("handler"), times("acknowledge")), (3, 3, 3), "{diary:?}");
}

/// The handler of the first event runs until the worker stops.
#[tokio::test(start_paused = true)]
async fn a_redelivered_event_without_an_id_waits_for_no_handler_and_keeps_none_from_starting() {
    let world = World::default();
    world.put(incoming("mail.now", &[]));
    without_id(&world, 1);
    let (diary, stop) = (world.diary.clone(), CancellationToken::new());
    let (noted, stopped) = (diary.clone(), stop.clone());
    let handler = move |_| {
        let (diary, stop) = (noted.clone(), stopped.clone());
        async move {
            stop.cancelled().await;
            diary.note("handler");
            Ok::<_, String>(Outcome::Done)
        }
    };
    let worker = world.worker().handle("mail", handler);
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
#[case::to_be_put_into_quarantine("plain.now", 2)]
#[tokio::test(start_paused = true)]
async fn events_that_came_back_run_as_they_came_while_the_broker_blocks_publishers(
    #[case] routing_key: &str,
    #[case] returns: i64,
) {
    let world = World::new(Script { blocked: true.into(), ..Script::default() });
    for id in ["a", "b", "c"] {
        let mut message = incoming(routing_key, &[came_back(returns)]);
        message.properties.message_id = Some(id.to_owned());
        world.put(message);
    }
    let worked = tokio::time::timeout(Duration::from_mins(1), work(&world, Outcome::Done)).await;
    let diary = worked.unwrap_or_else(|_| panic!("they wait: {:?}", world.diary.entries()));
    let times = |what: &str| diary.iter().filter(|entry| *entry == what).count();
    assert_eq!((times("blocked"), times("handler"), times("acknowledge")), (3, 3, 3), "{diary:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_reference_was_busy_runs_once_it_is_free_while_the_broker_blocks_publishers() {
    let world = World::new(Script { blocked: true.into(), ..Script::default() });
    world.put(versioned());
    // More looks than there is time for in memory.
    world.claims.lock().expect("no panic").extend((0..50).map(|_| ClaimAnswer::Busy));
    let worked = tokio::time::timeout(Duration::from_mins(5), work(&world, Outcome::Done)).await;
    let diary = worked.unwrap_or_else(|_| panic!("it waits: {:?}", world.diary.entries()));
    assert!(diary.contains(&"blocked".to_owned()), "{diary:?}");
    assert_eq!(diary[diary.len() - 3..], ["handler", "settle finished", "acknowledge"]);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_confirms_late_takes_one_copy_of_an_event_whose_reference_is_busy() {
    let world = World::new(Script { confirms_after: Duration::from_secs(30).into(), ..Script::default() });
    world.put(versioned());
    world.claims.lock().expect("no panic").extend((0..1_000).map(|_| ClaimAnswer::Busy));
    let diary = work(&world, Outcome::Done).await;
    let copies = diary.iter().filter(|entry| entry.starts_with("publish ")).count();
    assert_eq!((copies, diary.last().map(String::as_str)), (1, Some("acknowledge")), "{diary:?}");
}

/// The broker takes a delivery back while its event runs. The event comes again to this worker, which publishes one copy of it, or to
/// another one.
#[rstest]
#[case::here(false, 1)]
#[case::elsewhere(true, 0)]
#[tokio::test(start_paused = true)]
async fn an_event_whose_delivery_was_taken_back_goes_on_once_if_its_handler_is_unavailable(
    #[case] is_elsewhere: bool,
    #[case] copies: usize,
) {
    let world = World::new(Script { forgets: is_elsewhere.into(), ..Script::default() });
    world.put(named("plain.now", "a"));
    let diary = world.diary.clone();
    let handler = move |run: Run| {
        diary.note(format!("run {}", run.event.id));
        async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok::<_, String>(Outcome::unavailable("down"))
        }
    };
    let stop = CancellationToken::new();
    let worker = tokio::spawn(world.worker().handle("plain", handler).run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.broker.take_back();
    tokio::time::sleep(MINUTE).await;
    assert_eq!((runs(&world), world.broker.waiting().len()), (vec!["a".to_owned()], copies));
    stop.cancel();
    worker.await.expect("no panic").expect("it was told to stop");
}
