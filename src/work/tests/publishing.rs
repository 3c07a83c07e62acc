//! Publishing: what the register and the broker are asked, and in which order.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_event_is_recorded_only_when_the_broker_has_it() {
    let world = World::new(Script { lose: AtomicUsize::new(1), ..Script::default() });
    let (diary, unversioned) = publish(&world, NewEvent::new("import", "{}").reference("1234")).await;
    assert_eq!(diary, ["reserve i", "not confirmed", "publish t.scheduler import.2s", "record 7"]);
    assert!(!unversioned);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_competes_with_nothing_needs_no_register() {
    let world = World::new(Script { away: true, ..Script::default() });
    let (diary, unversioned) = publish(&world, NewEvent::new("mail", "{}").id("my-id").reference("1234")).await;
    assert_eq!(diary, ["publish t.scheduler mail.now"]);
    assert!(!unversioned);
    assert_eq!(header(&world.published(), "slot").as_deref(), Some("e:my-id"));
    assert_eq!(header(&world.published(), "version"), None);
}

#[tokio::test(start_paused = true)]
async fn with_redis_away_an_event_is_published_all_the_same_and_competes_with_nothing() {
    let world = World::new(Script { away: true, ..Script::default() });
    let (diary, unversioned) = publish(&world, NewEvent::new("import", "{}").id("my-id").reference("1234")).await;
    assert_eq!(diary, ["publish t.scheduler import.2s"]);
    assert!(unversioned);
    assert_eq!(header(&world.published(), "slot").as_deref(), Some("e:my-id"));
}

#[rstest]
#[case::now(NewEvent::new("mail", "{}"), "mail.now", None)]
#[case::named(NewEvent::new("mail", "{}").delay(Duration::from_secs(5)), "mail.5s", Some("2026-06-01T12:00:05.000Z"))]
#[case::past(NewEvent::new("mail", "{}").at(Timestamp::UNIX_EPOCH), "mail.now", Some("1970-01-01T00:00:00.000Z"))]
#[tokio::test(start_paused = true)]
async fn a_date_is_a_header_and_a_way(#[case] event: NewEvent, #[case] key: &str, #[case] nbf: Option<&str>) {
    let world = World::default();
    publish(&world, event).await;
    assert_eq!(world.published().routing_key, key);
    assert_eq!(header(&world.published(), "nbf").as_deref(), nbf);
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_all_times_is_refused() {
    let world = World::default();
    let publisher = world.publisher();
    let event = NewEvent::new("mail", "{}").delay(Duration::from_hours(24 * 3_000_000));
    let error = publisher.publish(event).await.expect_err("refused").to_string();
    assert_eq!(error, "the delay or the expiry leads beyond the year 9999");
    assert!(world.diary.entries().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dated_event_competes_for_its_date() {
    let world = World::default();
    let at = "2026-06-02T00:00:00.0001Z".parse().expect("a time");
    publish(&world, NewEvent::new("import", "{}").reference("1234").at(at)).await;
    // Rounded up to what the header can say: never early.
    assert_eq!(header(&world.published(), "nbf").as_deref(), Some("2026-06-02T00:00:00.001Z"));
    assert_eq!(header(&world.published(), "slot").as_deref(), Some("d:1780358400001"));
    assert_eq!(header(&world.published(), "version").as_deref(), Some("7"));
}

#[tokio::test(start_paused = true)]
async fn the_order_of_calls_is_the_order_of_versions() {
    /// The first version is 1 then, and each other one is the next number.
    struct Epoch;
    impl Clock for Epoch {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }
    }
    let world = World::default();
    let register: Arc<dyn Register> = Arc::new(MemoryRegister::new(Arc::new(Epoch), Duration::from_hours(1)));
    let publisher = Publisher::new(topology(), Arc::new(world.broker.clone()), &register, Arc::new(Noon));
    let events = (1..=2_000).map(|n| NewEvent::new("import", n.to_string()).reference("1234")).collect();
    assert!(publisher.publish_batch(events).await.iter().all(Result::is_ok));
    for message in world.published.lock().expect("no panic").iter() {
        assert_eq!(header(message, "version").map(String::into_bytes), Some(message.body.to_vec()));
    }
}
