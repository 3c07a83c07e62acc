//! Types without the register, and their quarantine.

use super::{
    paused::{MINUTE, Working, named, runs},
    *,
};

#[rstest]
#[case::done(Outcome::Done, &["handler", "acknowledge"])]
#[case::retry(failure(), &["handler", "publish t.retry plain.1s", "acknowledge"])]
#[case::retry_after(
    Outcome::Retry { reason: "no luck".into(), after: Some(Duration::from_secs(5)) },
    &["handler", "publish t.scheduler plain.5s", "acknowledge"]
)]
#[case::requeue(
    Outcome::Requeue { at: "2026-06-01T12:00:05Z".parse().expect("a time"), reason: "later".into() },
    &["handler", "publish t.scheduler plain.5s", "acknowledge"]
)]
#[tokio::test(start_paused = true)]
async fn a_type_without_the_register_asks_it_nothing(#[case] outcome: Outcome, #[case] expected: &[&str]) {
    let world = World::default();
    // Published when the type had a register.
    let competing = [("slot", Value::text("i")), ("version", Value::I64(7)), ("reference", Value::text("1234"))];
    world.put(incoming("plain.now", &competing));
    assert_eq!(work(&world, outcome.clone()).await, expected);
    if let Outcome::Requeue { .. } = outcome {
        assert_eq!(header(&world.published(), "slot").as_deref(), Some("e:id-1"));
    }
    let (diary, unversioned) = publish(&world, NewEvent::new("plain", "{}").reference("1234")).await;
    assert_eq!((diary[expected.len()..].join(""), unversioned), ("publish t.scheduler plain.now".to_owned(), false));
}

#[tokio::test(start_paused = true)]
async fn an_event_without_the_register_that_came_back_twice_is_put_into_quarantine_and_runs_there() {
    let world = World::default();
    // In the order of the queue; what came back once starts as usual.
    let mut other = incoming("plain.now", &[came_back(1)]);
    other.properties.message_id = Some("id-2".into());
    world.put_all([incoming("plain.now", &[came_back(2), ("crashes", Value::I64(7))]), other]);
    let diary = work(&world, Outcome::Done).await;
    let times = |what: &str| diary.iter().filter(|entry| *entry == what).count();
    assert_eq!((times("publish t.aside plain.aside"), times("handler"), times("acknowledge")), (1, 2, 3), "{diary:?}");
    assert_eq!(diary[diary.len() - 2..], ["handler", "acknowledge"], "the suspect runs when all else is settled");
    let copy = world.published();
    assert_eq!(header(&copy, "reason").as_deref(), Some(crate::domain::settlement::suspect(2).as_str()));
    for gone in ["x-delivery-count", "crashes"] {
        assert_eq!(header(&copy, gone), None, "it is counted anew");
    }
}

/// A worker looks for what is in quarantine after 15 s at the latest, and before it answers RabbitMQ has delivered.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_being_opened_when_something_is_in_quarantine_gives_nothing_back() {
    let world = World::new(Script { consumes_take: Mutex::new(Duration::from_secs(20)), ..Script::default() });
    let worker = Working::start(&world, &["plain", "quick"], Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.came_back(), 2, "two consumers are being opened");
    world.put(named("plain.aside", "suspect"));
    tokio::time::sleep(Duration::from_secs(18)).await;
    assert_eq!((runs(&world), world.came_back()), (Vec::new(), 2));
    tokio::time::sleep(MINUTE).await;
    assert_eq!((runs(&world), world.came_back()), (vec!["suspect".to_owned()], 0));
    assert_eq!(worker.stop().await.done, 1);
}

#[rstest]
#[case::first_time_alone(&[], true)]
#[case::below_the_limit(&[came_back(2)], true)]
#[case::at_the_limit(&[came_back(3)], false)]
#[case::carried_over_a_stop(&[came_back(1), ("crashes", Value::I64(2))], false)]
#[tokio::test(start_paused = true)]
async fn an_event_that_killed_its_worker_alone_too_often_is_dead_lettered_and_not_started(
    #[case] headers: &[(&str, Value)],
    #[case] runs: bool,
) {
    let world = World::default();
    world.put(incoming("plain.aside", headers));
    let diary = work(&world, failure()).await;
    if runs {
        assert_eq!(diary, ["handler", "publish t.retry plain.1s", "acknowledge"]);
    } else {
        assert_eq!(diary, ["publish t.dead-letter plain.dead-letter", "acknowledge"]);
        let reason = header(&world.published(), "reason").expect("a reason");
        assert!(reason.starts_with("crash: it came back 3 times when it ran alone"), "{reason}");
    }
    assert_eq!(header(&world.published(), "crashes"), None, "a copy that goes elsewhere begins afresh");
}

