//! Findings by what workers and publishers have told Redis.

use std::{collections::BTreeMap, time::Duration};

use hatchery::internals::register::ended_runs::EndedRuns;
use jiff::SignedDuration;
use rstest::rstest;

use super::{World, holder, mail};
use crate::{figures::Sample, status::finding::Finding};

/// Lets workers tell of so many runs, ended and failed, so many seconds ago; the newest first.
fn told(world: &mut World, runs: &[(u64, u64, u64)]) {
    let slice = |(age, ended, failed): &(u64, u64, u64)| {
        let error = (*failed > 0).then(|| "timed out after 30s".to_owned());
        let runs = EndedRuns { ended: *ended, failed: *failed, error };
        (Duration::from_secs(*age), BTreeMap::from([(mail(), runs)]))
    };
    world.seen.reported.runs = runs.iter().map(slice).collect();
}

fn words(world: &World) -> Vec<String> {
    world.findings().iter().map(Finding::words).collect()
}

#[rstest]
#[case::too_few(&[(0, 2, 2)], None)]
#[case::few(&[(0, 1, 1), (30, 2, 2)], Some("nearly all runs fail: mail (3 of the last 3: timed out after 30s)"))]
#[case::a_third(&[(0, 30, 10)], None)]
#[case::nine_of_ten(&[(0, 30, 27)], Some("nearly all runs fail: mail (27 of the last 30: timed out after 30s)"))]
#[case::long_ago(&[(900, 30, 30)], None)]
// They have failed until half a minute ago, and succeed since, many or few.
#[case::mended(&[(0, 30, 0), (30, 900, 900)], None)]
#[case::mended_and_slow(&[(0, 1, 0), (30, 1, 0), (60, 8, 8)], None)]
#[case::begins(&[(0, 4, 4), (30, 4, 2), (60, 900, 0)], None)]
fn a_type_fails_if_nearly_all_of_its_last_runs_do(#[case] runs: &[(u64, u64, u64)], #[case] expected: Option<&str>) {
    let mut world = World::new();
    told(&mut world, runs);
    assert_eq!(words(&world), expected.into_iter().collect::<Vec<_>>());
}

#[test]
fn nobody_is_told_to_close_the_connection_of_a_worker() {
    let mut world = World::new();
    let mut worker = holder(&["billing.processor.mail"], 10, 90);
    (worker.is_worker, worker.program) = (true, Some("topology work mail @ worker-7".to_owned()));
    world.seen.channels = Some(vec![worker]);
    let findings = world.findings();
    let frozen = "the worker topology work mail @ worker-7 holds 10 deliveries of billing.processor.mail and has acknowledged none \
                  for 1m 30s: it is frozen; restart it";
    assert_eq!(findings.iter().map(Finding::words).collect::<Vec<_>>(), [frozen]);
    assert!(!findings[0].command().contains("close_connection"), "{findings:?}");
    // Runs of other workers end at their time limit: that explains no worker that acknowledges nothing.
    told(&mut world, &[(0, 3, 3)]);
    assert_eq!(words(&world), [frozen, "nearly all runs fail: mail (3 of the last 3: timed out after 30s)"]);
}

#[test]
fn an_emptied_redis_is_told_of_for_a_day_although_it_knows_events_again() {
    let mut world = World::new();
    world.seen.reported.emptied = Some(world.seen.at - SignedDuration::from_hours(3));
    let expected =
        "Redis was emptied 3h ago: events published before that run, even if they were replaced or cancelled";
    assert_eq!(words(&world), [expected]);
}

#[test]
fn workers_have_ten_seconds_to_find_that_redis_is_back() {
    let mut world = World::new();
    world.fill("billing.processor.mail", 13);
    world.fill("billing.processor.log", 2);
    world.seen.redis_up_for = Some(Duration::from_secs(9));
    // Those of `log` do not use it.
    assert_eq!(words(&world), ["2 events wait in billing.processor.log, and it has no consumer"]);
    let unknown = "whether types without a consumer have workers: Redis was started 9s ago";
    assert_eq!(world.status().unknown, [unknown]);
    world.seen.redis_up_for = Some(Duration::from_secs(10));
    assert!(words(&world)[0].contains("billing.processor.mail"), "{:?}", words(&world));
}

#[test]
fn the_oldest_due_event_of_a_type_is_late() {
    let mut world = World::new();
    let at = world.seen.at;
    world.seen.oldest_due = BTreeMap::from([(mail(), Some(at - SignedDuration::from_secs(90)))]);
    world.seen.oldest_due.insert("hr-import".parse().expect("a word"), None);
    let late: Vec<_> = world.status().types.into_iter().map(|line| (line.name, line.late_seconds)).collect();
    let expected = [("hr-import", Some(0)), ("log", None), ("mail", Some(90))];
    assert_eq!(late, expected.map(|(name, late)| (name.to_owned(), late)));
}

#[test]
fn obsolete_letters_count_apart() {
    let mut world = World::new();
    world.fill("billing.dead-letter.mail", 120);
    world.seen.open_letters = BTreeMap::from([("billing.dead-letter.mail".to_owned(), 100)]);
    assert_eq!(words(&world), ["120 dead letters of mail (20 obsolete, unreadable or unknown to Redis)"]);
    let samples = [Sample { sample: 118, timestamp: 600_000 }, Sample { sample: 20, timestamp: 0 }];
    world.seen.letters.insert("billing.dead-letter.mail".to_owned(), samples.to_vec());
    assert_eq!(words(&world), ["120 dead letters of mail (+100 in 10m, 20 obsolete, unreadable or unknown to Redis)"]);
    // RabbitMQ's figures are older than those of the register.
    world.seen.open_letters = BTreeMap::from([("billing.dead-letter.mail".to_owned(), 130)]);
    assert_eq!(words(&world), ["120 dead letters of mail (+100 in 10m)"]);
}
