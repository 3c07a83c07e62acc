//! Workers are killed at each step of a schedule's event, and another worker goes on.

use jiff::Timestamp;
use rstest::rstest;

use super::operated::apply;
use crate::support::{
    broker::eventually,
    declared::Declared,
    process::{Place, Process},
};

const FILE: &str = "\
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
    let declared = Declared::new(FILE).await;
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
