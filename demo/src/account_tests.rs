use rstest::rstest;

use super::*;

const CHECKSUM: u32 = 7;

fn published(id: &str, slot: Option<&str>, fate: Fate) -> Published {
    Published {
        id: id.to_owned(),
        label: "a test".to_owned(),
        slot: slot.map(str::to_owned),
        fate,
        checksum: CHECKSUM,
        raw: false,
        poison: false,
    }
}

fn run(id: &str, attempts: u32, outcome: Outcome, worker: &str) -> Run {
    let (id, event_type, worker) = (id.to_owned(), "hr-import".to_owned(), worker.to_owned());
    Run { id, event_type, attempts, outcome, checksum: CHECKSUM, worker }
}

fn done(id: &str) -> Run {
    run(id, 0, Outcome::Done, "2")
}

fn found(id: &str, queue: &str) -> Found {
    Found { id: id.to_owned(), queue: queue.to_owned(), dead_letter: queue == "dead" }
}

/// One event with its fate, its runs and its queues; the state that follows, and whether the state fits the fate.
#[rstest]
#[case(Fate::Handled, &[done("a")], &[], FoundState::Handled, true)]
#[case(Fate::Handled, &[done("b")], &[found("b", "hatchery")], FoundState::Lost, false)]
#[case(Fate::Handled, &[run("a", 0, Outcome::Failed, "2")], &[], FoundState::Lost, false)]
#[case(Fate::Handled, &[run("a", 0, Outcome::Dead, "2")], &[], FoundState::Lost, false)]
#[case(Fate::Handled, &[], &[found("a", "processor")], FoundState::Waiting, false)]
#[case(Fate::Handled, &[], &[found("a", "dead")], FoundState::DeadLettered, false)]
#[case(Fate::Handled, &[done("a")], &[found("a", "ladder")], FoundState::Handled, true)]
#[case(Fate::DeadLettered, &[], &[found("a", "dead")], FoundState::DeadLettered, true)]
#[case(Fate::DeadLettered, &[run("a", 3, Outcome::Failed, "2")], &[], FoundState::Lost, false)]
#[case(Fate::DeadLettered, &[done("a")], &[], FoundState::Handled, false)]
#[case(Fate::Waiting, &[], &[found("a", "hatchery")], FoundState::Waiting, true)]
#[case(Fate::Waiting, &[], &[], FoundState::Lost, false)]
#[case(Fate::Waiting, &[done("a")], &[], FoundState::Handled, false)]
fn an_event_in_a_state_that_does_not_fit_is_reported(
    #[case] fate: Fate,
    #[case] runs: &[Run],
    #[case] queues: &[Found],
    #[case] state: FoundState,
    #[case] well: bool,
) {
    for slot in [None, Some("1042")] {
        let account = Account::take(&[published("a", slot, fate)], runs, queues, "1");
        assert_eq!(account.count(state), 1, "{account:?}");
        assert_eq!(account.off.is_empty(), well, "{account:?}");
    }
}

/// Three events `a`, `b` and `c` of these slots. Those in `handled` were handled.
#[rstest]
#[case(["x", "x", "x"], &["c"], [FoundState::Coalesced, FoundState::Coalesced, FoundState::Handled])]
#[case(["x", "x", "x"], &["b"], [FoundState::Coalesced, FoundState::Handled, FoundState::Lost])]
#[case(["x", "x", "x"], &["a"], [FoundState::Handled, FoundState::Lost, FoundState::Lost])]
#[case(["x", "x", "x"], &[], [FoundState::Lost, FoundState::Lost, FoundState::Lost])]
#[case(["x", "y", "x"], &["c"], [FoundState::Coalesced, FoundState::Lost, FoundState::Handled])]
#[case(["x", "x", "y"], &["c"], [FoundState::Lost, FoundState::Lost, FoundState::Handled])]
fn only_a_newer_event_of_the_slot_replaces_an_event(
    #[case] slots: [&str; 3],
    #[case] handled: &[&str],
    #[case] states: [FoundState; 3],
) {
    let events: Vec<Published> =
        ["a", "b", "c"].iter().zip(slots).map(|(id, slot)| published(id, Some(slot), Fate::Handled)).collect();
    let runs: Vec<Run> = handled.iter().map(|id| done(id)).collect();
    let account = Account::take(&events, &runs, &[], "1");
    let have: Vec<FoundState> = account.states.iter().map(|state| state.unwrap_or(FoundState::Lost)).collect();
    assert_eq!(have, states);
    assert_eq!(account.off.is_empty(), !states.contains(&FoundState::Lost), "{account:?}");
}

#[test]
fn an_event_without_a_slot_is_never_replaced() {
    let events = [published("a", None, Fate::Handled), published("b", None, Fate::Handled)];
    let account = Account::take(&events, &[done("b")], &[], "1");
    assert_eq!(account.count(FoundState::Lost), 1);
    assert!(account.off[0].contains("LOST a"), "{account:?}");
}

#[test]
fn a_stale_copy_that_is_still_on_its_way_is_replaced() {
    let events = [published("a", Some("x"), Fate::Handled), published("b", Some("x"), Fate::Handled)];
    let account = Account::take(&events, &[done("b")], &[found("a", "ladder")], "1");
    assert_eq!((account.count(FoundState::Coalesced), account.count(FoundState::Handled)), (1, 1));
    assert!(account.off.is_empty());
}

#[test]
fn a_run_with_another_payload_does_not_count_as_handled() {
    let torn = Run { checksum: CHECKSUM + 1, ..done("a") };
    let account = Account::take(&[published("a", None, Fate::Handled)], &[torn], &[], "1");
    assert_eq!(account.count(FoundState::Lost), 1);
}

#[rstest]
#[case("1", "2", true)]
#[case("2", "1", true)]
#[case("2", "1-again", false)]
fn a_second_run_is_allowed_only_if_a_worker_was_killed(#[case] first: &str, #[case] second: &str, #[case] well: bool) {
    let runs = [run("a", 0, Outcome::Done, first), run("a", 0, Outcome::Done, second)];
    let account = Account::take(&[published("a", None, Fate::Handled)], &runs, &[], "1");
    assert_eq!((account.twice.len(), account.count(FoundState::Handled)), (1, 1));
    assert_eq!(account.off.is_empty(), well, "{account:?}");
}

#[test]
fn the_last_payload_of_each_employee_counts() {
    let events = [
        published("a", Some("x"), Fate::Handled),
        published("b", Some("x"), Fate::DeadLettered),
        published("c", Some("y"), Fate::Handled),
        published("d", Some("z"), Fate::Waiting),
    ];
    let account = Account::take(&events, &[done("a")], &[found("b", "dead"), found("d", "hatchery")], "1");
    assert_eq!(account.last, (2, 1));
    assert_eq!(account.count(FoundState::Lost), 1);
}

#[test]
fn a_retry_is_counted_once() {
    let runs = [0, 1, 2].map(|n| run("a", n, if n < 2 { Outcome::Failed } else { Outcome::Done }, "2"));
    let account = Account::take(&[published("a", None, Fate::Handled)], &runs, &[], "1");
    assert_eq!((account.retried, account.twice.len()), (1, 0));
    assert!(account.off.is_empty());
}
