//! Types and sources that somebody has paused, and switches that cannot be read.

use tokio::{task::JoinHandle, time::Instant};

use super::*;
use crate::{
    Run,
    domain::switches::{Name, Pause, Paused, PausedBy, Switches},
    work::{Readiness, WorkError},
};

pub(super) const MINUTE: Duration = Duration::from_mins(1);

pub(super) fn event_type(name: &str) -> Paused {
    Paused::Type(Name(name.parse().expect("a type")))
}

pub(super) fn paused(of: Paused, until: Option<Timestamp>) -> Pause {
    Pause { of, by: PausedBy::Person, reason: "R".to_owned(), since: Noon.now(), until }
}

/// Writes a snapshot with this number.
pub(super) fn write(world: &World, number: i64, pauses: impl IntoIterator<Item = Pause>) {
    write_text(world, &Switches { number, pauses: pauses.into_iter().collect() }.text());
}

fn write_text(world: &World, text: &str) {
    let body = text.to_owned().into();
    world.broker.put("t.control", Incoming { routing_key: String::new(), properties: Properties::default(), body });
}

/// A worker that notes the id of each event that it runs, each for this long.
pub(super) struct Working {
    stop: CancellationToken,
    task: JoinHandle<Result<Summary, WorkError>>,
    readiness: Readiness,
}

impl Working {
    pub(super) fn start(world: &World, types: &[&str], takes: Duration) -> Self {
        Self::run(world.worker(), world, types, takes)
    }

    pub(super) fn run(mut worker: Worker, world: &World, types: &[&str], takes: Duration) -> Self {
        for event_type in types {
            let diary = world.diary.clone();
            worker = worker.handle(event_type, move |run: Run| {
                diary.note(format!("run {}", run.event.id));
                async move {
                    tokio::time::sleep(takes).await;
                    Ok::<_, String>(Outcome::Done)
                }
            });
        }
        let (stop, readiness) = (CancellationToken::new(), worker.readiness());
        Self { task: tokio::spawn(worker.run(stop.clone())), stop, readiness }
    }

    pub(super) async fn stop(self) -> Summary {
        self.stop.cancel();
        self.task.await.expect("no panic").expect("it was told to stop")
    }
}

pub(super) fn named(routing_key: &str, id: &str) -> Incoming {
    let mut message = incoming(routing_key, &[]);
    message.properties.message_id = Some(id.to_owned());
    message
}

pub(super) fn runs(world: &World) -> Vec<String> {
    let entries = world.diary.entries();
    entries.iter().filter_map(|entry| entry.strip_prefix("run ").map(str::to_owned)).collect()
}

#[rstest]
#[case::claimed("mail")]
#[case::unregistered("plain")]
#[case::in_order("strict")]
#[case::unregistered_and_in_order("exact")]
#[tokio::test(start_paused = true)]
async fn a_paused_type_starts_nothing_and_another_one_goes_on(#[case] name: &str) {
    let world = World::default();
    write(&world, 1, [paused(event_type(name), None)]);
    world.put_all([named(&format!("{name}.now"), "held"), named("keen.now", "other")]);
    let worker = Working::start(&world, &[name, "keen"], Duration::ZERO);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), ["other"]);
    assert_eq!(world.broker.waiting().len(), 1, "the worker has not taken it");
    assert!(worker.readiness.is_ready());
    write(&world, 2, []);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), ["other", "held"]);
    assert_eq!(worker.stop().await.done, 2);
}

#[rstest]
#[case::by_name(event_type("mail"))]
#[case::with_all(Paused::All)]
#[tokio::test(start_paused = true)]
async fn what_runs_is_finished_and_what_waits_stays_in_memory(#[case] of: Paused) {
    let world = World::default();
    world.put_all((0..5).map(|n| named("mail.now", &n.to_string())));
    let worker = Working::run(world.worker().concurrency(1), &world, &["mail"], Duration::from_secs(10));
    tokio::time::sleep(Duration::from_secs(5)).await;
    write(&world, 1, [paused(of, None)]);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), ["0"]);
    assert!(world.diary.entries().contains(&"settle finished".to_owned()), "{:?}", world.diary.entries());
    assert_eq!(world.came_back(), 0, "RabbitMQ would count that");
    write(&world, 2, []);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), ["0", "1", "2", "3", "4"]);
    worker.stop().await;
}

