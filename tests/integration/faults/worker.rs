//! A worker is killed at each fail point of an event's way, and another worker goes on.

use std::{fmt, ops::RangeInclusive, time::Duration};

use futures_util::future::join_all;
use hatchery::{Hatchery, NewEvent};
use jiff::Timestamp;
use rstest::rstest;
use tokio::process::Command;

use super::{event_type, types};
use crate::support::{
    amqp::Amqp,
    broker::eventually,
    declared::{Declared, publish},
    process::{Place, Process},
};

/// The fail points. At `handler` the program itself kills the worker.
const POINTS: [&str; 8] = [
    "work.delivered",
    "work.claimed",
    "handler",
    "work.handled",
    "broker.sent",
    "work.followed-up",
    "work.settled",
    "work.acknowledged",
];

/// How often the program may run. `docs/guarantees.md` has the order of effects.
#[derive(Debug)]
struct Allowed {
    /// Runs of the event itself.
    first: RangeInclusive<usize>,
    /// Runs of its retry or requeue.
    follow_up: RangeInclusive<usize>,
    letters: RangeInclusive<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Done,
    Retry,
    Requeue,
    DeadLetter,
}

fn allowed(point: &str, answer: Answer, coalesced: bool) -> Allowed {
    // The requeue of a coalesced event is in the slot of its date, so neither makes the other stale.
    let own_slot = answer == Answer::Requeue && coalesced;
    let first = match (point, answer) {
        // The run has not begun, or the register knows that it is over.
        ("work.delivered" | "work.claimed" | "work.settled" | "work.acknowledged", _) => 1..=1,
        // The event and its follow-up are both in the broker; the one that is claimed first makes the other stale.
        ("broker.sent" | "work.followed-up", Answer::Retry | Answer::Requeue) if !own_slot => 1..=2,
        // The event ran, and the register does not know it.
        _ => 2..=2,
    };
    let follow_up = match (point, answer) {
        (_, Answer::Done | Answer::DeadLetter) => 0..=0,
        // One follow-up for each first run, unless they have the same date and coalesce.
        ("broker.sent" | "work.followed-up", _) if own_slot => 1..=2,
        _ => 1..=1,
    };
    let letters = match (point, answer) {
        (_, Answer::Done | Answer::Retry | Answer::Requeue) => 0..=0,
        ("broker.sent", _) => 1..=2,
        ("work.followed-up", _) => 2..=2,
        _ => 1..=1,
    };
    Allowed { first, follow_up, letters }
}

/// The counts that are compared with [`Allowed`].
#[derive(Debug, Default)]
struct Account {
    first: usize,
    follow_up: usize,
    letters: usize,
    fences: Vec<i64>,
    left: Vec<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Requeue => "requeue",
            Self::DeadLetter => "dead-letter",
        })
    }
}

const SCRIPT: &str = r#"
echo "$EVENT_FENCE $EVENT_ATTEMPTS ${EVENT_REASON%%:*}" >> runs
if [ "$KILL" = handler ]; then kill -9 $PPID; fi
case $ANSWER in
retry) if [ "$EVENT_ATTEMPTS" = 0 ]; then echo 'no luck' >&2; exit 1; fi ;;
requeue) if [ "$EVENT_REASON" != again ]; then echo '{"requeue": {"at": "'"$AT"'", "reason": "again"}}'; fi ;;
dead-letter) echo 'never' >&2; exit 65 ;;
esac
"#;

