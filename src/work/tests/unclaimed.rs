//! Events that cannot be claimed because their keys in Redis are damaged, and what they hold up.

use super::*;
use crate::handler::Run;

fn event(event_type: &str, id: &str) -> Incoming {
    let mut message = incoming(&format!("{event_type}.now"), &[]);
    message.properties.message_id = Some(id.to_owned());
    message
}

/// A world whose key of the event `bad` is none of the register's.
fn damaged(script: Script) -> World {
    let world = World::new(script);
    let unreadable = RegisterError::Unreadable { url: "redis".into(), reason: "WRONGTYPE".into() };
    world.unclaimed.lock().expect("no panic").insert("bad".to_owned(), unreadable);
    world
}

#[tokio::test]
async fn an_event_whose_key_is_damaged_waits_in_the_busy_hatchery_with_the_same_stamp() {
    let (world, log) = (damaged(Script::default()), Log::default());
    let _kept = log.keep();
    world.put(event("mail", "bad"));
    let stop = CancellationToken::new();
    let worker = world.worker();
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) }).run(stop.clone());
    let summary = async {
        while !world.diary.entries().contains(&"acknowledge".to_owned()) {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let (summary, ()) = tokio::join!(worker, summary);
    let summary = summary.expect("it was told to stop");
    let expected = ["1 not claimed", "ping", "release nothing", "publish t.scheduler mail.250ms", "acknowledge"];
    assert_eq!(world.diary.entries()[..5], expected);
    assert_eq!(header(&world.published(), "generation").as_deref(), Some("0"));
    assert_eq!(header(&world.published(), "busy").as_deref(), Some("1"));
    assert_eq!((summary.busy, summary.given_back), (1, 0));
    let errors = log.lines("ERROR");
    assert!(errors.len() == 1 && errors[0].contains("id=\"bad\""), "{errors:?}");
}

#[tokio::test]
async fn a_damaged_key_is_logged_less_and_less_often() {
    let (world, log) = (damaged(Script::default()), Log::default());
    let _kept = log.keep();
    for busy in 0..20 {
        let mut copy = incoming("mail.now", &[("busy", Value::I64(busy))]);
        copy.properties.message_id = Some("bad".to_owned());
        world.put(copy);
    }
    let stop = CancellationToken::new();
    let worker = world.worker();
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) }).run(stop.clone());
    let stopping = async {
        while world.published.lock().expect("no panic").len() < 20 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    assert_eq!(tokio::join!(worker, stopping).0.expect("it was told to stop").busy, 20);
    // 0, 1, 2, 4, 8 and 16.
    assert_eq!(log.lines("ERROR").len(), 6, "{:?}", log.lines(""));
}

