//! What cannot be claimed, because of what Redis holds of it, and what it holds up.

use super::{shelf::Shelf, *};
use crate::handler::Run;

fn event(event_type: &str, id: &str) -> Incoming {
    let mut message = incoming(&format!("{event_type}.now"), &[]);
    message.properties.message_id = Some(id.to_owned());
    message
}

/// A fake whose key of the event `bad` is none of the register's.
fn damaged() -> Arc<Fake> {
    let fake = Arc::new(Fake::default());
    let unreadable = RegisterError::Unreadable { url: "redis".into(), reason: "WRONGTYPE".into() };
    fake.unclaimed.lock().expect("no panic").insert("bad".to_owned(), unreadable);
    fake
}

#[tokio::test]
async fn it_goes_by_way_of_the_busy_hatchery_with_the_same_stamp() {
    let (fake, log) = (damaged(), Log::default());
    let _kept = log.keep();
    fake.incoming.lock().expect("no panic").push(event("mail", "bad"));
    let stop = CancellationToken::new();
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon));
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) }).run(stop.clone());
    let summary = async {
        while !fake.diary.entries().contains(&"acknowledge".to_owned()) {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let (summary, ()) = tokio::join!(worker, summary);
    let summary = summary.expect("it was told to stop");
    let expected = ["1 not claimed", "ping", "release nothing", "publish t.scheduler mail.250ms", "acknowledge"];
    assert_eq!(fake.diary.entries()[..5], expected);
    assert_eq!(header(&fake.published(), "generation").as_deref(), Some("0"));
    assert_eq!(header(&fake.published(), "busy").as_deref(), Some("1"));
    assert_eq!((summary.busy, summary.given_back), (1, 0));
    let errors = log.lines("ERROR");
    assert!(errors.len() == 1 && errors[0].contains("id=\"bad\""), "{errors:?}");
}

#[tokio::test]
async fn it_is_told_less_and_less_often() {
    let (fake, log) = (damaged(), Log::default());
    let _kept = log.keep();
    for busy in 0..20 {
        let mut copy = incoming("mail.now", &[("busy", Value::I64(busy))]);
        copy.properties.message_id = Some("bad".to_owned());
        fake.incoming.lock().expect("no panic").push(copy);
    }
    let stop = CancellationToken::new();
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon));
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) }).run(stop.clone());
    let stopping = async {
        while fake.published.lock().expect("no panic").len() < 20 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    assert_eq!(tokio::join!(worker, stopping).0.expect("it was told to stop").busy, 20);
    // 0, 1, 2, 4, 8 and 16.
    assert_eq!(log.lines("ERROR").len(), 6, "{:?}", log.lines(""));
}

