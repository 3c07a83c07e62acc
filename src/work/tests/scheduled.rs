//! Events of schedules: what is published and written, and in which order.

use super::{
    paused::{MINUTE, Working, named, runs},
    *,
};
use crate::{
    domain::{
        schedule::{
            definition::Definition,
            rule::Arm,
            run::RunOutcome,
            state::{Armed, ScheduleState},
            template::Template,
        },
        switches::{Name, Pause, Paused, Switches},
    },
    ports::{NamedStates as _, StateKind},
};

const FILE: &str = "
version: 1
name: t
types:
  mail: { retry: { delays: [1s], max-attempts: 2 } }
  plain: { register: off }
schedules:
  hourly: { type: mail, cron: \"0 * * * *\", payload: { full: true } }
  every: { type: mail, cron: \"0 * * * *\", catch-up: all, overlap: skip }
  never: { type: mail, cron: \"0 * * * *\", catch-up: none }
  poll: { type: mail, every: 5m, on-failure: pause }
";

/// Noon, in ms since 1970.
pub(super) const NOON: i64 = 1_780_315_200_000;
pub(super) const HOUR: i64 = 3_600_000;

pub(super) fn scheduled() -> World {
    let topology = Arc::new(crate::file::read(FILE, "topology.yaml").expect("a valid file"));
    World::of(topology, Script::default())
}

pub(super) fn definition(world: &World, name: &str) -> Definition {
    world.topology().schedules[name].clone()
}

/// Puts the event of a schedule into its processing queue, and writes the state that `topology apply` has left.
pub(super) async fn arm(world: &World, name: &str, position: i64) -> ScheduleState {
    let definition = definition(world, name);
    put(world, &definition, position);
    let arm = Arm { position, due: position };
    let digest = definition.digest();
    let state =
        ScheduleState { digest, armed: Some(Armed { arm, published: Some(position) }), ..ScheduleState::default() };
    write(world, name, &state).await;
    state
}

fn put(world: &World, definition: &Definition, position: i64) {
    let event = Template::of(definition).event(Arm { position, due: position }, Noon.now());
    let properties = crate::domain::wire::encode(&event);
    world.put(Incoming { routing_key: "mail.now".to_owned(), properties, body: event.payload });
}

async fn write(world: &World, name: &str, state: &ScheduleState) {
    let before = world.register.state(StateKind::Schedule, name).await.expect("an answer");
    let text = state.text();
    assert!(
        world
            .register
            .replace_state(StateKind::Schedule, name, before.as_deref(), Some(&text))
            .await
            .expect("an answer")
    );
    world.diary.clear();
}

pub(super) async fn state(world: &World, name: &str) -> ScheduleState {
    let text = world.register.state(StateKind::Schedule, name).await.expect("an answer").expect("a state");
    ScheduleState::parse(&text).expect("a state")
}

#[tokio::test(start_paused = true)]
async fn the_next_event_is_confirmed_before_the_state_says_so_and_before_the_handler_starts() {
    let world = scheduled();
    arm(&world, "hourly", NOON).await;
    let diary = work(&world, Outcome::Done).await;
    let published =
        diary.iter().position(|entry| entry.starts_with("publish t.scheduler mail.250ms-27.")).expect("a publish");
    // The start is written before the next event, which may be due at once, is published.
    assert_eq!(diary[..published], ["claim", "schedule hourly", "replace schedule hourly"]);
    let after: Vec<&str> = diary[published + 1..].iter().map(String::as_str).collect();
    let expected = [
        "record 0",
        "replace schedule hourly",
        "handler",
        // Nobody has changed the state meanwhile, so it is not read again.
        "replace schedule hourly",
        "settle finished",
        "acknowledge",
    ];
    assert_eq!(after, expected);
    let next = world.published();
    assert_eq!(next.properties.message_id.as_deref(), Some("hourly@2026-06-01T13:00:00Z"));
    assert_eq!(header(&next, "nbf").as_deref(), Some("2026-06-01T13:00:00.000Z"));
    assert_eq!(next.body, r#"{"full":true}"#);
    let state = state(&world, "hourly").await;
    assert_eq!(state.armed.map(|armed| (armed.arm.position, armed.published)), Some((NOON + HOUR, Some(NOON))));
    let run = state.run.expect("a run");
    assert_eq!((run.position, run.outcome), (NOON, Some(RunOutcome::Done)));
}

#[tokio::test]
async fn a_state_that_somebody_has_changed_since_it_was_read_is_read_again() {
    let world = scheduled();
    let read = arm(&world, "hourly", NOON).await;
    let theirs = arm(&world, "hourly", NOON + HOUR).await;
    for last in [Some(&read), Some(&theirs), None] {
        let same = |state: Option<ScheduleState>| state;
        let left = crate::schedules::change(&*world.register, "hourly", last, same).await.expect("an answer");
        assert_eq!(left.map(|state| state.text()), Some(theirs.text()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_sequential_schedule_arms_its_next_event_after_the_run() {
    let world = scheduled();
    arm(&world, "poll", NOON).await;
    let diary = work(&world, Outcome::Done).await;
    let place = |what: &str| diary.iter().position(|entry| entry.starts_with(what)).expect("an entry");
    assert!(place("handler") < place("publish"), "{diary:?}");
    assert!(place("publish") < place("settle"), "{diary:?}");
    let id = format!("poll#{}", NOON + 1);
    assert_eq!(world.published().properties.message_id, Some(id));
    let state = state(&world, "poll").await;
    assert_eq!(state.armed.map(|armed| armed.arm), Some(Arm { position: NOON + 1, due: NOON + 300_000 }));
}

#[rstest]
#[case::fixed("hourly", NOON + HOUR)]
#[case::sequential("poll", NOON + 1)]
#[tokio::test(start_paused = true)]
async fn a_schedule_goes_on_after_a_cancelled_run(#[case] name: &str, #[case] next: i64) {
    let world = scheduled();
    arm(&world, name, NOON).await;
    let register = world.register.clone();
    let handler = move |run: crate::handler::Run| {
        let register = register.clone();
        async move {
            let (subject, slot) = (run.event.subject(), Some(run.event.stamp.slot.clone()));
            let cancel = Cancel { subject, slot, due: None, horizon: Duration::ZERO };
            register.cancel(&[cancel]).await.expect("an answer");
            run.lost.cancelled().await;
            // It would pause the schedule.
            Outcome::dead_letter("cancelled")
        }
    };
    let worker = world.worker().stop_when_empty(true).handle("mail", handler);
    let summary = worker.run(CancellationToken::new()).await.expect("it stops when empty");
    assert_eq!((summary.cancelled, summary.dead_lettered), (1, 0), "{:?}", world.diary.entries());
    let state = state(&world, name).await;
    assert_eq!(state.armed.map(|armed| armed.arm.position), Some(next));
    assert_eq!((state.run.and_then(|run| run.outcome), state.paused), (Some(RunOutcome::Cancelled), None));
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_is_not_the_end_and_a_dead_letter_is() {
    let world = scheduled();
    arm(&world, "poll", NOON).await;
    let diary = work(&world, failure()).await;
    assert!(diary.contains(&"publish t.retry mail.1s".to_owned()), "{diary:?}");
    assert_eq!(state(&world, "poll").await.run.expect("a run").ended, None);

    let retried = world.published();
    world.diary.clear();
    world.put(Incoming { routing_key: "mail.1s".into(), properties: retried.properties, body: retried.body });
    let diary = work(&world, failure()).await;
    assert!(diary.contains(&"publish t.dead-letter mail.dead-letter".to_owned()), "{diary:?}");
    // The schedule says `on-failure: pause`, so nothing is armed.
    assert!(!diary.iter().any(|entry| entry.starts_with("publish t.scheduler")), "{diary:?}");
    let state = state(&world, "poll").await;
    assert_eq!(state.paused.expect("paused").reason, "dead-letter: no luck");
}

#[tokio::test(start_paused = true)]
async fn an_event_of_another_definition_does_not_run_and_arms_nothing() {
    let world = scheduled();
    let before = arm(&world, "hourly", NOON).await;
    write(&world, "hourly", &ScheduleState { digest: "another".into(), ..before }).await;
    let diary = work(&world, Outcome::Done).await;
    // Another copy of the same event may be armed, so this one is released and not settled.
    assert_eq!(diary, ["claim", "schedule hourly", "release", "acknowledge"]);
}

#[rstest]
#[case::removed(|state: ScheduleState| state.removed())]
#[case::paused(|state: ScheduleState| state.switched_on(&Pause::of_person(Paused::All, "closed", Noon.now(), None)))]
#[tokio::test(start_paused = true)]
async fn an_event_of_a_schedule_that_was_stopped_does_not_run(#[case] stop: fn(ScheduleState) -> ScheduleState) {
    let world = scheduled();
    let before = arm(&world, "hourly", NOON).await;
    write(&world, "hourly", &stop(before)).await;
    let diary = work(&world, Outcome::Done).await;
    assert!(!diary.iter().any(|entry| entry == "handler" || entry.starts_with("publish")), "{diary:?}");
    assert_eq!(diary.last().map(String::as_str), Some("acknowledge"));
}

/// Redis does not know of the pause.
#[tokio::test(start_paused = true)]
async fn a_schedule_follows_the_switches_on_the_broker() {
    let world = scheduled();
    let switch = |number, pauses| {
        let body = Switches { number, pauses }.text().into();
        world.broker.put("t.control", Incoming { routing_key: String::new(), properties: Properties::default(), body });
    };
    let hourly = Paused::Schedule(Name("hourly".parse().expect("a word")));
    switch(1, vec![Pause::of_person(hourly, "closed", Noon.now(), None)]);
    put(&world, &definition(&world, "hourly"), NOON);
    let diary = work(&world, Outcome::Done).await;
    assert!(!diary.iter().any(|entry| entry == "handler" || entry.starts_with("publish")), "{diary:?}");
    let paused = state(&world, "hourly").await.paused.expect("paused");
    assert_eq!((paused.reason.as_str(), paused.is_switched), ("closed", true));

    switch(2, Vec::new());
    let (stop, worker) = (CancellationToken::new(), world.worker());
    let worker = worker.handle("mail", |_| async { Ok::<_, String>(Outcome::Done) });
    let working = tokio::spawn(worker.run(stop.clone()));
    // Two turns of the worker that heals.
    tokio::time::sleep(Duration::from_mins(1)).await;
    stop.cancel();
    working.await.expect("no panic").expect("it stops");
    let resumed = state(&world, "hourly").await;
    assert_eq!(resumed.paused, None);
    assert!(resumed.armed.is_some_and(|armed| armed.published.is_some()), "{resumed:?}");
}

/// The event of ten o'clock waits at noon.
#[rstest]
#[case::all("every", &["10", "11", "12"])]
#[case::the_last_one("hourly", &["12"])]
#[case::none("never", &[])]
#[tokio::test(start_paused = true)]
async fn instants_that_passed_are_caught_up_with_as_the_schedule_says(#[case] name: &str, #[case] hours: &[&str]) {
    let world = scheduled();
    arm(&world, name, NOON - 2 * HOUR).await;
    let ran = Arc::new(Mutex::new(Vec::new()));
    let ids = Arc::clone(&ran);
    let handler = move |run: crate::Run| {
        ids.lock().expect("no panic").push(run.event.id.clone());
        async { Ok::<_, String>(Outcome::Done) }
    };
    let worker = world.worker().stop_when_empty(true).handle("mail", handler);
    worker.run(CancellationToken::new()).await.expect("it stops when empty");
    let expected: Vec<String> = hours.iter().map(|hour| format!("{name}@2026-06-01T{hour}:00:00Z")).collect();
    assert_eq!(*ran.lock().expect("no panic"), expected);
    assert_eq!(state(&world, name).await.armed.map(|armed| armed.arm.position), Some(NOON + HOUR));
}

#[rstest]
#[case::queue("hourly", "publish t.scheduler mail.250ms", false)]
#[case::skip("every", "publish t.scheduler mail.250ms-27.", true)]
#[tokio::test(start_paused = true)]
async fn an_event_meets_a_run_that_has_not_ended(#[case] name: &str, #[case] published: &str, #[case] settles: bool) {
    let world = scheduled();
    let armed = arm(&world, name, NOON).await;
    let before = definition(&world, name).link(NOON - HOUR);
    let later = Noon.now() + Duration::from_mins(1);
    write(&world, name, &armed.started(&before, Noon.now(), later)).await;
    let stop = CancellationToken::new();
    let told = stop.clone();
    let published_once = world.clone();
    tokio::spawn(async move {
        while published_once.diary.entries().iter().all(|entry| !entry.starts_with("acknowledge")) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        told.cancel();
    });
    let worker = world.worker().handle("mail", |_| async { Ok::<_, String>(Outcome::Done) });
    worker.run(stop).await.expect("it stops");
    let diary = world.diary.entries();
    assert!(diary.iter().any(|entry| entry.starts_with(published)), "{diary:?}");
    assert_eq!(diary.contains(&"settle finished".to_owned()), settles, "{diary:?}");
    assert_eq!(diary.contains(&"release".to_owned()), !settles, "{diary:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_schedule_has_no_state_restores_it_from_the_file() {
    let world = scheduled();
    put(&world, &definition(&world, "hourly"), NOON);
    let diary = work(&world, Outcome::Done).await;
    assert!(diary.contains(&"handler".to_owned()), "{diary:?}");
    let state = state(&world, "hourly").await;
    assert_eq!(state.armed.map(|armed| armed.arm.position), Some(NOON + HOUR));
    assert_eq!(state.digest, definition(&world, "hourly").digest());
}

#[tokio::test(start_paused = true)]
async fn a_repeated_event_arms_nothing_again() {
    let world = scheduled();
    let state_before = arm(&world, "hourly", NOON).await;
    let definition = definition(&world, "hourly");
    let next = Arm { position: NOON + HOUR, due: NOON + HOUR };
    write(&world, "hourly", &state_before.armed(&definition.digest(), next, Noon.now())).await;
    let diary = work(&world, Outcome::Done).await;
    assert!(diary.contains(&"handler".to_owned()), "{diary:?}");
    assert!(!diary.iter().any(|entry| entry.starts_with("publish")), "{diary:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_with_a_broken_header_is_dead_lettered() {
    let world = scheduled();
    world.put(incoming("mail.now", &[("schedule", Value::text("{ \"name\": 5 }"))]));
    let diary = work(&world, Outcome::Done).await;
    assert!(diary.contains(&"publish t.dead-letter mail.dead-letter".to_owned()), "{diary:?}");
    let reason = header(&world.published(), "reason").expect("a reason");
    assert!(reason.starts_with("poison: the header `schedule` should be"), "{reason}");
}

/// A worker empties a quarantine while nothing else holds a permit to run.
#[rstest]
#[case::before_it_runs(Duration::ZERO)]
#[case::after_it_has_run(Duration::from_secs(20))]
#[tokio::test(start_paused = true)]
async fn an_event_of_a_schedule_that_waits_for_redis_keeps_no_other_type_from_running(#[case] after: Duration) {
    let world = scheduled();
    arm(&world, "poll", NOON).await;
    let refuse = |error| *world.refused_states.lock().expect("no panic") = error;
    refuse(after.is_zero().then(unreachable));
    world.put(named("plain.aside", "suspect"));
    let worker = Working::start(&world, &["mail", "plain"], Duration::from_secs(30));
    tokio::time::sleep(after).await;
    refuse(Some(unreachable()));
    tokio::time::sleep(MINUTE * 2).await;
    assert!(runs(&world).contains(&"suspect".to_owned()), "{:?}", world.diary.entries());
    refuse(None);
    tokio::time::sleep(MINUTE * 2).await;
    assert_eq!(runs(&world).len(), 2);
    assert_eq!(state(&world, "poll").await.run.expect("a run").outcome, Some(RunOutcome::Done));
    assert_eq!(worker.stop().await.done, 2);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_confirms_late_takes_the_next_event_of_a_schedule_once() {
    let world = scheduled();
    arm(&world, "hourly", NOON).await;
    *world.confirms_after.lock().expect("no panic") = Duration::from_secs(12);
    let worker = Working::start(&world, &["mail"], Duration::ZERO);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(runs(&world), ["hourly@2026-06-01T12:00:00Z"]);
    let published = world.published.lock().expect("no panic").clone();
    let next = |message: &&Message| message.properties.message_id.as_deref() == Some("hourly@2026-06-01T13:00:00Z");
    assert_eq!(published.iter().filter(next).count(), 1, "{:?}", world.diary.entries());
    assert_eq!(worker.stop().await.done, 1);
}
