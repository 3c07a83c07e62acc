//! Several people at a time.

use futures_util::future::join_all;

use super::{TYPES, drained, ids, numbered, put};
use crate::support::{
    declared::Declared,
    process::{Place, Process},
};

#[tokio::test]
#[ignore = "runs four programs on one queue; scripts/test --all runs it"]
async fn three_people_look_while_a_worker_adds_letters_and_a_replay_runs() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "plain", 600).await, Place::new(&declared));
    // The lists are longer than a pipe holds.
    let look = |name: &str| {
        let mut command = place.command(&["dead-letter", "list", "--events", "-o", "ndjson"]);
        command.stdout(std::fs::File::create(place.path(name)).unwrap());
        Process::spawn(command)
    };
    let replay = Process::spawn(place.command(&["dead-letter", "replay", "--yes", "--limit", "200"]));
    let names = ["one", "two", "three"];
    let lookers = names.map(look);
    let more = (600..900).map(|n| format!("n{n:05}"));
    amqp.publish_in_order("t.dead-letter", "plain.dead-letter", more).await;
    let all: Vec<String> = numbered(900).collect();
    for ended in join_all(lookers.map(Process::ended)).await {
        ended.expect(0);
    }
    for name in names {
        let seen = ids(place.lines(name).iter());
        // Each sees a part without a gap: what was there when its look began, and was not yet replayed.
        let first = all.iter().position(|id| *id == seen[0]).unwrap();
        assert_eq!(seen, all[first..first + seen.len()], "from {first}");
        assert!(first <= 200 && first + seen.len() >= 600, "{first} {}", seen.len());
    }
    replay.ended().await.expect(0);
    assert_eq!(drained(&amqp, &declared.dead_letters("plain")).await, all[200..]);
    let mut replayed = drained(&amqp, &declared.processing("plain")).await;
    replayed.sort();
    assert_eq!(replayed, all[..200]);
}

#[tokio::test]
async fn somebody_who_does_not_wait_is_told_that_others_hold_the_letters() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "plain", 100).await, Place::new(&declared));
    amqp.delete_queue(&declared.dead_letters("import")).await;
    let arguments = ["dead-letter", "replay", "--type", "plain", "--yes", "--rate", "20/s"];
    let replay = Process::spawn(place.command(&arguments));
    let refused = crate::support::broker::eventually("somebody is refused", async || {
        let ended = place.run(&mut place.command(&["dead-letter", "list", "--wait", "1ms"])).await;
        (ended.status.code() == Some(7)).then_some(ended)
    });
    let refused = refused.await;
    assert!(refused.stderr.contains("holds letters of t.dead-letter.plain"), "{refused:?}");
    // The queue that was missing before is named all the same.
    assert!(refused.stderr.contains("t.dead-letter.import"), "{refused:?}");
    replay.ended().await.expect(0);
}
