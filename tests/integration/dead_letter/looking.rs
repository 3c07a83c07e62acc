//! Looking at letters.

use hatchery::{NewEvent, Outcome};
use serde_json::json;

use super::{TYPES, drained, numbered, put};
use crate::support::{
    amqp::{headers, long},
    broker::eventually,
    declared::{Declared, publish},
    process::Place,
    workers::Working,
};

/// More letters than the first consumers of a look can hold.
const MANY: usize = 7_000;

#[tokio::test]
#[ignore = "looks at 7,000 letters five times; scripts/test --all runs it"]
async fn looking_leaves_all_letters_in_their_order() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place, all) =
        (put(&declared, "mail", MANY).await, Place::new(&declared), numbered(MANY).collect::<Vec<_>>());
    assert_eq!(place.letter_ids(&[]).await, all);
    let list = place.letters_json(&["list", "--type", "mail"]).await;
    assert_eq!((list["found"].as_u64(), list["obsolete"].as_u64()), (Some(7_000), Some(0)));
    // A replay that ends early, after everything was looked at.
    place.letters(0, &["replay", "--yes", "--limit", "1", "--delay", "1s"]).await;
    place.letters(0, &["show", "n00100"]).await;
    assert_eq!(drained(&amqp, &declared.dead_letters("mail")).await, all[1..]);
}

/// With such a policy RabbitMQ deletes letters that were looked at three times.
#[tokio::test]
async fn letters_are_left_alone_where_a_policy_limits_deliveries() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "mail", 3).await, Place::new(&declared));
    let limit = json!({ "pattern": ".*", "definition": { "delivery-limit": 2 }, "apply-to": "queues", "priority": 0 });
    declared.host.put("policies", "house", &limit);
    for arguments in [&["list"][..], &["show", "n00000"], &["replay"], &["list", "--unrouted"]] {
        for _ in 0..3 {
            let mut command = place.command(&[&["dead-letter"], arguments].concat());
            let ended = place.run(command.env("RABBITMQ_MANAGEMENT_URL", declared.host.management())).await.expect(4);
            assert!(ended.stderr.contains("policy `house` limits the deliveries"), "{ended:?}");
        }
    }
    assert_eq!(drained(&amqp, &declared.dead_letters("mail")).await, numbered(3).collect::<Vec<_>>());
}

/// A classic queue counts no deliveries, so RabbitMQ applies no such policy to it.
#[tokio::test]
async fn letters_in_classic_queues_are_shown_where_a_policy_limits_deliveries() {
    let declared = Declared::new(&format!("queue-type: classic\n{TYPES}")).await;
    let (amqp, place) = (put(&declared, "mail", 3).await, Place::new(&declared));
    let limit = json!({ "pattern": ".*", "definition": { "delivery-limit": 2 }, "apply-to": "queues", "priority": 0 });
    declared.host.put("policies", "house", &limit);
    for _ in 0..4 {
        let mut command = place.command(&["dead-letter", "list"]);
        let ended = place.run(command.env("RABBITMQ_MANAGEMENT_URL", declared.host.management())).await.expect(0);
        assert!(ended.stdout.starts_with("3  ") && ended.stderr.is_empty(), "{ended:?}");
    }
    assert_eq!(drained(&amqp, &declared.dead_letters("mail")).await, numbered(3).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_missing_queue_hides_no_letters_of_the_others() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "mail", 1).await, Place::new(&declared));
    for missing in ["import", "plain"] {
        amqp.delete_queue(&declared.dead_letters(missing)).await;
    }
    for (arguments, expected) in [
        (&["list"][..], "1 letter, 1 reason."),
        (&["show", "n00000"], "id              n00000"),
        (&["replay"], "Dry run: would replay 1 letter."),
    ] {
        let ended = place.letters(1, arguments).await;
        assert!(ended.stdout.contains(expected), "{ended:?}");
        assert!(ended.stderr.contains("dead-letter.import") && ended.stderr.contains("dead-letter.plain"), "{ended:?}");
    }
    // Nothing was looked at, so nothing is said of letters.
    let ended = place.letters(1, &["list", "--type", "plain"]).await;
    assert!(ended.stdout.is_empty() && ended.stderr.contains("dead-letter.plain"), "{ended:?}");

    // The letters of `mail` are replayed, and then all is done but what is missing.
    let ended = place.letters(5, &["replay", "--yes"]).await;
    assert!(ended.stdout.contains("Replayed: 1 letter."), "{ended:?}");
    assert!(ended.stderr.contains("dead-letter.import") && ended.stderr.contains("dead-letter.plain"), "{ended:?}");
    assert!(ended.stderr.ends_with("; 1 letter of the other queues replayed\n"), "{ended:?}");
    amqp.expect_empty(&[declared.dead_letters("mail")]).await;
    let ended = place.letters(1, &["replay", "--yes", "-o", "json"]).await;
    let answer: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(answer["queues"].as_object().unwrap().keys().collect::<Vec<_>>(), ["t.dead-letter.mail"]);
    assert!(ended.stderr.contains("dead-letter.plain"), "{ended:?}");
}

