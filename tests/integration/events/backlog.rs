//! Dated changes of one reference, and a backlog that is older than every delay.

use std::time::Duration;

use hatchery::{NewEvent, Outcome};

use super::{declared, from_now};
use crate::support::{
    declared::{Declared, publish, publish_all},
    process::Place,
    workers::Working,
};

#[tokio::test]
async fn a_change_is_replaced_only_by_one_of_the_same_slot() {
    let declared = declared("{ import: { coalesce: latest }, newest: { coalesce: { delayed: latest } } }").await;
    let hatchery = declared.connect().await;
    // Stand-ins for 1 June and 1 July.
    let (june, july) = (from_now(Duration::from_secs(4)), from_now(Duration::from_secs(5)));
    for event_type in ["import", "newest"] {
        let change = |id: &str| NewEvent::new(event_type, id.to_owned()).reference("1234").id(id);
        publish(&hatchery, change("june").at(june)).await;
        publish(&hatchery, change("july").at(july)).await;
        publish(&hatchery, change("june, repeated").at(june)).await;
        publish(&hatchery, change("now")).await;
    }
    let place = Place::new(&declared);
    assert_eq!(place.ids(&["--type", "import"]).await, ["now", "june, repeated", "july"]);
    assert_eq!(place.ids(&["--type", "newest"]).await, ["now", "june, repeated"]);
    let workers = ["import", "newest"].map(|event_type| Working::start(&hatchery, event_type, |_| Outcome::Done));
    for (worker, expected) in workers.iter().zip([3, 2]) {
        worker.runs.reach(expected).await;
    }
    declared.amqp().await.expect_empty(&declared.queues()).await;
    let [imports, newest] = workers.map(|worker| (worker.runs.clone(), worker));
    for ((runs, worker), expected) in
        [(imports, &["now", "june, repeated", "july"][..]), (newest, &["now", "june, repeated"])]
    {
        worker.stop().await;
        // On a busy machine all dates have passed before the workers start, and then the events run in any order. So it is
        // the date of each run that has to be right.
        let date = |id: &str| if id == "july" { Some(july) } else { (id != "now").then_some(june) };
        let mut ran: Vec<_> = runs.seen().iter().map(|seen| (seen.event.id.clone(), seen.event.nbf)).collect();
        ran.sort_unstable_by_key(|(id, _)| expected.iter().position(|one| one == id));
        assert_eq!(ran, expected.iter().map(|id| ((*id).to_owned(), date(id))).collect::<Vec<_>>());
    }
}

#[tokio::test]
#[ignore = "waits until the register has forgotten finished events; scripts/test --all runs it"]
async fn replaced_and_cancelled_events_of_a_long_backlog_never_run() {
    // The register remembers finished events for twelve seconds, and open ones for two minutes. A publish has half of the
    // twelve seconds: confirms come later than that only on a machine that is much too busy.
    let text = "redis: { dedup-retention: 12s, backlog-retention: 2m }\n\
                types: { import: { coalesce: latest, retry: { delays: [1s] } } }\n";
    let declared = Declared::new(text).await;
    let hatchery = declared.connect().await;
    let change = |n: u32, text: &str| {
        NewEvent::new("import", text.to_owned()).reference(format!("{}-{n:03}", n % 3)).id(format!("{n} {text}"))
    };
    let first: Vec<NewEvent> = (0..1_000).map(|n| change(n, "old")).collect();
    let second: Vec<NewEvent> = (0..1_000).filter(|n| n % 3 == 1).map(|n| change(n, "new")).collect();
    for events in first.chunks(100).chain(second.chunks(100)) {
        publish_all(&hatchery, events.to_vec()).await;
    }
    let place = Place::new(&declared);
    let cancelled = place.events(0, &["cancel", "--type", "import", "--reference-prefix", "2-", "--yes"]).await;
    assert_eq!(cancelled.stdout, "Cancelled 333 events.\n");
    // Longer than every delay, and longer than the register remembers finished events.
    tokio::time::sleep(Duration::from_secs(14)).await;

    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(667).await;
    declared.amqp().await.expect_empty(&declared.queues()).await;
    let runs = worker.runs.clone();
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.stale + summary.replaced), (667, 666), "{summary:?}");
    for seen in runs.seen() {
        let reference = seen.event.reference.as_ref().unwrap().as_str();
        let expected: &[u8] = if reference.starts_with("1-") { b"new" } else { b"old" };
        assert!(!reference.starts_with("2-") && &seen.event.payload[..] == expected, "{seen:?}");
    }
}