#[tokio::test(start_paused = true)]
async fn one_that_keeps_its_place_holds_up_its_own_type_alone() {
    let (shelf, fake) = (Shelf::default(), damaged());
    let diary = fake.diary.clone();
    let note = move |run: Run| {
        diary.note(format!("run {}", run.event.id));
        std::future::ready(Ok::<_, String>(Outcome::Done))
    };
    let worker = Worker::new(topology(), Arc::new(shelf.clone()), fake.clone(), Arc::new(Noon));
    let worker = worker.handle("mail", note.clone()).handle("strict", note);
    let stop = CancellationToken::new();
    let told = stop.clone();
    let worker = tokio::spawn(async move { worker.run(told).await.expect("it was told to stop") });
    // The last one comes first.
    shelf.put(event("strict", "behind"));
    shelf.put(event("strict", "bad"));
    for n in 0..20 {
        shelf.put(event("mail", &n.to_string()));
    }
    // Time passes only where nothing else is left to do.
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(fake.settled.lock().expect("no panic").len(), 20);
    let tries = fake.diary.entries().iter().filter(|entry| *entry == "1 not claimed").count();
    assert!((8..=60).contains(&tries), "{tries}");
    fake.unclaimed.lock().expect("no panic").clear();
    tokio::time::sleep(Duration::from_secs(30)).await;
    stop.cancel();
    assert_eq!(worker.await.expect("no panic").done, 22);
    let diary = fake.diary.entries();
    let place = |entry: &str| diary.iter().position(|noted| noted == entry);
    assert!(place("run bad").is_some() && place("run bad") < place("run behind"), "{diary:?}");
    assert_eq!(shelf.came_back(), 0);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_answered_it_is_an_outage() {
    let fake = Arc::new(Fake { away: true, ..Fake::default() });
    let unreadable = RegisterError::Unreadable { url: "redis".into(), reason: "WRONGTYPE".into() };
    fake.unclaimed.lock().expect("no panic").insert("bad".to_owned(), unreadable);
    let log = Log::default();
    let _kept = log.keep();
    fake.incoming.lock().expect("no panic").push(event("mail", "bad"));
    let stop = CancellationToken::new();
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon));
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) }).run(stop.clone());
    let stopping = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        stop.cancel();
    };
    assert_eq!(tokio::join!(worker, stopping).0.expect("it was told to stop").busy, 0);
    assert_eq!(log.lines("no event of a type that needs it is started").len(), 1, "{:?}", log.lines(""));
    assert!(fake.published.lock().expect("no panic").is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_stops_when_nothing_is_left_does_not_wait_for_it() {
    let fake = damaged();
    fake.incoming.lock().expect("no panic").push(event("mail", "bad"));
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).stop_when_empty(true);
    let began = tokio::time::Instant::now();
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) });
    assert_eq!(worker.run(CancellationToken::new()).await.expect("it stops by itself").busy, 1);
    // Its way through the hatchery alone takes 250 ms, and a second is added.
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_suspect_that_gets_no_answer_keeps_nothing_else_from_starting_and_runs_alone_once_it_has_one() {
    let (shelf, fake) = (Shelf::default(), Arc::new(Fake { suspects: vec!["suspect".into()], ..Fake::default() }));
    let unanswered = || fake.unclaimed.lock().expect("no panic");
    let (diary, end) = (fake.diary.clone(), Arc::new(tokio::sync::Notify::new()));
    let ended = Arc::clone(&end);
    let handler = move |run: Run| {
        let (id, ended, diary) = (run.event.id, Arc::clone(&ended), diary.clone());
        diary.note(format!("run {id}"));
        async move {
            if id.starts_with("long") {
                ended.notified().await;
                diary.note(format!("end {id}"));
            }
            Ok::<_, String>(Outcome::Done)
        }
    };
    let worker = Worker::new(topology(), Arc::new(shelf.clone()), fake.clone(), Arc::new(Noon));
    let worker = worker.handle("mail", handler.clone()).handle("plain", handler);
    let stop = CancellationToken::new();
    let told = stop.clone();
    let worker = tokio::spawn(async move { worker.run(told).await.expect("it was told to stop") });
    let a_while = || tokio::time::sleep(Duration::from_secs(15));
    // It ends an outage, and is kept through the next one.
    unanswered().insert("suspect".to_owned(), unreachable());
    shelf.put(event("plain", "long"));
    shelf.put(event("mail", "suspect"));
    a_while().await;
    unanswered().clear();
    a_while().await;
    let diary = fake.diary.entries();
    assert_eq!(diary[diary.len() - 3..], ["claim", "release", "claim"], "it is claimed anew: {diary:?}");
    // What runs holds it up until Redis is away again.
    unanswered().insert("suspect".to_owned(), unreachable());
    end.notify_one();
    a_while().await;
    shelf.put(event("plain", "long too"));
    a_while().await;
    assert!(fake.diary.entries().contains(&"run long too".to_owned()), "{:?}", fake.diary.entries());
    unanswered().clear();
    a_while().await;
    let diary = fake.diary.entries();
    assert_eq!(diary[diary.len() - 2..], ["claim alone", "release"], "{diary:?}");
    end.notify_one();
    a_while().await;
    let diary = fake.diary.entries();
    assert_eq!(diary[diary.len() - 4..], ["end long too", "claim alone", "run suspect", "settle finished"]);
    stop.cancel();
    assert_eq!(worker.await.expect("no panic").done, 3);
}