#[tokio::test(start_paused = true)]
async fn an_event_in_quarantine_at_the_drain_limit_is_given_back_as_a_copy_that_knows_its_count() {
    let world = World::default();
    world.put(incoming("plain.aside", &[came_back(1), ("crashes", Value::I64(1))]));
    let stop = CancellationToken::new();
    let (diary, told) = (world.diary.clone(), stop.clone());
    let handler = move |_| {
        diary.note("handler");
        told.cancel();
        std::future::pending::<Result<Outcome, String>>()
    };
    let worker = world.worker().drain_timeout(Duration::ZERO);
    worker.handle("plain", handler).run(stop).await.expect("it was told to stop");
    assert_eq!(world.diary.entries(), ["handler", "publish t.aside plain.aside", "acknowledge"]);
    assert_eq!(header(&world.published(), "crashes").as_deref(), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn tries_in_place_without_the_register_claim_nothing() {
    let world = World::new(Script { away: true, ..Script::default() });
    world.put(incoming("quick.now", &[]));
    let expected = ["handler", "handler", "publish t.dead-letter quick.dead-letter", "acknowledge"];
    assert_eq!(work(&world, failure()).await, expected);
    assert_eq!(header(&world.published(), "attempts").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_between_two_tries_alone_leaves_the_reason_to_be_in_quarantine() {
    let world = World::default();
    let headers = [came_back(1), ("crashes", Value::I64(1)), ("reason", Value::text("crash: why"))];
    world.put(incoming("quick.aside", &headers));
    let stop = CancellationToken::new();
    let (diary, told, tries) = (world.diary.clone(), stop.clone(), AtomicUsize::new(0));
    let handler = move |_| {
        diary.note("handler");
        let last = tries.fetch_add(1, Ordering::SeqCst) == 1;
        let told = told.clone();
        async move {
            if !last {
                return Err("no luck");
            }
            told.cancel();
            std::future::pending::<Result<Outcome, &str>>().await
        }
    };
    let worker = world.worker().drain_timeout(Duration::ZERO);
    worker.handle("quick", handler).run(stop).await.expect("it was told to stop");
    assert_eq!(world.diary.entries(), ["handler", "handler", "publish t.aside quick.aside", "acknowledge"]);
    let copy = world.published();
    let carried = ["crashes", "attempts", "reason", "last_failure"].map(|name| header(&copy, name));
    let expected = ["2", "0", "crash: why", "2026-06-01T12:00:00.000Z no luck"];
    assert_eq!(carried, expected.map(|text| Some(text.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_takes_no_publish_stops_no_neighbour_of_what_is_put_into_quarantine() {
    let world = World::new(Script { lose: 30.into(), ..Script::default() });
    let (suspect, neighbour) = (incoming("plain.now", &[came_back(2)]), incoming("plain.now", &[]));
    world.put_all([suspect, neighbour]);
    let diary = work(&world, Outcome::Done).await;
    let times = |what: &str| diary.iter().filter(|entry| *entry == what).count();
    assert_eq!((times("publish t.aside plain.aside"), times("handler"), times("acknowledge")), (0, 2, 2), "{diary:?}");
    assert_eq!(diary[0], "not confirmed", "{diary:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_too_large_to_put_into_quarantine_is_not_counted_and_does_not_wake_the_quarantine() {
    let world = World::new(Script { narrow: true.into(), ..Script::default() });
    world.put(incoming("plain.now", &[came_back(2)]));
    let worker = world.worker().stop_when_empty(true);
    let worker = worker.handle("plain", |_| async { Ok::<_, String>(Outcome::Done) });
    let summary = worker.run(CancellationToken::new()).await.expect("it goes on");
    assert_eq!((summary.put_aside, summary.rejected), (0, 1));
    assert_eq!(world.asked.lock().expect("no panic").len(), 1, "it consumes on");
}
