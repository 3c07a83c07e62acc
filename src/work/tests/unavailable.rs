//! While what a handler needs is away.

use tokio::time::Instant;

use super::*;
use crate::handler::Run;

/// Works with a handler that is unavailable at first, and then notes the attempts. Returns the diary, and how long it took.
async fn unavailable_at_first(world: &World, event_type: &str, tries: usize) -> (Vec<String>, Duration) {
    let (diary, left, began) = (world.diary.clone(), AtomicUsize::new(tries), Instant::now());
    let handler = move |run: Run| {
        let is_away = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if !is_away {
            diary.note(format!("handler {}", run.event.attempts));
        }
        async move { if is_away { away() } else { Outcome::Done } }
    };
    let worker = world.worker().stop_when_empty(true);
    worker.handle(event_type, handler).run(CancellationToken::new()).await.expect("it goes on");
    (world.diary.entries(), began.elapsed())
}

fn away() -> Outcome {
    Outcome::unavailable("connection refused")
}

#[rstest]
#[case::claimed("mail", &["claim", "release"])]
#[case::unregistered("plain", &[])]
#[tokio::test(start_paused = true)]
async fn an_event_whose_handler_is_unavailable_waits_in_the_busy_hatchery_and_spends_no_attempt(
    #[case] event_type: &str,
    #[case] before: &[&str],
) {
    let world = World::default();
    world.put(incoming(&format!("{event_type}.now"), &[]));
    let (diary, _) = unavailable_at_first(&world, event_type, 1).await;
    let sent = format!("publish t.scheduler {event_type}.250ms");
    assert_eq!(diary, [before, &[sent.as_str(), "acknowledge"]].concat());
    let copy = world.published();
    let carried = ["attempts", "generation", "busy"].map(|name| header(&copy, name));
    let generation = (event_type == "mail").then(|| "0".to_owned());
    assert_eq!(carried, [Some("0".to_owned()), generation.or(header(&copy, "generation")), Some("1".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_keeps_its_order_is_tried_again_in_its_place_and_spends_no_attempt() {
    let world = World::default();
    world.put(incoming("strict.now", &[]));
    // Longer than the time limit of a handler.
    let (diary, took) = unavailable_at_first(&world, "strict", 100).await;
    let (each, last) = (["claim alone", "release"], ["claim alone", "handler 0", "settle finished", "acknowledge"]);
    let tries: Vec<&str> = diary.iter().map(String::as_str).filter(|entry| *entry != "close").collect();
    assert_eq!(tries, [each.repeat(100), last.to_vec()].concat());
    // One consumer before the outage is long, one that tells of it, and one after it.
    assert_eq!(diary.len() - tries.len(), 3, "{diary:?}");
    assert!(took >= Duration::from_secs(200) && took < Duration::from_secs(500), "{took:?}");
}

/// A handler that is unavailable until a moment, and notes each run with its time.
struct Until(Instant);

impl Until {
    fn handler(&self, world: &World) -> impl Fn(Run) -> std::future::Ready<Outcome> + Send + Sync + 'static + use<> {
        let (diary, until) = (world.diary.clone(), self.0);
        move |run: Run| {
            let is_away = Instant::now() < until;
            let left = until.saturating_duration_since(Instant::now());
            diary.note(format!("{} {left:?} {}", if is_away { "away" } else { "done" }, run.event.id));
            std::future::ready(if is_away { away() } else { Outcome::Done })
        }
    }
}

#[rstest]
#[case::claimed("mail")]
#[case::unregistered("plain")]
#[tokio::test(start_paused = true)]
async fn a_worker_whose_handler_is_unavailable_tries_few_events_and_resumes_at_once(#[case] event_type: &str) {
    let world = World::new(Script { is_broker_silent: true, ..Script::default() });
    world.put_all((0..40).map(|n| named(&format!("{event_type}.now"), &n.to_string())));
    let began = Instant::now();
    let handler = Until(began + Duration::from_secs(5)).handler(&world);
    let stop = CancellationToken::new();
    let worker = world.worker().concurrency(4).handle(event_type, handler);
    let working = tokio::spawn(worker.run(stop.clone()));
    let count = |what: &str| world.diary.entries().iter().filter(|entry| entry.starts_with(what)).count();
    tokio::time::sleep(Duration::from_secs(5)).await;
    // Four start at once, and then one after each pause, from a tenth of a second on.
    assert!((5..=4 + 6).contains(&count("away")), "{:?}", world.diary.entries());
    let entries = world.diary.entries();
    let times: Vec<_> =
        entries.iter().filter(|entry| entry.starts_with("away")).map(|entry| entry.split(' ').nth(1)).collect();
    let moments = times.iter().collect::<std::collections::BTreeSet<_>>().len();
    assert!(moments + 3 >= times.len(), "each by itself but for the first four: {entries:?}");
    let tried = count("away");
    // No pause is longer than five seconds.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((count("away"), count("done")), (tried, 40 - tried), "the others run at once");
    assert_eq!(world.came_back(), 0, "RabbitMQ would count that");
    stop.cancel();
    working.await.expect("no panic").expect("it was told to stop");
}

#[rstest]
#[case::claimed("mail")]
#[case::unregistered("plain")]
#[tokio::test(start_paused = true)]
async fn a_worker_whose_handler_stays_unavailable_leaves_its_events_to_others_and_holds_one(#[case] event_type: &str) {
    let world = World::new(Script { is_broker_silent: true, ..Script::default() });
    world.put_all((0..40).map(|n| named(&format!("{event_type}.now"), &n.to_string())));
    let handler = Until(Instant::now() + Duration::from_hours(2)).handler(&world);
    let stop = CancellationToken::new();
    let working = tokio::spawn(world.worker().concurrency(4).handle(event_type, handler).run(stop.clone()));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(world.published.lock().expect("no panic").len(), 40, "all wait as copies");
    world.put_all((40..80).map(|n| named(&format!("{event_type}.now"), &n.to_string())));
    tokio::time::sleep(Duration::from_mins(1)).await;
    let tried = world.published.lock().expect("no panic").len() - 40;
    assert!((10..=25).contains(&tried), "one at a time is taken, tried and left, and not {tried} in a minute");
    assert_eq!(world.broker.waiting().len(), 80 - 1, "all but one are in the broker's queues");
    assert_eq!(world.came_back(), 0, "RabbitMQ would count that");
    stop.cancel();
    working.await.expect("no panic").expect("it was told to stop");
}

#[tokio::test(start_paused = true)]
async fn an_event_in_quarantine_returns_there_while_its_handler_is_unavailable_and_counts_no_crash() {
    let world = World::default();
    world.put(incoming("plain.aside", &[("crashes", Value::I64(1))]));
    let (diary, _) = unavailable_at_first(&world, "plain", 20).await;
    assert_eq!(
        diary,
        [["publish t.aside plain.aside", "acknowledge"].repeat(20), vec!["handler 0", "acknowledge"]].concat()
    );
    assert_eq!(header(&world.published(), "crashes").as_deref(), Some("1"));
}

fn named(event_type: &str, id: &str) -> Incoming {
    let mut message = incoming(event_type, &[]);
    message.properties.message_id = Some(id.into());
    message
}

#[tokio::test(start_paused = true)]
async fn a_suspect_whose_handler_is_unavailable_stops_nothing_else() {
    let world = World::new(Script { suspects: vec!["suspect".into()], ..Script::default() });
    let events = ["suspect", "first", "second", "last"].map(|id| named("mail.now", id));
    world.put_all(events);
    let (stop, began, diary) = (CancellationToken::new(), Instant::now(), world.diary.clone());
    let told = stop.clone();
    let handler = move |run: Run| {
        let id = run.event.id.clone();
        diary.note(id.clone());
        if id == "last" {
            told.cancel();
        }
        async move { if id == "suspect" { away() } else { Outcome::Done } }
    };
    let worker = world.worker().concurrency(1);
    worker.handle("mail", handler).run(stop).await.expect("it was told to stop");
    let diary = world.diary.entries();
    let first = |what: &str| diary.iter().position(|entry| entry == what).expect(what);
    assert!(first("suspect") < first("second"), "{diary:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_event_in_quarantine_whose_handler_is_unavailable_keeps_no_other_event_waiting() {
    let world = World::default();
    world.put(named("plain.aside", "suspect"));
    world.put(named("plain.now", "other"));
    let (stop, diary) = (CancellationToken::new(), world.diary.clone());
    let told = stop.clone();
    let handler = move |run: Run| {
        let id = run.event.id.clone();
        diary.note(id.clone());
        if id == "other" {
            told.cancel();
        }
        async move { if id == "suspect" { away() } else { Outcome::Done } }
    };
    let worker = world.worker();
    let worker = worker.handle("plain", handler).run(stop);
    let ended = tokio::time::timeout(Duration::from_mins(1), worker).await;
    ended.expect("the other one has run").expect("it was told to stop");
    let expected = ["suspect", "publish t.aside plain.aside", "acknowledge", "other", "acknowledge"];
    assert_eq!(world.diary.entries(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_type_whose_handler_is_unavailable_keeps_no_suspect_of_another_type_waiting() {
    let world = World::new(Script { is_broker_silent: true, ..Script::default() });
    let (stop, diary) = (CancellationToken::new(), world.diary.clone());
    let (told, worker) = (stop.clone(), world.worker());
    let runs = move |run: Run| {
        diary.note(run.event.id.clone());
        std::future::ready(Outcome::Done)
    };
    let worker = worker.concurrency(1).handle("plain", |_| std::future::ready(away())).handle("quick", runs);
    let working = tokio::spawn(worker.run(told));
    for n in 0..100 {
        world.put(named("plain.now", &n.to_string()));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.put(named("quick.aside", "suspect"));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(world.diary.entries(), ["suspect"]);
    assert_eq!(world.came_back(), 0, "RabbitMQ would count that");
    stop.cancel();
    working.await.expect("no panic").expect("it was told to stop");
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_handler_is_logged_once_when_it_goes_and_once_when_it_is_back() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    world.put_all((0..100).map(|n| named("mail.now", &n.to_string())));
    let handler = Until(Instant::now() + Duration::from_mins(5)).handler(&world);
    let stop = CancellationToken::new();
    let working = tokio::spawn(world.worker().concurrency(16).handle("mail", handler).run(stop.clone()));
    tokio::time::sleep(Duration::from_mins(6)).await;
    world.put(named("mail.now", "last"));
    tokio::time::sleep(Duration::from_mins(1)).await;
    stop.cancel();
    let summary = working.await.expect("no panic").expect("it was told to stop");
    assert!(summary.done > 0, "{summary:?}");
    let said = |what: &str| log.lines(what).into_iter().filter(|line| line.contains("event_type=mail")).count();
    assert_eq!((said("the handler is unavailable"), said("is available again")), (1, 1), "{:?}", log.lines(""));
}

/// A service of which one instance is away refuses some of the connections.
#[tokio::test(start_paused = true)]
async fn a_handler_that_is_unavailable_now_and_then_is_logged_once_a_minute() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    world.put_all((0..100).map(|n| named("mail.now", &n.to_string())));
    let calls = AtomicUsize::new(0);
    let handler = move |_| {
        let is_away = calls.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        async move { if is_away { away() } else { Outcome::Done } }
    };
    let worker = world.worker().stop_when_empty(true).concurrency(16).handle("mail", handler);
    let summary = worker.run(CancellationToken::new()).await.expect("it goes on");
    assert!(summary.done >= 40, "{summary:?}");
    assert_eq!(log.lines("the handler is unavailable").len(), 1, "{:?}", log.lines(""));
}