#[tokio::test]
#[ignore = "runs many commands on the same letters; scripts/test --all runs it"]
async fn letters_are_grouped_by_their_reason_and_found_by_type_reference_id_reason_and_time() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (declared.amqp().await, Place::new(&declared));
    let failed = |id: &str, time: &str, cause: &str| {
        let failure = long(format!("2026-06-01T{time}.000Z {cause}"));
        let all = [("reference", long(id)), ("first_failure", failure.clone()), ("last_failure", failure)];
        headers(&all).with_message_id(id.into())
    };
    for (event_type, id, time, cause) in [
        ("mail", "a", "09:00:00", "connection refused"),
        ("plain", "b", "10:00:00", "connection refused"),
        ("mail", "c", "11:00:00", "no employee 104711"),
        ("mail", "d", "12:00:00", "no employee 104712"),
        ("mail", "e", "13:00:00", "no employee 104713"),
    ] {
        amqp.publish("t.dead-letter", &format!("{event_type}.dead-letter"), failed(id, time, cause), b"{}").await;
    }
    let groups = place.letters_json(&["list"]).await["groups"].clone();
    let told = |n: usize, key: &str| groups[n][key].clone();
    assert_eq!((told(0, "failure"), told(0, "count")), ("no employee 104711".into(), 3.into()));
    assert_eq!((told(1, "failure"), told(1, "count")), ("connection refused".into(), 2.into()));
    assert_eq!(groups[1]["types"], serde_json::json!(["mail", "plain"]));
    assert_eq!(told(1, "first_failed_at"), "2026-06-01T09:00:00.000Z");
    assert_eq!(told(1, "failed_at"), "2026-06-01T10:00:00.000Z");
    for (arguments, expected) in [
        (&["--type", "plain"][..], &["b"][..]),
        (&["--reference", "c"], &["c"]),
        (&["--id", "d"], &["d"]),
        (&["--reason", "REFUSED"], &["a", "b"]),
        (&["--since", "2026-06-01T12:00:00Z"], &["d", "e"]),
        (&["--until", "2026-06-01T12:00:00Z", "--type", "mail"], &["a", "c"]),
    ] {
        assert_eq!(place.letter_ids(arguments).await, expected, "{arguments:?}");
    }
    let shown = place.letters(0, &["show", "c"]).await.stdout;
    assert!(
        shown.contains("failure         no employee 104711\n") && shown.contains("payload, 2 bytes:\n  {}\n"),
        "{shown}"
    );
    let none = place.letters(1, &["show", "x"]).await;
    assert!(none.stderr.contains("there is no such letter"), "{none:?}");
}

#[tokio::test]
async fn a_letter_whose_event_has_run_meanwhile_is_obsolete() {
    let declared = Declared::new(TYPES).await;
    let (hatchery, place, amqp) = (declared.connect().await, Place::new(&declared), declared.amqp().await);
    for event_type in ["mail", "import"] {
        publish(&hatchery, NewEvent::new(event_type, "1").reference("1234").id("a")).await;
        let worker = Working::start(&hatchery, event_type, |_| Outcome::dead_letter("no such employee"));
        worker.runs.reach(1).await;
        let queue = declared.dead_letters(event_type);
        eventually("a dead letter", async || (amqp.ready(&queue).await == 1).then_some(())).await;
        worker.stop().await;
    }
    let list = place.letters_json(&["list"]).await;
    assert_eq!((list["found"].as_u64(), list["obsolete"].as_u64()), (Some(2), Some(0)), "{list}");
    // One is run out of the register, the other one is replaced.
    place.run(&mut place.command(&["events", "run-now", "--type", "mail", "--id", "a"])).await.expect(0);
    publish(&hatchery, NewEvent::new("import", "2").reference("1234")).await;
    let list = place.letters_json(&["list", "--events"]).await;
    let whys: Vec<_> =
        list["events"].as_array().unwrap().iter().map(|letter| letter["why"].as_str().unwrap()).collect();
    assert!(whys[0].starts_with("a newer event of its reference has replaced it"), "{whys:?}");
    assert_eq!(whys[1], "a later copy of it is known");
    let ended = place.letters(0, &["replay", "--yes"]).await;
    assert!(
        ended.stdout.starts_with("Left: 2 letters, obsolete.") && ended.stdout.ends_with("Replayed: 0 letters.\n"),
        "{ended:?}"
    );
    place.letters(0, &["discard", "--obsolete", "--yes", "--save", "old.ndjson"]).await;
    assert_eq!(place.lines("old.ndjson").len(), 2);
    assert_eq!(place.letter_ids(&[]).await, [""; 0]);
}

#[tokio::test]
async fn letters_are_shown_while_redis_is_away() {
    let declared = Declared::new(TYPES).await;
    let amqp = put(&declared, "mail", 3).await;
    put(&declared, "plain", 2).await;
    let place = Place::new(&declared);
    let away = async |code: i32, arguments: &[&str]| {
        let mut command = place.command(&["dead-letter"]);
        command.args(arguments).env("REDIS_URL", "redis://127.0.0.1:1");
        place.run(&mut command).await.expect(code)
    };
    let list = away(0, &["list", "-o", "json"]).await;
    assert!(list.stderr.contains("Which letters are obsolete is not known"), "{list:?}");
    let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
    assert_eq!((list["found"].as_u64(), list["obsolete"].as_u64()), (Some(5), None), "{list}");
    away(6, &["replay", "--type", "mail", "--yes"]).await;
    assert_eq!(amqp.ready(&declared.dead_letters("mail")).await, 3);
    away(0, &["replay", "--type", "plain", "--yes"]).await;
    assert_eq!(amqp.ready(&declared.dead_letters("plain")).await, 0);
}