/// RabbitMQ delivers before it answers, and would count what comes back.
#[rstest]
#[case::claimed("mail")]
#[case::unregistered("plain")]
#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_being_opened_at_a_pause_gives_nothing_back(#[case] name: &str) {
    let takes = Mutex::new(Duration::from_secs(4));
    let world = World::new(Script { consumes_take: takes, ..Script::default() });
    world.put(named(&format!("{name}.now"), "held"));
    let worker = Working::start(&world, &[name], Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.came_back(), 1, "a consumer is being opened");
    write(&world, 1, [paused(event_type(name), None)]);
    tokio::time::sleep(MINUTE).await;
    assert_eq!((runs(&world), world.came_back()), (Vec::new(), 0));
    write(&world, 2, []);
    tokio::time::sleep(MINUTE).await;
    assert_eq!((runs(&world), world.came_back()), (vec!["held".to_owned()], 0));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_consumer_that_was_being_opened_at_a_pause() {
    let world = World::new(Script { consumes_take: Mutex::new(MINUTE * 10), ..Script::default() });
    let worker = Working::start(&world, &["plain"], Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(2)).await;
    write(&world, 1, [paused(event_type("plain"), None)]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let told = Instant::now();
    worker.stop().await;
    assert!(told.elapsed() < Duration::from_secs(1), "{:?}", told.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_paused_type_asks_no_more_for_a_consumer_while_the_broker_is_away() {
    let world = World::new(Script { absent: true.into(), ..Script::default() });
    let asked = || world.asked.lock().expect("no panic").len();
    let worker = Working::start(&world, &["plain"], Duration::ZERO);
    tokio::time::sleep(MINUTE).await;
    write(&world, 1, [paused(event_type("plain"), None)]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = asked();
    assert!(before > 1, "{before}");
    world.absent.store(false, Ordering::SeqCst);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(asked(), before);
    write(&world, 2, []);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(asked(), before + 1);
    worker.stop().await;
}

/// A suspect is to run alone, and asks by itself.
#[rstest]
#[case::granted(&[])]
#[case::of_a_suspect(&["held"])]
#[tokio::test(start_paused = true)]
async fn an_event_whose_claim_is_answered_during_a_pause_does_not_start(#[case] suspects: &[&str]) {
    let takes = Mutex::new(Duration::from_secs(4));
    let suspects = suspects.iter().map(|id| (*id).to_owned()).collect();
    let world = World::new(Script { claims_take: takes, suspects, ..Script::default() });
    world.put(named("mail.now", "held"));
    let worker = Working::start(&world, &["mail"], Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.diary.entries(), ["claim"]);
    write(&world, 1, [paused(event_type("mail"), None)]);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), Vec::<String>::new());
    let claims = world.claimed.lock().expect("no panic").values().filter(|is_held| **is_held).count();
    let asked = world.diary.entries().iter().filter(|entry| entry.starts_with("claim")).count();
    assert_eq!((claims, asked), (usize::from(!world.suspects.is_empty()), 1), "{:?}", world.diary.entries());
    write(&world, 2, []);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(worker.stop().await.done, 1);
}

/// Noon, and the time since then.
pub(super) struct Moving(pub(super) Instant);

impl Clock for Moving {
    fn now(&self) -> Timestamp {
        Noon.now() + self.0.elapsed()
    }
}

/// The answer is lost during the pause, and the pause is longer than the lease.
#[tokio::test(start_paused = true)]
async fn an_event_whose_claim_has_no_answer_during_a_pause_has_not_crashed() {
    let (log, takes) = (Log::default(), Mutex::new(Duration::from_secs(4)));
    let _kept = log.keep();
    let world = World::new(Script { claims_take: takes, lost_claims: 1.into(), ..Script::default() });
    let world = world.register_at(Arc::new(Moving(Instant::now())));
    world.put(named("mail.now", "held"));
    let worker = Working::start(&world, &["mail"], Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(2)).await;
    write(&world, 1, [paused(event_type("mail"), None)]);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(runs(&world), Vec::<String>::new());
    write(&world, 2, []);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), ["held"]);
    assert_eq!(log.lines("event runs again"), Vec::<String>::new());
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_at_its_time() {
    let world = World::default();
    let end = Noon.now() + Duration::from_mins(10);
    write(&world, 1, [paused(event_type("mail"), Some(end)), paused(event_type("keen"), Some(end + MINUTE))]);
    world.put_all([named("mail.now", "mail"), named("keen.now", "keen")]);
    let worker = world.worker_at(Arc::new(Moving(Instant::now())));
    let worker = Working::run(worker, &world, &["mail", "keen"], Duration::ZERO);
    tokio::time::sleep(Duration::from_mins(10) - Duration::from_millis(1)).await;
    assert_eq!(runs(&world), Vec::<String>::new());
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(runs(&world), ["mail"]);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), ["mail", "keen"]);
    worker.stop().await;
}

