//! Events that are under way when a pause comes, and pauses that come late.

use tokio::time::Instant;

use super::{
    paused::{MINUTE, Moving, Working, event_type, named, paused, runs, write},
    *,
};
use crate::domain::switches::{Name, Paused};

/// An hour ahead of Redis, which has told its time if the flag is set.
struct Ahead(Moving, AtomicBool);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.0.now() + HOUR
    }

    fn ahead(&self) -> Option<jiff::SignedDuration> {
        self.1.load(Ordering::SeqCst).then(|| HOUR.try_into().expect("an hour"))
    }

    fn is_compared(&self) -> bool {
        self.1.load(Ordering::SeqCst)
    }
}

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test(start_paused = true)]
async fn a_pause_that_has_ended_by_a_wrong_clock_holds_before_and_after_redis_has_told_its_time() {
    let (world, clock) = (World::default(), Arc::new(Ahead(Moving(Instant::now()), AtomicBool::default())));
    write(&world, 1, [paused(event_type("mail"), Some(Noon.now() + Duration::from_mins(10)))]);
    let worker = Working::run(world.worker_at(clock.clone()), &world, &["mail"], Duration::ZERO);
    world.put(named("mail.now", "before"));
    tokio::time::sleep(MINUTE).await;
    clock.1.store(true, Ordering::SeqCst);
    tokio::time::sleep(MINUTE).await;
    world.put(named("mail.now", "held"));
    tokio::time::sleep(Duration::from_mins(7)).await;
    assert_eq!(runs(&world), Vec::<String>::new());
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(runs(&world), ["before", "held"]);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_in_quarantine_that_is_taken_during_a_pause_goes_back_as_a_copy() {
    let world = World::new(Script { gets_take: Mutex::new(Duration::from_secs(4)), ..Script::default() });
    world.put(incoming("plain.aside", &[came_back(1), ("crashes", Value::I64(1))]));
    let worker = Working::start(&world, &["plain"], Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(2)).await;
    write(&world, 1, [paused(event_type("plain"), None)]);
    tokio::time::sleep(MINUTE).await;
    assert_eq!((runs(&world), world.came_back()), (Vec::new(), 0), "RabbitMQ would count that");
    assert_eq!(header(&world.published(), "crashes").as_deref(), Some("2"));
    write(&world, 2, []);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), ["id-1"]);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_without_an_id_that_is_paused_for_long_goes_back_as_a_copy_that_has_not_crashed() {
    let world = World::default();
    for _ in 0..2 {
        let mut message = incoming("mail.now", &[]);
        message.properties.message_id = None;
        world.put(message);
    }
    let worker = Working::run(world.worker().concurrency(1), &world, &["mail"], Duration::from_secs(10));
    tokio::time::sleep(Duration::from_secs(5)).await;
    write(&world, 1, [paused(event_type("mail"), None)]);
    tokio::time::sleep(Duration::from_hours(12)).await;
    assert_eq!((runs(&world).len(), world.came_back()), (1, 0));
    let copy = world.published();
    assert!(copy.properties.message_id.is_some());
    assert_eq!(header(&copy, "crashes"), None);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_paused_while_the_broker_is_away_waits_for_it_no_longer() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    world.absent.store(true, Ordering::SeqCst);
    let worker = Working::run(world.worker().source("own"), &world, &["keen"], Duration::ZERO);
    tokio::time::sleep(MINUTE).await;
    write(&world, 1, [paused(Paused::Source(Name("own".parse().expect("a name"))), None)]);
    tokio::time::sleep(MINUTE).await;
    world.absent.store(false, Ordering::SeqCst);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(log.lines("the broker is back").len(), 1, "{:?}", log.lines(""));
    worker.stop().await;
}
