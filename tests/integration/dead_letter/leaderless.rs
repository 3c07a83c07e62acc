//! Letters of a queue whose leader is away. RabbitMQ answers a passive declare of such a queue with 0 messages.

use serde_json::Value;

use super::{drained, numbered, put};
use crate::support::{
    broker::{eventually, text},
    declared::Declared,
    held::Held,
    process::{Ended, Place},
    redis,
};

const LETTERS: usize = 10;
const TYPES: usize = 6;

/// Runs a verb on the letters of a type. Returns the number that it has found or done, if it ends with 0.
async fn done(place: &Place<'_>, event_type: &str, verb: &[&str]) -> (Ended, Option<u64>) {
    let mut command = place.command(&[&["dead-letter"], verb, &["--type", event_type, "-o", "json"]].concat());
    command.env("RABBITMQ_MANAGEMENT_URL", place.declared.host.management());
    let ended = place.run(&mut command).await;
    let count = (ended.status.code() == Some(0)).then(|| {
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        answer["found"].as_u64().or_else(|| answer["letters"]["done"].as_u64()).unwrap_or_else(|| panic!("{answer:#}"))
    });
    (ended, count)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts a cluster of three nodes and kills two; scripts/test --all runs it"]
async fn letters_of_a_queue_without_a_majority_are_not_said_to_be_none() {
    let mut cluster = Held::cluster();
    let types: Vec<String> = (0..TYPES).map(|n| format!("t{n}")).collect();
    let text_of = |name: &String| format!("{name}: {{ register: off }}");
    let topology = format!("types: {{ {} }}\n", types.iter().map(text_of).collect::<Vec<_>>().join(", "));
    let declared = Declared::on(cluster.host(), &topology, redis::url()).await;
    let place = Place::new(&declared);
    // A leader that lives still tells the number. The commands go to the first node, so another one leads.
    let led_by_another = async || {
        let queues = declared.host.list("queues");
        let is_led = |name: &&String| {
            let queue = queues.iter().find(|queue| text(queue, "name") == declared.dead_letters(name));
            queue.is_some_and(|queue| queue["leader"].as_str().is_some_and(|node| node.contains(['2', '3'])))
        };
        types.iter().find(is_led)
    };
    let event_type = eventually("another node leads a queue", led_by_another).await;
    let amqp = put(&declared, event_type, LETTERS).await;
    assert!(cluster.ask("kill rabbitmq2 rabbitmq3").await);
    for verb in [&["list"][..], &["replay", "--yes"], &["discard", "--yes", "--save", "saved"]] {
        let (ended, _) = done(&place, event_type, verb).await;
        assert_eq!(ended.status.code(), Some(6), "{verb:?}: {ended:?}");
        let expected = format!("t.dead-letter.{event_type} does not answer");
        assert!(ended.stderr.contains(&expected), "{verb:?}: {ended:?}");
    }
    assert!(cluster.ask("start rabbitmq2 rabbitmq3").await);
    let replayed = async || done(&place, event_type, &["replay", "--yes"]).await.1;
    assert_eq!(eventually("the letters are replayed", replayed).await, u64::try_from(LETTERS).unwrap());
    let mut events = drained(&amqp, &declared.processing(event_type)).await;
    events.sort();
    assert!(events.into_iter().eq(numbered(LETTERS)));
}
