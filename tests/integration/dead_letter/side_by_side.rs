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

/// Somebody has opened the queue with a client of their own, and left it open.
#[tokio::test]
async fn a_sweep_says_that_a_stranger_holds_letters() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "plain", 3).await, Place::new(&declared));
    let stranger = declared.amqp().await.hold(&declared.dead_letters("plain"), 10).await;
    amqp.expect_untouched(&declared.dead_letters("plain"), 0).await;
    for arguments in [&["replay", "--yes"][..], &["discard", "--save", "old.ndjson", "--yes"]] {
        let ended = place.letters(5, arguments).await;
        assert!(ended.stderr.contains("1 consumer reads t.dead-letter.plain"), "{ended:?}");
        assert!(ended.stderr.contains("not all letters were seen"), "{ended:?}");
    }
    drop(stranger);
    crate::support::broker::eventually("the letters are back", async || {
        (amqp.ready(&declared.dead_letters("plain")).await == 3).then_some(())
    })
    .await;
    assert_eq!(place.letter_ids(&[]).await, numbered(3).collect::<Vec<_>>());
}

/// RabbitMQ sends as many letters as the prefetch allows, and the client keeps them all in memory.
#[tokio::test]
#[ignore = "replays 480 MiB; scripts/test --all runs it"]
async fn a_replay_of_large_letters_takes_little_memory_and_misses_none() {
    const LETTERS: usize = 40;
    const MOST: u64 = 300 << 20;
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (declared.amqp().await, Place::new(&declared));
    let body = vec![b'x'; 12 << 20];
    for id in numbered(LETTERS) {
        let properties = crate::support::amqp::headers(&[]).with_message_id(id.as_str().into());
        amqp.publish("t.dead-letter", "plain.dead-letter", properties, &body).await;
    }
    let peak = async |arguments: &[&str]| {
        let process = Process::spawn(place.command(&[&["dead-letter"], arguments].concat()));
        let status = format!("/proc/{}/status", process.id());
        let mut peak = 0;
        let running = async {
            loop {
                let text = std::fs::read_to_string(&status).unwrap_or_default();
                let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
                peak = line.and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(peak);
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let ended = tokio::select! { ended = process.ended() => ended, () = running => unreachable!() };
        (peak * 1_024, ended.expect(0))
    };
    for (arguments, left) in
        [(&["list"][..], LETTERS), (&["replay", "--yes", "--limit", "1"], LETTERS - 1), (&["replay", "--yes"], 0)]
    {
        let (peak, ended) = peak(arguments).await;
        assert!(peak < MOST, "{arguments:?}: {} MiB, {ended:?}", peak >> 20);
        let ready = amqp.ready(&declared.dead_letters("plain")).await;
        assert_eq!(usize::try_from(ready).unwrap(), left, "{arguments:?}: {ended:?}");
    }
}
