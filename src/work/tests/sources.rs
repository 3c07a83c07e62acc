//! Sources: messages of foreign queues become events, and in which order.

use super::*;

const CHANGE: &str = r#"{"kind":"change","number":"1234"}"#;

fn message(id: &str, body: &str) -> Incoming {
    let properties = Properties { message_id: Some(id.into()), ..Properties::default() };
    Incoming { routing_key: "x".into(), properties, body: body.to_owned().into() }
}

/// Takes all that waits in these sources.
async fn take(world: &World, sources: &[&str]) -> (Vec<String>, Summary) {
    let worker = sources.iter().fold(world.worker(), |worker, name| worker.source(name)).stop_when_empty(true);
    let summary = worker.run(CancellationToken::new()).await.expect("it stops when empty");
    (world.diary.entries(), summary)
}

fn published(world: &World) -> Vec<(String, String)> {
    let published = world.published.lock().expect("no panic");
    let told = published
        .iter()
        .map(|message| (message.routing_key.clone(), message.properties.message_id.clone().expect("an id")));
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn a_message_is_acknowledged_once_its_event_is_confirmed() {
    let world = World::new(Script { lose: AtomicUsize::new(1), ..Script::default() });
    world.broker.put("t.source.own", message("m", CHANGE));
    let (diary, summary) = take(&world, &["own"]).await;
    let expected = ["reserve i", "not confirmed", "publish t.scheduler import.2s", "record 7", "acknowledge", "close"];
    assert_eq!(diary, expected);
    assert_eq!((summary.messages, summary.mapped, summary.unmappable, summary.delivered), (1, 1, 0, 0));
    let event = world.published();
    assert_eq!(event.properties.message_id.as_deref(), Some("own:m"));
    assert_eq!(header(&event, "reference").as_deref(), Some("1234"));
    assert_eq!(header(&event, "reason").as_deref(), Some("message: queue=t.source.own id=m"));
    assert_eq!(&*event.body, CHANGE.as_bytes());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_mapped_is_dead_lettered_unchanged_with_the_reason() {
    let world = World::default();
    let mut poison = message("m", "{]");
    poison.properties.app_id = Some("hr".to_owned());
    poison.properties.headers.insert("tenant".to_owned(), Value::text("a"));
    poison.properties.headers.insert("x-death".to_owned(), Value::Void);
    world.broker.put("t.source.own", poison.clone());
    let (diary, summary) = take(&world, &["own"]).await;
    assert_eq!(diary, ["publish t.dead-letter source-own.dead-letter", "acknowledge", "close"]);
    assert_eq!((summary.messages, summary.mapped, summary.unmappable), (1, 0, 1));
    let letter = world.broker.waiting().remove(0);
    assert_eq!(letter.queue, "t.dead-letter.source-own");
    let Incoming { properties, body, .. } = letter.message;
    assert_eq!((&*body, properties.app_id.as_deref()), (b"{]".as_slice(), Some("hr")));
    assert_eq!(properties.headers.get("tenant"), Some(&Value::text("a")));
    let reason = properties.headers.get("reason").and_then(Value::as_str).expect("a reason");
    assert_eq!(reason, "unmappable: the body is not JSON: key must be a string at line 1 column 2");
    poison.properties.headers.remove("x-death");
    assert_eq!(crate::domain::wire::unburied(properties), poison.properties);
}

#[tokio::test(start_paused = true)]
async fn each_rule_that_matches_publishes_an_event_of_its_own() {
    let world = World::default();
    world.broker.put("hr-changes", message("m", CHANGE));
    let (_, summary) = take(&world, &["theirs"]).await;
    assert_eq!((summary.messages, summary.mapped), (1, 1));
    let mut published = published(&world);
    published.sort();
    let expected = [("import.2s", "theirs:m:1"), ("mail.now", "theirs:m:2")];
    assert_eq!(published, expected.map(|(key, id)| (key.to_owned(), id.to_owned())));
}

#[rstest]
#[case::ordered("own", "t.source.own")]
#[case::unordered("theirs", "hr-changes")]
#[tokio::test(start_paused = true)]
async fn the_order_of_arrival_is_the_order_of_versions(#[case] source: &str, #[case] queue: &str) {
    let world = World::new(Script { is_broker_silent: true, ..Script::default() });
    for n in 0..500 {
        world.broker.put(queue, message(&n.to_string(), CHANGE));
    }
    take(&world, &[source]).await;
    let published = world.published.lock().expect("no panic");
    let version = |message: &Message| header(message, "version").and_then(|version| version.parse::<i64>().ok());
    let id = |message: &Message| {
        let id = message.properties.message_id.clone().expect("an id");
        id.split(':').nth(1).and_then(|id| id.parse::<i64>().ok()).expect("a number")
    };
    let mut versions: Vec<(i64, i64)> =
        published.iter().filter_map(|message| Some((version(message)?, id(message)))).collect();
    versions.sort_unstable();
    assert!(versions.iter().map(|(_, id)| *id).eq(0..500), "{versions:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_overtakes_a_message_that_failed_in_a_source_that_keeps_its_order() {
    // The broker answers no publish for the limit of the publisher, and then fails it.
    let world = World::new(Script { stuck: AtomicUsize::new(1), ..Script::default() });
    for n in ["1", "2", "3"] {
        world.broker.put("t.source.own", message(n, CHANGE));
    }
    let (diary, summary) = take(&world, &["own"]).await;
    let ids: Vec<String> = published(&world).into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, ["own:1", "own:2", "own:3"], "{diary:?}");
    assert_eq!((summary.messages, summary.mapped, summary.returned), (4, 3, 3));
    assert_eq!(world.came_back(), 3, "all three were returned");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_keeps_no_order_publishes_many_at_a_time() {
    let confirms_after = Mutex::new(Duration::from_secs(1));
    let world = World::new(Script { confirms_after, ..Script::default() });
    for n in 0..50 {
        world.broker.put("hr-changes", message(&n.to_string(), r#"{"kind":"other"}"#));
    }
    take(&world, &["theirs"]).await;
    assert_eq!(world.most_unconfirmed.load(Ordering::SeqCst), 50);
}

#[rstest]
#[case::one_event_of_a_message("own", 1)]
#[case::two_events_of_a_message("pairs", 2)]
#[tokio::test(start_paused = true)]
async fn a_source_that_keeps_its_order_publishes_one_at_a_time(#[case] source: &str, #[case] events: usize) {
    let confirms_after = Mutex::new(Duration::from_millis(1));
    let world = World::new(Script { confirms_after, ..Script::default() });
    // More than one worker may hold.
    for n in 0..150 {
        world.broker.put(&format!("t.source.{source}"), message(&n.to_string(), CHANGE));
    }
    let sources = [source];
    tokio::join!(take(&world, &sources), take(&world, &sources));
    assert_eq!(world.published.lock().expect("no panic").len(), 150 * events);
    assert_eq!(world.most_unconfirmed.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stopping_worker_carries_on_what_is_under_way_and_returns_the_rest() {
    let confirms_after = Mutex::new(Duration::from_secs(1));
    let world = World::new(Script { confirms_after, ..Script::default() });
    for n in 0..10 {
        world.broker.put("t.source.own", message(&n.to_string(), CHANGE));
    }
    let stop = CancellationToken::new();
    let working = tokio::spawn(world.worker().source("own").run(stop.clone()));
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    stop.cancel();
    let summary = working.await.expect("no panic").expect("it stops");
    assert_eq!((summary.mapped, summary.returned), (3, 7));
    assert_eq!(world.broker.waiting().iter().filter(|waiting| waiting.queue == "t.source.own").count(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_blocked_broker_does_not_keep_a_worker_from_stopping() {
    let world = World::new(Script { blocked: true.into(), ..Script::default() });
    world.broker.put("hr-changes", message("m", CHANGE));
    let stop = CancellationToken::new();
    let worker = world.worker().source("theirs").drain_timeout(Duration::from_secs(1));
    let working = tokio::spawn(worker.run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.cancel();
    let stopped = tokio::time::timeout(Duration::from_secs(5), working).await.expect("within the drain limit");
    stopped.expect("no panic").expect("it stops");
    assert_eq!(world.broker.waiting().len(), 1, "the message is back");
}

#[tokio::test(start_paused = true)]
async fn a_message_larger_than_the_broker_takes_stays_in_its_queue() {
    let world = World::new(Script { narrow: true.into(), ..Script::default() });
    world.broker.put("t.source.own", message("m", "{]"));
    let stop = CancellationToken::new();
    let working = tokio::spawn(world.worker().source("own").run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(10)).await;
    stop.cancel();
    working.await.expect("no panic").expect("it stops");
    assert_eq!(world.broker.waiting().remove(0).queue, "t.source.own");
}

#[tokio::test]
async fn a_source_that_does_not_exist_is_named() {
    let world = World::default();
    let unknown = world.worker().source("ovn").run(CancellationToken::new()).await.expect_err("no such source");
    assert_eq!(unknown.to_string(), "there is no source `ovn` in the file; is it `own`?");
    let topology = topology();
    let desired = compile(&topology).expect("safe");
    let broker = MemoryBroker::new(&desired, Arc::new(Noon));
    let worker = Worker::new(topology, Arc::new(broker), world.register.clone(), Arc::new(Noon));
    let missing = worker.source("theirs").run(CancellationToken::new()).await.expect_err("no such queue");
    let expected = "there is no queue hr-changes on the broker, from which the source theirs takes messages; whoever owns \
                    the queue has to declare it";
    assert_eq!(missing.to_string(), expected);
}
