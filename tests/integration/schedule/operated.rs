//! Schedules on a real broker and a real Redis: armed by `apply`, run by a worker, paused and resumed by a person, and continued by
//! another worker when one is killed at any step.

use std::time::Duration;

use hatchery::{
    Outcome,
    internals::{
        ports::{NamedStates as _, StateKind},
        redis::RedisRegister,
    },
};
use jiff::Timestamp;
use rstest::rstest;
use serde_json::Value;

use crate::support::{
    broker::eventually,
    declared::Declared,
    process::{Place, Process},
    workers::Working,
};

const FILE: &str = "\
types: { mail: {}, slow: {} }
schedules:
  tick: { type: mail, cron: \"* * * * * *\", catch-up: all, payload: { full: true } }
  poll: { type: slow, every: 1s }
";

/// A topology with schedules, in the folder of a command line.
pub(super) async fn apply(place: &Place<'_>) -> Value {
    let mut command = place.command(&["-o", "json", "apply", "--auto-approve"]);
    command.env("RABBITMQ_MANAGEMENT_URL", place.declared.host.management());
    let ended = place.run(&mut command).await;
    assert!(ended.status.success(), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

async fn schedule(place: &Place<'_>, arguments: &[&str]) -> Value {
    let mut command = place.command(&[&["-o", "json", "schedule"], arguments].concat());
    let ended = place.run(&mut command).await;
    assert!(ended.status.success(), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

fn register(declared: &Declared) -> RedisRegister {
    let topology = &declared.topology;
    RedisRegister::new(&declared.redis_url, &declared.host.name, &topology.name, &topology.redis).unwrap()
}

#[tokio::test]
#[ignore = "waits for several instants; scripts/test --all runs it"]
async fn each_event_of_a_schedule_arms_the_next_one() {
    let declared = Declared::new(FILE).await;
    let place = Place::new(&declared);
    let applied = apply(&place).await;
    let changes: Vec<&Value> = applied["schedules"].as_array().unwrap().iter().map(|one| &one["change"]).collect();
    assert_eq!(changes, ["armed", "armed"]);
    // An apply that is repeated arms nothing again.
    let again = apply(&place).await;
    assert_eq!(again["schedules"][0]["change"], "unchanged");

    let hatchery = declared.connect().await;
    let ticks = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let polls = Working::start(&hatchery, "slow", |_| Outcome::Done);
    ticks.runs.reach(3).await;
    polls.runs.reach(2).await;
    assert!(ticks.runs.payloads().iter().all(|payload| payload == r#"{"full":true}"#));

    let paused = schedule(&place, &["pause", "tick", "--reason", "closed"]).await;
    assert_eq!(paused["changed"], true);
    let shown = schedule(&place, &["show", "tick"]).await;
    assert_eq!((&shown["state"], &shown["paused_because"]), (&"paused".into(), &"closed".into()));
    // The event that was armed is dropped when it is due, and none follows. One runs all the same if a person says so.
    let (before, polled) = (ticks.runs.count(), polls.runs.count());
    schedule(&place, &["run-now", "tick"]).await;
    // Several seconds, in which an event each second would run.
    polls.runs.reach(polled + 4).await;
    let ids: Vec<String> = ticks.runs.seen()[before..].iter().map(|run| run.event.id.clone()).collect();
    let of_the_chain = ids.iter().filter(|id| id.starts_with("tick@")).count();
    assert_eq!(ids.len() - of_the_chain, 1, "{ids:?}");
    assert!(of_the_chain <= 1, "one may have started as the schedule was paused: {ids:?}");
    let before = ticks.runs.count();
    let resumed = schedule(&place, &["resume", "tick"]).await;
    assert!(resumed["next"].is_string(), "{resumed}");
    ticks.runs.reach(before + 2).await;

    // A flush forgets the states. The next event of each chain restores its own.
    let register = register(&declared);
    for name in ["tick", "poll"] {
        eventually("the state is forgotten", async || {
            let text = register.state(StateKind::Schedule, name).await.unwrap();
            register.replace_state(StateKind::Schedule, name, text.as_deref(), None).await.unwrap().then_some(())
        })
        .await;
    }
    let (ticked, polled) = (ticks.runs.count(), polls.runs.count());
    ticks.runs.reach(ticked + 2).await;
    polls.runs.reach(polled + 2).await;
    let listed = schedule(&place, &["list"]).await;
    let states: Vec<&Value> = listed["schedules"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["armed", "armed"]);
    ticks.stop().await;
    polls.stop().await;
}

/// A failed event pauses its schedule in Redis alone.
#[tokio::test]
async fn an_apply_takes_over_a_pause_that_an_emptied_redis_would_forget() {
    let file = "types: { mail: {} }\nschedules: { tick: { type: mail, every: 1s, on-failure: pause } }\n";
    let declared = Declared::new(file).await;
    let place = Place::new(&declared);
    apply(&place).await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::dead_letter("550"));
    let state = async || schedule(&place, &["show", "tick"]).await["state"].clone();
    eventually("the schedule is paused", async || (state().await == "paused").then_some(())).await;
    apply(&place).await;
    let register = register(&declared);
    let text = register.state(StateKind::Schedule, "tick").await.unwrap();
    register.replace_state(StateKind::Schedule, "tick", text.as_deref(), None).await.unwrap();
    eventually("a worker has read it from the broker", async || (state().await == "paused").then_some(())).await;
    let before = worker.runs.count();
    let mut resume = place.command(&["-o", "json", "resume", "--schedule", "tick"]);
    let resumed = place.run(&mut resume).await.expect(0);
    let resumed: Value = serde_json::from_str(&resumed.stdout).unwrap();
    assert_eq!(resumed["ended"][0]["kind"], "schedule");
    worker.runs.reach(before + 1).await;
    worker.stop().await;
}

#[tokio::test]
#[ignore = "runs many commands of schedules; scripts/test --all runs it"]
async fn a_backfill_runs_the_instants_that_have_passed() {
    let file = "types: { mail: {} }\nschedules: { nightly: { type: mail, cron: \"0 3 * * *\" } }\n";
    let declared = Declared::new(file).await;
    let place = Place::new(&declared);
    apply(&place).await;
    let range = ["backfill", "nightly", "--from", "2026-06-01T00:00:00Z", "--to", "2026-06-03T00:00:00Z"];
    let dry = schedule(&place, &range).await;
    let instants = ["2026-06-01T03:00:00Z", "2026-06-02T03:00:00Z"];
    assert_eq!((&dry["dry_run"], &dry["instants"]), (&true.into(), &instants.as_slice().into()));
    let told = instants.map(|instant| format!("nightly!{instant}"));
    assert_eq!(dry["ids"], serde_json::json!(told));
    let done = schedule(&place, &[&range[..], &["--yes"]].concat()).await;
    assert_eq!((&done["dry_run"], &done["ids"]), (&false.into(), &dry["ids"]));
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |event| Outcome::Discard { reason: event.id.clone() });
    worker.runs.reach(2).await;
    let mut ids: Vec<String> = worker.runs.seen().iter().map(|run| run.event.id.clone()).collect();
    ids.sort();
    assert_eq!(ids, instants.map(|instant| format!("nightly!{instant}")));
    tokio::time::timeout(Duration::from_secs(30), worker.stop()).await.expect("it stops");
    // The chain is as it was.
    let shown = schedule(&place, &["show", "nightly"]).await;
    assert_eq!((&shown["state"], &shown["last"]), (&"armed".into(), &Value::Null));
}

/// Returns the plan of the file, for which `--detailed-exitcode` says this.
async fn plan(place: &Place<'_>, code: i32) -> Value {
    let mut command = place.command(&["-o", "json", "plan", "--detailed-exitcode"]);
    command.env("RABBITMQ_MANAGEMENT_URL", place.declared.host.management());
    let ended = place.run(&mut command).await;
    assert_eq!(ended.status.code(), Some(code), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

fn changes(answer: &Value) -> Vec<(&str, &str)> {
    let schedules = answer["schedules"].as_array().unwrap().iter();
    schedules.map(|one| (one["name"].as_str().unwrap(), one["change"].as_str().unwrap())).collect()
}

#[tokio::test]
#[ignore = "plans and applies many changes; scripts/test --all runs it"]
async fn a_plan_says_what_an_apply_then_does_with_schedules() {
    let file = "\
types: { mail: {} }
schedules:
  nightly: { type: mail, cron: \"0 3 * * *\" }
  weekly: { type: mail, cron: \"0 3 * * 1\" }
";
    let declared = Declared::new(file).await;
    let place = Place::new(&declared);
    let planned = plan(&place, 3).await;
    assert_eq!(changes(&planned), [("nightly", "armed"), ("weekly", "armed")]);
    assert_eq!((&planned["in_sync"], &planned["counts"]["add"]), (&false.into(), &0.into()));
    // The plan has written nothing.
    assert_eq!(schedule(&place, &["show", "nightly"]).await["state"], "not applied");
    assert_eq!(apply(&place).await["schedules"], planned["schedules"]);

    let planned = plan(&place, 0).await;
    assert_eq!(changes(&planned), [("nightly", "unchanged"), ("weekly", "unchanged")]);
    assert_eq!(planned["in_sync"], true);

    // Of each schedule that is changed, new or gone.
    schedule(&place, &["pause", "weekly"]).await;
    let text = declared.text.replace("nightly:", "daily:").replace("0 3 * * 1", "0 4 * * 1");
    place.write("topology.yaml", &text);
    let planned = plan(&place, 3).await;
    assert_eq!(changes(&planned), [("daily", "armed"), ("weekly", "paused"), ("nightly", "removed")]);
    assert_eq!(apply(&place).await["schedules"], planned["schedules"]);
    plan(&place, 0).await;

    // Without Redis the plan is about the broker alone, and the exit code does not say that all is in sync.
    let mut command = place.command(&["-o", "json", "plan", "--detailed-exitcode"]);
    command.env("RABBITMQ_MANAGEMENT_URL", declared.host.management()).env("REDIS_URL", "redis://127.0.0.1:1");
    let ended = place.run(&mut command).await;
    assert_eq!(ended.status.code(), Some(6), "{ended:?}");
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap()["schedules"], Value::Null);
    assert!(ended.stderr.contains("cannot plan the schedules"), "{ended:?}");
}

#[tokio::test]
async fn an_event_of_a_schedule_names_it() {
    let declared =
        Declared::new("types: { mail: {} }\nschedules: { nightly: { type: mail, cron: \"0 3 * * *\" } }\n").await;
    let place = Place::new(&declared);
    let next = apply(&place).await["schedules"][0]["next"].as_str().unwrap().to_owned();
    let mut command = place.command(&["-o", "json", "events", "show", &format!("nightly@{next}")]);
    let ended = place.run(&mut command).await;
    let shown: Value = serde_json::from_str(&ended.stdout).unwrap();
    let of = &shown["events"][0]["schedule"];
    assert_eq!((&of["name"], of["slot"].as_str()), (&"nightly".into(), Some(&*next)), "{ended:?}");
}

const CHAINS: &str = "\
types: { mail: { lease: 300ms, handler-timeout: 5s } }
schedules:
  fixed: { type: mail, cron: \"* * * * * *\", catch-up: all }
  sequential: { type: mail, every: 1s }
";
const KILLS: usize = 3;

#[rstest]
#[case::between_the_start_and_the_next_event("work.schedule-started")]
#[case::between_the_next_event_and_the_state("work.schedule-armed")]
#[case::between_the_state_and_the_settlement("work.schedule-ended")]
#[case::after_the_settlement("work.settled")]
#[tokio::test]
#[ignore = "kills a worker at each of four points; scripts/test --all runs it"]
async fn a_killed_worker_leaves_one_chain_without_a_gap(#[case] point: &str) {
    let declared = Declared::new(CHAINS).await;
    let place = Place::new(&declared);
    apply(&place).await;
    let script = place.write("handler.sh", "cat > /dev/null; echo $EVENT_ID >> runs");
    for _ in 0..KILLS {
        let mut doomed = place.worker("mail", &script);
        doomed.env("HATCHERY_KILL_AT", format!("{point}:2"));
        assert!(Process::spawn(doomed).ended().await.killed());
    }
    let before = place.lines("runs");
    let worker = Process::spawn(place.worker("mail", &script));
    eventually("several more events of each schedule have run", async || {
        let runs = place.lines("runs");
        let of = |head: &str| runs[before.len()..].iter().filter(|id| id.starts_with(head)).count();
        (of("fixed@").min(of("sequential#")) >= 3).then_some(())
    })
    .await;
    worker.stop().await;

    let positions = |head: &str, read: fn(&str) -> i64| -> Vec<i64> {
        let runs = place.lines("runs");
        let mut positions: Vec<i64> = runs.iter().filter_map(|id| id.strip_prefix(head)).map(read).collect();
        let of_all = positions.len();
        positions.sort_unstable();
        positions.dedup();
        // An event that had ended and was not settled runs again, and so does the next one of its chain if it was as far.
        assert!(of_all - positions.len() <= 2 * KILLS, "{runs:?}");
        positions
    };
    let instants = positions("fixed@", |text| text.parse::<Timestamp>().unwrap().as_second());
    let numbers = positions("sequential#", |text| text.parse().unwrap());
    for chain in [instants, numbers] {
        assert!(chain.len() > 2, "{chain:?}");
        assert!(chain.windows(2).all(|pair| pair[1] == pair[0] + 1), "{chain:?}");
    }
}
