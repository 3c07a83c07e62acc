//! A worker of a source is killed at each step of a message, and another worker goes on.

use std::collections::{BTreeMap, BTreeSet};

use lapin::BasicProperties;
use rstest::rstest;

use super::{change, declared, drain, header, id};
use crate::support::process::Place;

const FILE: &str = "\
types: { mail: { register: off } }
sources:
  own: { declare: on, id: /id, events: [ { when: { /kind: change }, type: mail, reference: /employee/number } ] }
  theirs: { queue: hr-changes, id: /id, prefetch: 20, events: [ { when: { /kind: change }, type: mail, reference: /employee/number } ] }
";
const MESSAGES: usize = 200;
/// Of this many messages, one becomes no event.
const UNMAPPABLE_EVERY: usize = 20;

fn is_mappable(number: usize) -> bool {
    !number.is_multiple_of(UNMAPPABLE_EVERY)
}

/// Each worker is killed at its 30th passing of the point, until one comes to the end.
#[rstest]
#[case::before_anything("source.delivered:30")]
#[case::before_the_confirm("broker.sent:30")]
#[case::between_confirm_and_record("publish.confirmed:30")]
#[case::before_the_acknowledgement("source.confirmed:30")]
#[case::after_the_acknowledgement("source.acknowledged:30")]
#[tokio::test]
#[ignore = "kills a worker at each of five points of both kinds of source; scripts/test --all runs it"]
async fn every_message_becomes_its_event_or_a_dead_letter(
    #[case] point: &str,
    #[values(("own", "t.source.own"), ("theirs", "hr-changes"))] (source, queue): (&str, &str),
) {
    let declared = declared(FILE).await;
    let (amqp, place) = (declared.amqp().await, Place::new(&declared));
    for number in 0..MESSAGES {
        let body =
            if is_mappable(number) { change(number, &format!("{}", number % 7), number) } else { "{]".to_owned() };
        let properties = BasicProperties::default().with_message_id(number.to_string().into());
        amqp.publish("", queue, properties, body.as_bytes()).await;
    }
    let mut kills = 0;
    loop {
        let mut command = place.command(&["-o", "json", "work", "--source", source, "--stop-when-empty"]);
        let ended = place.run(command.env("HATCHERY_KILL_AT", point)).await;
        if !ended.killed() {
            ended.expect(0);
            break;
        }
        kills += 1;
        assert!(kills < 50, "it makes no progress");
    }
    assert!(kills >= 2, "{kills} kills");
    assert_eq!(amqp.ready(queue).await, 0);

    let events = drain(&amqp, &declared.processing("mail")).await;
    let mut copies: BTreeMap<usize, usize> = BTreeMap::new();
    let mut firsts = Vec::new();
    for event in &events {
        let number: usize = id(event).strip_prefix(&format!("{source}:")).unwrap().parse().unwrap();
        let copies = copies.entry(number).or_default();
        *copies += 1;
        if *copies == 1 {
            firsts.push(number);
        }
    }
    let mappable: Vec<usize> = (0..MESSAGES).filter(|number| is_mappable(*number)).collect();
    assert_eq!(copies.keys().copied().collect::<Vec<_>>(), mappable);
    if source == "own" {
        assert_eq!(firsts, mappable, "the order of arrival");
        // One message is under way at a time.
        let twice = copies.values().map(|copies| copies - 1).sum::<usize>();
        assert!(twice <= kills, "{twice} copies too many, and {kills} kills");
    }
    let letters = drain(&amqp, &format!("t.dead-letter.source-{source}")).await;
    let buried: BTreeSet<usize> = letters.iter().map(|letter| id(letter).parse().unwrap()).collect();
    assert_eq!(buried, (0..MESSAGES).filter(|number| !is_mappable(*number)).collect());
    assert!(
        letters.iter().all(|letter| header(letter, "reason").unwrap().starts_with("unmappable: the body is not JSON"))
    );
}
