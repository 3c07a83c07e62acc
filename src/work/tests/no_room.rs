//! Where the machine has no room for a handler.

use tokio::time::Instant;

use super::*;
use crate::handler::{Handler, HandlerError, Run};

/// A handler that finds no room at first, and then whether it is a first attempt.
struct Cramped {
    diary: Diary,
    tries: AtomicUsize,
}

#[async_trait]
impl Handler for Cramped {
    async fn handle(&self, run: Run) -> Result<Outcome, HandlerError> {
        if self.tries.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(HandlerError::NoRoom("too many open files".into()));
        }
        self.diary.note(format!("handler {}", run.event.attempts));
        Ok(Outcome::Done)
    }
}

async fn cramped(world: &World, event_type: &str, tries: usize) -> (Vec<String>, Duration) {
    let handler = Cramped { diary: world.diary.clone(), tries: tries.into() };
    let worker = world.worker().stop_when_empty(true);
    let began = Instant::now();
    worker.handler(event_type, Arc::new(handler)).run(CancellationToken::new()).await.expect("it goes on");
    (world.diary.entries(), began.elapsed())
}

#[rstest]
#[case::claimed("mail", &["claim", "release"])]
#[case::unregistered("plain", &[])]
#[tokio::test(start_paused = true)]
async fn an_event_whose_handler_finds_no_room_waits_in_the_busy_hatchery_and_spends_no_attempt(
    #[case] event_type: &str,
    #[case] before: &[&str],
) {
    let world = World::default();
    world.put(incoming(&format!("{event_type}.now"), &[]));
    let (diary, _) = cramped(&world, event_type, 1).await;
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
    let (diary, took) = cramped(&world, "strict", 100).await;
    let (each, last) =
        (["claim alone", "release"], ["claim alone", "handler 0", "settle finished", "acknowledge", "close"]);
    assert_eq!(diary, [each.repeat(100), last.to_vec()].concat());
    assert!(took >= Duration::from_secs(100) && took < Duration::from_secs(110), "{took:?}");
}

/// The next handler would find no room either.
#[tokio::test(start_paused = true)]
async fn a_place_stays_empty_for_a_second_after_a_handler_found_no_room() {
    let world = World::default();
    world.put_all((0..5).map(|n| named("plain.now", &n.to_string())));
    let handler = Cramped { diary: world.diary.clone(), tries: usize::MAX.into() };
    let worker = world.worker().concurrency(1).stop_when_empty(true).handler("plain", Arc::new(handler));
    let began = Instant::now();
    worker.run(CancellationToken::new()).await.expect("it goes on");
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(world.published.lock().expect("no panic").len(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_event_in_quarantine_without_room_returns_there_and_counts_no_crash() {
    let world = World::default();
    world.put(incoming("plain.aside", &[("crashes", Value::I64(1))]));
    let (diary, _) = cramped(&world, "plain", 20).await;
    assert_eq!(
        diary,
        [["publish t.aside plain.aside", "acknowledge"].repeat(20), vec!["handler 0", "acknowledge"]].concat()
    );
    assert_eq!(header(&world.published(), "crashes").as_deref(), Some("1"));
}

/// A handler that does, call by call or event by event, what this says.
struct Told<F>(F);

#[async_trait]
impl<F, R> Handler for Told<F>
where
    F: Fn(Run) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Outcome, HandlerError>> + Send,
{
    async fn handle(&self, run: Run) -> Result<Outcome, HandlerError> {
        (self.0)(run).await
    }
}

fn no_room() -> HandlerError {
    HandlerError::NoRoom("too many processes".into())
}

fn named(event_type: &str, id: &str) -> Incoming {
    let mut message = incoming(event_type, &[]);
    message.properties.message_id = Some(id.into());
    message
}

#[tokio::test(start_paused = true)]
async fn a_suspect_without_room_stops_nothing_else() {
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
        async move { if id == "suspect" { Err(no_room()) } else { Ok(Outcome::Done) } }
    };
    let worker = world.worker().concurrency(1);
    worker.handler("mail", Arc::new(Told(handler))).run(stop).await.expect("it was told to stop");
    let diary = world.diary.entries();
    let first = |what: &str| diary.iter().position(|entry| entry == what).expect(what);
    assert!(first("suspect") < first("second"), "{diary:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_event_in_quarantine_without_room_keeps_no_other_event_waiting() {
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
        async move { if id == "suspect" { Err(no_room()) } else { Ok(Outcome::Done) } }
    };
    let worker = world.worker();
    let worker = worker.handler("plain", Arc::new(Told(handler))).run(stop);
    let ended = tokio::time::timeout(Duration::from_mins(1), worker).await;
    ended.expect("the other one has run").expect("it was told to stop");
    let expected = ["suspect", "publish t.aside plain.aside", "acknowledge", "other", "acknowledge"];
    assert_eq!(world.diary.entries(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_type_without_room_keeps_no_suspect_of_another_type_waiting() {
    let world = World::new(Script { is_broker_silent: true, ..Script::default() });
    let (stop, diary) = (CancellationToken::new(), world.diary.clone());
    let (told, worker) = (stop.clone(), world.worker());
    let runs = move |run: Run| {
        diary.note(run.event.id.clone());
        std::future::ready(Ok(Outcome::Done))
    };
    let cramped = Told(|_| std::future::ready(Err(no_room())));
    let worker = worker.concurrency(1).handler("plain", Arc::new(cramped)).handler("quick", Arc::new(Told(runs)));
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
async fn a_lack_of_room_is_logged_once_a_minute() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    let events = (0..100).map(|n| named("mail.now", &n.to_string()));
    world.put_all(events);
    let calls = AtomicUsize::new(0);
    let handler = move |_| {
        let room = calls.fetch_add(1, Ordering::SeqCst) % 2 == 1;
        async move { if room { Ok(Outcome::Done) } else { Err(no_room()) } }
    };
    let worker = world.worker().stop_when_empty(true);
    let worker = worker.concurrency(16).handler("mail", Arc::new(Told(handler)));
    let summary = worker.run(CancellationToken::new()).await.expect("it goes on");
    assert_eq!(summary.done, 50);
    assert_eq!(log.lines("event runs again in a moment").len(), 1, "{:?}", log.lines(""));
}