/// No right to read, and a stream into which `topology apply` has not written yet.
#[rstest]
#[case::refused(true, "PRECONDITION_FAILED")]
#[case::empty(false, "t.control has no snapshot; run `topology apply`")]
#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_read_the_switches_starts_nothing_and_says_why(
    #[case] is_refused: bool,
    #[case] why: &str,
) {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    world.hides_streams.store(is_refused, Ordering::SeqCst);
    if !is_refused {
        world.broker.empty_stream("t.control");
    }
    world.broker.put("t.source.own", named("x", "message"));
    world.put_all(["mail.now", "plain.now", "strict.now"].map(|key| named(key, key)));
    let worker = world.worker().source("own");
    let worker = Working::run(worker, &world, &["mail", "plain", "strict"], Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!((runs(&world), world.broker.waiting().len()), (Vec::new(), 4));
    assert!(!worker.readiness.is_ready());
    let said = log.lines("the switches cannot be read, so nothing is started");
    assert!(said.len() == 1 && said[0].contains(why), "{said:?}");
    tokio::time::sleep(MINUTE).await;
    assert_eq!(log.lines("the switches cannot be read, so nothing is started").len(), 2, "each minute");
    world.hides_streams.store(false, Ordering::SeqCst);
    write(&world, 1, []);
    tokio::time::sleep(MINUTE).await;
    assert!(worker.readiness.is_ready());
    assert_eq!(log.lines("the switches can be read again").len(), 1);
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.messages), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_word_that_cannot_be_read_holds_all_and_a_snapshot_with_a_lower_number_is_ignored() {
    let world = World::default();
    let worker = Working::start(&world, &["mail"], Duration::ZERO);
    write(&world, 7, []);
    world.put(named("mail.now", "first"));
    tokio::time::sleep(MINUTE).await;
    write_text(&world, r#"{"number":8,"pauses":[],"a newer version":true,"#);
    tokio::time::sleep(MINUTE).await;
    world.put(named("mail.now", "second"));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), ["first"]);
    write(&world, 8, [paused(Paused::All, None)]);
    write(&world, 6, []);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), ["first"]);
    write(&world, 9, []);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), ["first", "second"]);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_word_counts_while_the_stream_cannot_be_read() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    write(&world, 1, [paused(event_type("mail"), None)]);
    let worker = Working::start(&world, &["mail", "keen"], Duration::ZERO);
    tokio::time::sleep(MINUTE).await;
    world.hides_streams.store(true, Ordering::SeqCst);
    // Wakes the reader, which ends.
    world.put(named("keen.now", "before"));
    world.publisher().publish(NewEvent::new("keen", "{}").id("wakes")).await.expect("confirmed");
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(
        log.lines("the switches cannot be read"),
        Vec::<String>::new(),
        "a broker that restarts is said by others"
    );
    world.put_all([named("mail.now", "held"), named("keen.now", "other")]);
    world.publisher().publish(NewEvent::new("keen", "{}").id("last")).await.expect("confirmed");
    tokio::time::sleep(MINUTE).await;
    let ran = runs(&world);
    assert!(ran.contains(&"other".to_owned()) && !ran.contains(&"held".to_owned()), "{ran:?}");
    assert_eq!(log.lines("the switches cannot be read").len(), 1);
    write(&world, 2, []);
    world.hides_streams.store(false, Ordering::SeqCst);
    tokio::time::sleep(MINUTE).await;
    assert!(runs(&world).contains(&"held".to_owned()));
    assert_eq!(log.lines("the switches can be read again").len(), 1);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_declared_anew_and_empty_cannot_be_read() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    write(&world, 1, [paused(event_type("mail"), None)]);
    let worker = Working::start(&world, &["mail", "keen"], Duration::ZERO);
    tokio::time::sleep(MINUTE).await;
    world.hides_streams.store(true, Ordering::SeqCst);
    // Wakes the reader, which ends.
    world.publisher().publish(NewEvent::new("keen", "{}").id("wakes")).await.expect("confirmed");
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.broker.empty_stream("t.control");
    world.hides_streams.store(false, Ordering::SeqCst);
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(log.lines("the switches cannot be read").len(), 1);
    assert_eq!(log.lines("the switches can be read again").len(), 0);
    worker.stop().await;
}

/// Half of `ack-timeout` is over during the pause.
#[rstest]
#[case::claimed("mail", 4, 0)]
#[case::unregistered("plain", 0, 4)]
#[tokio::test(start_paused = true)]
async fn what_is_paused_for_long_goes_back_and_without_the_register_as_a_copy(
    #[case] name: &str,
    #[case] came_back: usize,
    #[case] copies: usize,
) {
    let world = World::default();
    world.put_all((0..5).map(|n| named(&format!("{name}.now"), &n.to_string())));
    let worker = Working::run(world.worker().concurrency(1), &world, &[name], Duration::from_secs(10));
    tokio::time::sleep(Duration::from_secs(5)).await;
    write(&world, 1, [paused(event_type(name), None)]);
    tokio::time::sleep(Duration::from_hours(12)).await;
    assert_eq!(runs(&world), ["0"]);
    let sent = world.diary.entries().iter().filter(|entry| entry.starts_with("publish t.scheduler")).count();
    assert_eq!((world.came_back(), sent), (came_back, copies), "{:?}", world.diary.entries());
    assert_eq!(worker.stop().await.put_aside, 0);
}

