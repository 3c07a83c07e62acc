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
#[case::claimed("mail", &["claim", "release"], &["claim", "handler 0", "settle finished", "acknowledge"])]
#[case::with_a_short_lease("hasty", &["claim", "release"], &["claim", "handler 0", "settle finished", "acknowledge"])]
#[case::unregistered("plain", &[], &["handler 0", "acknowledge"])]
#[case::in_order("strict", &["claim alone", "release"], &["claim alone", "handler 0", "settle finished", "acknowledge", "close"])]
#[tokio::test(start_paused = true)]
async fn a_handler_without_room_spends_no_attempt_however_long_that_lasts(
    #[case] event_type: &str,
    #[case] each: &[&str],
    #[case] last: &[&str],
) {
    let world = World::default();
    world.put(incoming(&format!("{event_type}.now"), &[]));
    // Longer than the time limit of a handler.
    let (diary, took) = cramped(&world, event_type, 100).await;
    let expected = [each.repeat(100), last.to_vec()].concat();
    assert_eq!(diary, expected);
    assert!(took >= Duration::from_secs(100) && took < Duration::from_secs(110), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_runs_alone_and_has_no_room_goes_back_aside_and_counts_as_no_death() {
    let world = World::default();
    world.put(incoming("plain.aside", &[("crashes", Value::I64(1))]));
    let (diary, _) = cramped(&world, "plain", 20).await;
    assert_eq!(
        diary,
        [["publish t.aside plain.aside", "acknowledge"].repeat(20), vec!["handler 0", "acknowledge"]].concat()
    );
    assert_eq!(header(&world.published(), "crashes").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn what_has_no_room_for_too_long_is_given_back_before_the_broker_takes_it() {
    let world = World::new(Script { forgets: true.into(), ..Script::default() });
    world.put(incoming("mail.now", &[]));
    let (diary, took) = cramped(&world, "mail", usize::MAX).await;
    assert_eq!(diary[diary.len() - 3..], ["claim", "release", "give back"]);
    // Half an hour is what the broker waits.
    assert!(took < Duration::from_mins(16), "{took:?}");
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
        let id = run.event.id;
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
async fn what_runs_alone_and_has_no_room_keeps_no_other_event_waiting() {
    let world = World::default();
    world.put(named("plain.aside", "suspect"));
    world.put(named("plain.now", "other"));
    let (stop, diary) = (CancellationToken::new(), world.diary.clone());
    let told = stop.clone();
    let handler = move |run: Run| {
        let id = run.event.id;
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

/// Nothing else starts while it waits to run alone.
#[tokio::test(start_paused = true)]
async fn a_suspect_without_room_does_not_stop_the_others_each_second() {
    let world = World::new(Script { suspects: vec!["suspect".to_owned()], ..Script::default() });
    world.put(named("mail.now", "suspect"));
    let stop = CancellationToken::new();
    let (told, worker) = (stop.clone(), world.worker());
    let worker = worker.handler("mail", Arc::new(Told(|_| std::future::ready(Err(no_room())))));
    let working = tokio::spawn(worker.run(told));
    tokio::time::sleep(Duration::from_mins(2)).await;
    stop.cancel();
    working.await.expect("no panic").expect("it was told to stop");
    let alone = world.diary.entries().iter().filter(|entry| *entry == "claim alone").count();
    assert!((2..=5).contains(&alone), "{alone} times");
}

#[tokio::test(start_paused = true)]
async fn a_type_without_room_keeps_no_suspect_of_another_type_waiting() {
    let world = World::new(Script { is_broker_silent: true, ..Script::default() });
    let (stop, diary) = (CancellationToken::new(), world.diary.clone());
    let (told, worker) = (stop.clone(), world.worker());
    let runs = move |run: Run| {
        diary.note(run.event.id);
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

/// A neighbour that kills the process while it is in both queues makes two of it.
#[tokio::test(start_paused = true)]
async fn what_makes_way_without_room_is_published_again_while_nothing_runs() {
    let world = World::default();
    world.put_all(["neighbour", "cramped"].map(|id| named("plain.now", id)));
    let (stop, end, tries) =
        (CancellationToken::new(), Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (ended, tried, diary) = (Arc::clone(&end), Arc::clone(&tries), world.diary.clone());
    let handler = move |run: Run| {
        let (ended, diary) = (Arc::clone(&ended), diary.clone());
        let cramped = run.event.id == "cramped";
        tried.fetch_add(usize::from(cramped), Ordering::SeqCst);
        async move {
            if cramped {
                return Err(no_room());
            }
            ended.notified().await;
            diary.note("ended");
            Ok(Outcome::Done)
        }
    };
    let (told, worker) = (stop.clone(), world.worker());
    let working = tokio::spawn(worker.concurrency(2).handler("plain", Arc::new(Told(handler))).run(told));
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.put(named("plain.aside", "suspect"));
    // It tries each second until it makes way.
    let mut before = 0;
    while tries.load(Ordering::SeqCst) > before {
        before = tries.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    assert!(world.diary.entries().is_empty(), "{:?}", world.diary.entries());
    end.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let diary = world.diary.entries();
    assert!(diary.starts_with(&["ended".to_owned()]), "{diary:?}");
    assert!(diary.iter().any(|entry| entry.starts_with("publish t.scheduler plain.")), "{diary:?}");
    stop.cancel();
    working.await.expect("no panic").expect("it was told to stop");
}

#[rstest]
#[case::claimed("keen", 3, &["claim", "no luck", "no luck", "no room", "release", "claim", "no luck"])]
#[case::unregistered("quick", 2, &["no luck", "no room", "no luck"])]
#[tokio::test(start_paused = true)]
async fn a_round_in_place_goes_on_where_there_was_no_room(
    #[case] event_type: &str,
    #[case] cramped: usize,
    #[case] expected: &[&str],
) {
    let world = World::default();
    world.put(incoming(&format!("{event_type}.now"), &[]));
    let (diary, calls) = (world.diary.clone(), AtomicUsize::new(0));
    let handler = move |_| {
        let room = calls.fetch_add(1, Ordering::SeqCst) + 1 != cramped;
        diary.note(if room { "no luck" } else { "no room" });
        async move { Err(if room { HandlerError::Failed("no luck".into()) } else { no_room() }) }
    };
    let worker = world.worker().stop_when_empty(true);
    let worker = worker.handler(event_type, Arc::new(Told(handler)));
    worker.run(CancellationToken::new()).await.expect("it goes on");
    let diary = world.diary.entries();
    assert_eq!(diary[..expected.len()], *expected);
    assert_eq!(diary[expected.len()], format!("publish t.dead-letter {event_type}.dead-letter"));
    assert_eq!(header(&world.published(), "attempts").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn room_for_some_and_not_for_others_is_not_said_each_time() {
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
    assert_eq!(summary.done, 100);
    let said =
        ["there is no room for a handler", "there is room for a handler again"].map(|what| log.lines(what).len());
    assert_eq!(said, [1, 1], "{:?}", log.lines(""));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_what_began_before_is_no_room_again() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    world.put_all([named("mail.now", "long"), named("mail.now", "cramped")]);
    let stop = CancellationToken::new();
    let told = stop.clone();
    let handler = move |run: Run| {
        let told = told.clone();
        async move {
            if run.event.id == "cramped" {
                return Err(no_room());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            told.cancel();
            Ok(Outcome::Done)
        }
    };
    let worker = world.worker();
    worker.handler("mail", Arc::new(Told(handler))).run(stop).await.expect("it was told to stop");
    let said =
        ["there is no room for a handler", "there is room for a handler again"].map(|what| log.lines(what).len());
    assert_eq!(said, [1, 0], "{:?}", log.lines(""));
}