#[rstest]
#[tokio::test]
#[ignore = "kills a worker at each of up to eight points; scripts/test --all runs it"]
async fn a_killed_worker_loses_nothing_and_repeats_only_runs_that_may_be_repeated(
    #[values(Answer::Done, Answer::Retry, Answer::Requeue, Answer::DeadLetter)] answer: Answer,
    #[values("off", "latest")] coalesce: &str,
) {
    let points: Vec<_> = POINTS.into_iter().filter(|point| answer != Answer::Done || *point != "broker.sent").collect();
    let defaults =
        format!("defaults: {{ lease: 1s, coalesce: {coalesce}, retry: {{ delays: [200ms], max-attempts: 3 }} }}\n");
    let declared = Declared::new(&(defaults + &types(&points))).await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    let allowed = |point: &str| allowed(point, answer, coalesce == "latest");
    let cases = points.iter().map(|point| case(&declared, &hatchery, &amqp, point, answer, allowed(point)));
    let accounts = join_all(cases).await;
    let mut wrong = Vec::new();
    for (point, account) in points.iter().zip(accounts) {
        let allowed = allowed(point);
        let right = allowed.first.contains(&account.first)
            && allowed.follow_up.contains(&account.follow_up)
            && allowed.letters.contains(&account.letters)
            && account.fences.is_sorted_by(|one, next| one < next)
            && account.left.is_empty();
        if !right {
            wrong.push(format!("{point}: counted {account:?}, allowed {allowed:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let left = amqp.filled(&declared.passages()).await;
    assert!(left.is_empty() && amqp.ready("t.unrouted").await == 0, "{left:?}");
}

/// Publishes one event, kills a worker at the point, lets another worker finish, and counts.
async fn case(
    declared: &Declared,
    hatchery: &Hatchery,
    amqp: &Amqp,
    point: &str,
    answer: Answer,
    allowed: Allowed,
) -> Account {
    let place = Place::new(declared);
    let event_type = event_type(point);
    publish(hatchery, NewEvent::new(event_type.clone(), "{}").reference("1234").id("the-event")).await;
    let script = place.write("handler.sh", SCRIPT);
    let at = Timestamp::now().checked_add(Duration::from_secs(5)).unwrap();
    let worker = |kill: &str| {
        let mut command = place.worker(&event_type, &script);
        command.env("ANSWER", answer.to_string()).env("AT", at.to_string()).env("KILL", kill);
        if kill != "handler" && !kill.is_empty() {
            command.env("HATCHERY_KILL_AT", kill);
        }
        command
    };
    let ended = Process::spawn(worker(point)).ended().await;
    assert!(ended.killed(), "{point}: {ended:?} {:?}", place.lines("log"));

    let second = spawn_consuming(&place, worker("")).await;
    let queues: Vec<String> = own_queues(declared, &event_type);
    let letters = declared.dead_letters(&event_type);
    let mut quiet = 0;
    eventually(&format!("{point}: the queues are empty and all runs are done"), async || {
        let account = account(&place, amqp, &letters).await;
        // Empty queues are not enough: a copy that waits in a worker's memory for its reference is in no queue.
        let handled = account.first >= *allowed.first.start()
            && account.follow_up >= *allowed.follow_up.start()
            && account.letters >= *allowed.letters.start();
        let empty = amqp.filled(&queues).await.is_empty();
        quiet = if handled && empty { quiet + 1 } else { 0 };
        (quiet >= QUIET).then_some(())
    })
    .await;
    second.stop().await;
    let left = amqp.filled(&queues).await.into_keys().collect();
    Account { left, ..account(&place, amqp, &letters).await }
}

/// Starts a worker, and waits until its log says that it consumes: a signal that stops it earlier may come before it handles
/// signals. The log tells, because the broker may still count the consumer of a killed worker.
pub(super) async fn spawn_consuming(place: &Place<'_>, worker: Command) -> Process {
    let consuming = || {
        place
            .lines("log")
            .iter()
            .filter(|line| line.contains("consuming t.processor.") && !line.contains(" again in "))
            .count()
    };
    let before = consuming();
    let process = Process::spawn(worker);
    eventually("the worker consumes", async || (consuming() > before).then_some(())).await;
    process
}

/// How many times in a row the queues must be empty: a message that moves between two queues is in neither for a
/// moment.
const QUIET: usize = 30;

/// Returns the queues through which the event of one case goes. It shares some of them with other cases.
fn own_queues(declared: &Declared, event_type: &str) -> Vec<String> {
    let of_another = |queue: &str| {
        ["t.processor.", "t.retry."]
            .iter()
            .any(|prefix| queue.strip_prefix(prefix).is_some_and(|rest| rest.split('.').next() != Some(event_type)))
    };
    declared.passages().into_iter().filter(|queue| !of_another(queue)).collect()
}

async fn account(place: &Place<'_>, amqp: &Amqp, letters: &str) -> Account {
    let mut account = Account { letters: amqp.ready(letters).await.try_into().unwrap(), ..Account::default() };
    for line in place.lines("runs") {
        let mut words = line.split(' ');
        account.fences.push(words.next().unwrap().parse().unwrap());
        match (words.next().unwrap(), words.next().unwrap()) {
            ("0", "") => account.first += 1,
            ("1", "retry") | ("0", "again") => account.follow_up += 1,
            _ => panic!("{line}"),
        }
    }
    account
}