#[tokio::test(start_paused = true)]
async fn a_paused_type_that_keeps_its_order_goes_on_in_order() {
    let world = World::default();
    let ids: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    world.put_all(ids.iter().map(|id| named("strict.now", id)));
    let worker = Working::start(&world, &["strict"], Duration::from_secs(10));
    for number in 1..4 {
        tokio::time::sleep(Duration::from_secs(25)).await;
        write(&world, 2 * number, [paused(event_type("strict"), None)]);
        tokio::time::sleep(MINUTE).await;
        let (before, waiting) = (runs(&world).len(), world.broker.waiting().len());
        assert_eq!(before + waiting, 10, "what has not run is in the queue");
        tokio::time::sleep(MINUTE).await;
        assert_eq!(runs(&world).len(), before);
        write(&world, 2 * number + 1, []);
    }
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert_eq!(runs(&world), ids);
    assert_eq!(worker.stop().await.done, 10);
}

#[rstest]
#[case::in_order("own", "t.source.own")]
#[case::not_in_order("theirs", "hr-changes")]
#[tokio::test(start_paused = true)]
async fn a_paused_source_takes_no_message(#[case] name: &str, #[case] queue: &str) {
    let world = World::default();
    let worker = Working::run(world.worker().source(name), &world, &[], Duration::ZERO);
    world.broker.put(queue, named("x", "first"));
    world.publisher().publish(NewEvent::new("keen", "{}")).await.expect("it wakes the consumer");
    tokio::time::sleep(MINUTE).await;
    let source = Paused::Source(Name(name.parse().expect("a name")));
    write(&world, 1, [paused(source, None)]);
    tokio::time::sleep(MINUTE).await;
    world.broker.put(queue, named("x", "second"));
    tokio::time::sleep(MINUTE).await;
    let waits = || world.broker.waiting().into_iter().filter(|waiting| waiting.queue == queue).count();
    assert_eq!(waits(), 1);
    assert!(worker.readiness.is_ready());
    write(&world, 2, []);
    tokio::time::sleep(MINUTE).await;
    assert_eq!((waits(), worker.stop().await.messages), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_when_its_queues_are_empty_waits_for_the_end_of_a_pause() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    write(&world, 1, [paused(event_type("mail"), None)]);
    let worker = Working::run(world.worker().stop_when_empty(true), &world, &["mail", "keen"], Duration::ZERO);
    tokio::time::sleep(MINUTE).await;
    assert!(!worker.task.is_finished());
    assert_eq!(log.lines("after the pause of type mail").len(), 1, "{:?}", log.lines(""));
    world.put(named("mail.now", "held"));
    write(&world, 2, []);
    let summary = worker.task.await.expect("no panic").expect("it stops when empty");
    assert_eq!(summary.done, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_its_end_are_logged_once() {
    let (log, world) = (Log::default(), World::default());
    let _kept = log.keep();
    let worker = Working::start(&world, &["mail", "keen"], Duration::ZERO);
    write(&world, 1, [paused(event_type("mail"), None)]);
    tokio::time::sleep(MINUTE).await;
    write(&world, 2, [paused(event_type("mail"), None), paused(event_type("ping"), None)]);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(log.lines("paused").len(), 1, "{:?}", log.lines("paused"));
    assert_eq!(log.lines("type mail paused: R").len(), 1);
    write(&world, 3, []);
    tokio::time::sleep(MINUTE).await;
    assert_eq!((log.lines("resumed").len(), log.lines("type mail resumed").len()), (1, 1));
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_type_holds_up_no_quarantine_of_another_and_runs_nothing_of_its_own() {
    let world = World::new(Script { is_broker_silent: true, ..Script::default() });
    world.put_all((0..5).map(|n| named("plain.now", &n.to_string())));
    let worker = Working::run(world.worker().concurrency(1), &world, &["plain", "quick"], Duration::from_secs(10));
    tokio::time::sleep(Duration::from_secs(5)).await;
    write(&world, 1, [paused(event_type("plain"), None)]);
    world.put_all([named("plain.aside", "suspect"), named("quick.aside", "other")]);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), ["0", "other"]);
    assert_eq!(world.came_back(), 0, "RabbitMQ would count that");
    write(&world, 2, []);
    tokio::time::sleep(MINUTE).await;
    assert!(runs(&world).contains(&"suspect".to_owned()), "{:?}", runs(&world));
    worker.stop().await;
}
