//! Schedules on a real broker and a real Redis: armed by `apply`, run by a worker, paused and resumed by a person.

use std::time::Duration;

use hatchery::{
    Outcome,
    internals::{ports::ScheduleStates as _, redis::RedisRegister},
};
use serde_json::Value;

use crate::support::{broker::eventually, declared::Declared, process::Place, workers::Working};

const FILE: &str = "\
types: { mail: {}, slow: {} }
schedules:
  tick: { type: mail, cron: \"* * * * * *\", catch-up: all, payload: { full: true } }
  poll: { type: slow, every: 1s }
";

/// A topology with schedules, in the folder of a command line.
async fn apply(place: &Place<'_>) -> Value {
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

#[tokio::test]
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
    let before = ticks.runs.count();
    schedule(&place, &["run-now", "tick"]).await;
    ticks.runs.reach(before + 1).await;
    let resumed = schedule(&place, &["resume", "tick"]).await;
    assert!(resumed["next"].is_string(), "{resumed}");
    ticks.runs.reach(before + 3).await;

    // A flush forgets the states. The next event of each chain restores its own.
    let topology = &declared.topology;
    let register =
        RedisRegister::new(&declared.redis_url, &declared.host.name, &topology.name, &topology.redis).unwrap();
    for name in ["tick", "poll"] {
        eventually("the state is forgotten", async || {
            let text = register.schedule(name).await.unwrap();
            register.replace_schedule(name, text.as_deref(), None).await.unwrap().then_some(())
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

#[tokio::test]
async fn a_backfill_runs_the_instants_that_have_passed() {
    let file = "types: { mail: {} }\nschedules: { nightly: { type: mail, cron: \"0 3 * * *\" } }\n";
    let declared = Declared::new(file).await;
    let place = Place::new(&declared);
    apply(&place).await;
    let range = ["backfill", "nightly", "--from", "2026-06-01T00:00:00Z", "--to", "2026-06-03T00:00:00Z"];
    let dry = schedule(&place, &range).await;
    let instants = ["2026-06-01T03:00:00Z", "2026-06-02T03:00:00Z"];
    assert_eq!((&dry["dry_run"], &dry["instants"]), (&true.into(), &instants.as_slice().into()));
    schedule(&place, &[&range[..], &["--yes"]].concat()).await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |event| {
        let slot = event.schedule.as_ref().and_then(|link| link.slot()).map(|slot| slot.to_string());
        Outcome::Discard { reason: slot.unwrap_or_default() }
    });
    worker.runs.reach(2).await;
    tokio::time::timeout(Duration::from_secs(30), worker.stop()).await.expect("it stops");
    // The chain is as it was.
    let shown = schedule(&place, &["show", "nightly"]).await;
    assert_eq!((&shown["state"], &shown["last"]), (&"armed".into(), &Value::Null));
}
