//! Workers with wrong clocks among right ones. Redis, the broker and this test have the right time.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use hatchery::internals::{
    ports::{NamedStates as _, StateKind},
    redis::RedisRegister,
    schedule::{
        rule::Arm,
        state::{Armed, ScheduleState},
    },
};
use jiff::Timestamp;
use rstest::rstest;
use serde_json::Value;
use tokio::process::Command;

use super::operated::apply;
use crate::support::{
    broker::eventually,
    clock::wrong,
    declared::Declared,
    process::{Place, Process},
};

const FILE: &str = "\
types: { mail: {}, slow: {} }
schedules:
  tick: { type: mail, cron: \"* * * * * *\", catch-up: all }
  last: { type: mail, cron: \"* * * * * *\" }
  poll: { type: mail, every: 1s }
  long: { type: slow, cron: \"* * * * * *\", overlap: skip }
  next: { type: slow, cron: \"* * * * * *\", overlap: queue }
";

/// A run of `long` takes longer than its instants are apart. A file system tells whether two of them run at a time.
const SCRIPT: &str = "\
cat > /dev/null
echo $EVENT_ID >> $1
case $EVENT_TYPE in slow)
  mkdir busy-$EVENT_SCHEDULE 2>> overlaps
  sleep 1.5
  rmdir busy-$EVENT_SCHEDULE
esac
";

const SCHEDULES: [&str; 5] = ["tick", "last", "poll", "long", "next"];

/// Returns a worker of both types, which notes its runs in this file.
fn worker(place: &Place<'_>, script: &Path, runs: &str) -> Command {
    let mut command = place.worker("mail,slow", script);
    command.arg(runs);
    command
}

/// Counts the runs of each schedule in these files.
fn counted(place: &Place<'_>, files: &[&str]) -> BTreeMap<&'static str, usize> {
    let runs: Vec<String> = files.iter().flat_map(|file| place.lines(file)).collect();
    let of = |name: &str| runs.iter().filter(|id| id.split(['@', '#']).next() == Some(name)).count();
    SCHEDULES.into_iter().map(|name| (name, of(name))).collect()
}

/// Waits until each schedule has run three times more.
async fn goes_on(place: &Place<'_>, what: &str, files: &[&str]) {
    let before = counted(place, files);
    eventually(what, async || {
        let now = counted(place, files);
        SCHEDULES.iter().all(|name| now[name] >= before[name] + 3).then_some(())
    })
    .await;
}

async fn status(place: &Place<'_>, clock: Option<&str>) -> Value {
    let mut command = place.command(&["-o", "json", "status"]);
    command.env("RABBITMQ_MANAGEMENT_URL", place.declared.host.management());
    if let Some(clock) = clock {
        wrong(&mut command, clock);
    }
    let ended = place.run(&mut command).await;
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// Returns how many seconds ahead the clock is that `status` names.
fn named(status: &Value) -> Option<i64> {
    let findings = status["findings"].as_array().unwrap();
    let finding = findings.iter().find(|finding| finding["kind"] == "clock-wrong")?;
    assert_eq!(finding["machine"], rustix::system::uname().nodename().to_str().unwrap());
    finding["ahead_seconds"].as_i64()
}

#[rstest]
#[case::a_minute_ahead("+1m")]
#[case::a_minute_behind("-1m")]
#[case::a_day_ahead("+1d")]
#[case::a_day_behind("-1d")]
#[case::a_month_ahead("+30d")]
#[case::a_month_behind("-30d")]
#[case::in_2099("@2099-01-01 00:00:00")]
#[tokio::test]
#[ignore = "waits for many instants; scripts/test --all runs it"]
async fn a_worker_with_a_wrong_clock_breaks_no_chain(#[case] clock: &str) {
    let declared = Declared::new(FILE).await;
    let place = Place::new(&declared);
    apply(&place).await;
    let script: PathBuf = place.write("handler.sh", SCRIPT);
    let right = Process::spawn(worker(&place, &script, "right"));
    goes_on(&place, "a right worker runs each schedule", &["right"]).await;
    assert_eq!(named(&status(&place, None).await), None);

    let mut command = worker(&place, &script, "wrong");
    wrong(&mut command, clock);
    let other = Process::spawn(command);
    let ahead = eventually("`status` names the machine", async || named(&status(&place, None).await)).await;
    assert_eq!(ahead > 0, !clock.starts_with('-'), "{ahead}");
    goes_on(&place, "both workers run each schedule", &["right", "wrong"]).await;
    eventually("the wrong worker has run some", async || (place.lines("wrong").len() > 10).then_some(())).await;
    other.stop().await;
    goes_on(&place, "the right worker goes on", &["right"]).await;
    // The machine of a person is named as well.
    assert!(named(&status(&place, Some(clock)).await).is_some());
    right.stop().await;

    assert_eq!(place.lines("overlaps"), [""; 0]);
    let runs: Vec<String> = ["right", "wrong"].iter().flat_map(|file| place.lines(file)).collect();
    let positions = |head: &str, read: fn(&str) -> i64| {
        let mut positions: Vec<i64> = runs.iter().filter_map(|id| id.strip_prefix(head)).map(read).collect();
        positions.sort_unstable();
        positions
    };
    let instants = positions("tick@", |text| text.parse::<Timestamp>().unwrap().as_second());
    let numbers = positions("poll#", |text| text.parse().unwrap());
    for chain in [instants, numbers] {
        assert!(chain.windows(2).all(|pair| pair[1] == pair[0] + 1), "{clock}: {chain:?}");
    }
    let now = Timestamp::now().as_second();
    for name in ["last@", "long@", "next@"] {
        let instants = positions(name, |text| text.parse::<Timestamp>().unwrap().as_second());
        assert!(instants.iter().all(|instant| (now - instant).abs() < 300), "{clock}: {instants:?}");
    }
}

/// A worker of a former version has armed all schedules for next month.
#[tokio::test]
#[ignore = "waits until a schedule is healed; scripts/test --all runs it"]
async fn chains_that_were_armed_for_next_month_are_whole_again() {
    let declared = Declared::new(FILE).await;
    let place = Place::new(&declared);
    apply(&place).await;
    let script = place.write("handler.sh", SCRIPT);
    let worker = Process::spawn(worker(&place, &script, "right"));
    goes_on(&place, "a worker runs each schedule", &["right"]).await;
    let topology = &declared.topology;
    let register =
        RedisRegister::new(&declared.redis_url, &declared.host.name, &topology.name, &topology.redis).unwrap();
    for name in SCHEDULES {
        eventually("the state is another one", async || {
            let text = register.state(StateKind::Schedule, name).await.unwrap().unwrap();
            let state = ScheduleState::parse(&text).unwrap();
            let month = 30 * 86_400_000;
            let Armed { arm: Arm { position, due }, published } = state.armed.unwrap();
            let arm = Arm { position: position + month, due: due + month };
            let run = state.run.clone().map(|mut run| {
                (run.position, run.started, run.until) = (run.position + month, run.started + month, run.until + month);
                run
            });
            let armed = Some(Armed { arm, published: published.map(|published| published + month) });
            let ahead = ScheduleState { armed, run, ..state }.text();
            register.replace_state(StateKind::Schedule, name, Some(&text), Some(&ahead)).await.unwrap().then_some(())
        })
        .await;
    }
    goes_on(&place, "each schedule runs", &["right"]).await;
    let plan = apply(&place).await;
    assert!(plan["schedules"].as_array().unwrap().iter().all(|one| one["change"] == "unchanged"), "{plan}");
    worker.stop().await;
    assert_eq!(place.lines("overlaps"), [""; 0]);
}
