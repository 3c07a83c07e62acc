//! Types that keep their order.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_ordered_event_is_claimed_anew_for_each_try_and_those_behind_it_wait() {
    let world = World::default();
    let mut second = incoming("strict.now", &[]);
    second.properties.message_id = Some("id-2".into());
    world.put_all([incoming("strict.now", &[]), second]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let worker = world.worker().stop_when_empty(true);
    let noted = Arc::clone(&seen);
    let handler = move |run: crate::handler::Run| {
        let attempts = run.event.attempts;
        noted.lock().expect("no panic").push((run.event.id.clone(), attempts, run.event.last_failure.clone()));
        async move { if run.event.id == "id-1" && attempts < 2 { Err("no luck") } else { Ok(Outcome::Done) } }
    };
    let summary = worker.handle("strict", handler).run(CancellationToken::new()).await.expect("it stops when empty");
    let tried = ["claim alone", "release"];
    let done = ["claim alone", "settle finished", "acknowledge"];
    assert_eq!(world.diary.entries(), [&tried[..], &tried, &done, &done, &["close"]].concat());
    let failed = || Some("2026-06-01T12:00:00.000Z no luck".to_owned());
    let expected = [("id-1", 0, None), ("id-1", 1, failed()), ("id-1", 2, failed()), ("id-2", 0, None)];
    assert_eq!(*seen.lock().expect("no panic"), expected.map(|(id, attempts, last)| (id.to_owned(), attempts, last)));
    assert_eq!((summary.done, summary.retried, summary.given_back), (2, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn an_ordered_event_is_never_put_into_quarantine_for_its_crashes() {
    let stamp = crate::domain::register::CopyVersion::uncontested("id-1", 0);
    let crashed = ClaimAnswer::Run { fence: 9, crashes: 200, stamp };
    let world = World::new(Script { claims: Mutex::new(vec![ClaimAnswer::Busy, crashed]), ..Script::default() });
    world.put(incoming("strict.now", &[]));
    let expected = ["claim alone", "claim alone", "handler", "settle finished", "acknowledge", "close"];
    assert_eq!(work(&world, Outcome::Done).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_while_it_waits_to_try_again_gives_everything_back_with_its_channel() {
    let world = World::default();
    world.put_all([incoming("strict.now", &[]), incoming("strict.now", &[])]);
    let stop = CancellationToken::new();
    let told = stop.clone();
    let handler = move |_| {
        told.cancel();
        let after = Some(Duration::from_hours(1));
        async move { Ok::<_, String>(Outcome::Retry { reason: "busy".into(), after }) }
    };
    let worker = world.worker();
    let summary = worker.handle("strict", handler).run(stop).await.expect("it was told to stop");
    assert_eq!(world.diary.entries(), ["claim alone", "release", "close"]);
    assert_eq!(summary.given_back, 2);
}

#[tokio::test(start_paused = true)]
async fn an_ordered_event_without_the_register_is_never_put_into_quarantine_and_claims_nothing() {
    let world = World::new(Script { away: true, ..Script::default() });
    let mut second = incoming("exact.now", &[]);
    second.properties.message_id = Some("id-2".into());
    world.put_all([incoming("exact.now", &[came_back(200)]), second]);
    let worker = world.worker().stop_when_empty(true);
    let diary = world.diary.clone();
    let handler = move |run: crate::handler::Run| {
        diary.note(format!("{} {}", run.event.id, run.event.attempts));
        async move { if run.event.id == "id-1" && run.event.attempts < 2 { Err("no luck") } else { Ok(Outcome::Done) } }
    };
    let summary = worker.handle("exact", handler).run(CancellationToken::new()).await.expect("it stops when empty");
    let expected = ["id-1 0", "id-1 1", "id-1 2", "acknowledge", "id-2 0", "acknowledge", "close"];
    assert_eq!(world.diary.entries(), expected);
    assert_eq!((summary.done, summary.retried, summary.put_aside), (2, 2, 0));
}