#[tokio::test(start_paused = true)]
async fn an_ordered_event_whose_key_is_damaged_holds_up_its_own_type_alone() {
    let world = damaged(Script { is_broker_silent: true, ..Script::default() });
    let diary = world.diary.clone();
    let note = move |run: Run| {
        diary.note(format!("run {}", run.event.id));
        std::future::ready(Ok::<_, String>(Outcome::Done))
    };
    let worker = world.worker();
    let worker = worker.handle("mail", note.clone()).handle("strict", note);
    let stop = CancellationToken::new();
    let told = stop.clone();
    let worker = tokio::spawn(async move { worker.run(told).await.expect("it was told to stop") });
    world.put(event("strict", "bad"));
    world.put(event("strict", "behind"));
    for n in 0..20 {
        world.put(event("mail", &n.to_string()));
    }
    // Time passes only where nothing else is left to do.
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.settled.lock().expect("no panic").len(), 20);
    let tries = world.diary.entries().iter().filter(|entry| *entry == "1 not claimed").count();
    assert!((8..=60).contains(&tries), "{tries}");
    world.unclaimed.lock().expect("no panic").clear();
    tokio::time::sleep(Duration::from_secs(30)).await;
    stop.cancel();
    assert_eq!(worker.await.expect("no panic").done, 22);
    let diary = world.diary.entries();
    let place = |entry: &str| diary.iter().position(|noted| noted == entry);
    assert!(place("run bad").is_some() && place("run bad") < place("run behind"), "{diary:?}");
    assert_eq!(world.came_back(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_key_counts_as_an_outage_while_redis_answers_nothing() {
    let world = World::new(Script { away: true, ..Script::default() });
    let unreadable = RegisterError::Unreadable { url: "redis".into(), reason: "WRONGTYPE".into() };
    world.unclaimed.lock().expect("no panic").insert("bad".to_owned(), unreadable);
    let log = Log::default();
    let _kept = log.keep();
    world.put(event("mail", "bad"));
    let stop = CancellationToken::new();
    let worker = world.worker();
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) }).run(stop.clone());
    let stopping = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        stop.cancel();
    };
    assert_eq!(tokio::join!(worker, stopping).0.expect("it was told to stop").busy, 0);
    assert_eq!(log.lines("no event of a type that needs it is started").len(), 1, "{:?}", log.lines(""));
    assert!(world.published.lock().expect("no panic").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_when_empty_does_not_wait_for_an_event_whose_key_is_damaged() {
    let world = damaged(Script::default());
    world.put(event("mail", "bad"));
    let worker = world.worker().stop_when_empty(true);
    let began = tokio::time::Instant::now();
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) });
    assert_eq!(worker.run(CancellationToken::new()).await.expect("it stops by itself").busy, 1);
    // Its way through the hatchery alone takes 250 ms, and a second is added.
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_suspect_that_gets_no_answer_keeps_nothing_else_from_starting_and_runs_alone_once_it_has_one() {
    let world = World::new(Script { is_broker_silent: true, suspects: vec!["suspect".into()], ..Script::default() });
    let unanswered = || world.unclaimed.lock().expect("no panic");
    let (diary, end) = (world.diary.clone(), Arc::new(tokio::sync::Notify::new()));
    let ended = Arc::clone(&end);
    let handler = move |run: Run| {
        let (id, ended, diary) = (run.event.id.clone(), Arc::clone(&ended), diary.clone());
        diary.note(format!("run {id}"));
        async move {
            if id.starts_with("long") {
                ended.notified().await;
                diary.note(format!("end {id}"));
            }
            Ok::<_, String>(Outcome::Done)
        }
    };
    let worker = world.worker();
    let worker = worker.handle("mail", handler.clone()).handle("plain", handler);
    let stop = CancellationToken::new();
    let told = stop.clone();
    let worker = tokio::spawn(async move { worker.run(told).await.expect("it was told to stop") });
    let a_while = || tokio::time::sleep(Duration::from_secs(15));
    // It ends an outage, and is kept through the next one.
    unanswered().insert("suspect".to_owned(), unreachable());
    world.put(event("plain", "long"));
    world.put(event("mail", "suspect"));
    a_while().await;
    unanswered().clear();
    a_while().await;
    let diary = world.diary.entries();
    assert_eq!(diary.last().map(String::as_str), Some("claim"), "{diary:?}");
    // What runs holds it up until Redis is away again.
    unanswered().insert("suspect".to_owned(), unreachable());
    end.notify_one();
    a_while().await;
    world.put(event("plain", "long too"));
    a_while().await;
    assert!(world.diary.entries().contains(&"run long too".to_owned()), "{:?}", world.diary.entries());
    unanswered().clear();
    a_while().await;
    let diary = world.diary.entries();
    assert_eq!(diary[diary.len() - 2..], ["claim alone", "release"], "{diary:?}");
    end.notify_one();
    a_while().await;
    let diary = world.diary.entries();
    assert_eq!(diary[diary.len() - 4..], ["end long too", "claim alone", "run suspect", "settle finished"]);
    stop.cancel();
    assert_eq!(worker.await.expect("no panic").done, 3);
}
