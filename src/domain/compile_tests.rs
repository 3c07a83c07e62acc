//! Tests the properties of every compiled topology on a simulator of RabbitMQ's rules.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::domain::{delay::Route, names};

#[path = "../../tests/support/simulator/mod.rs"]
#[allow(dead_code, reason = "the integration tests use the rest")]
mod simulator;

use simulator::{
    Simulator, Step,
    generate::{Case, Pace, cases, files, read},
    matches,
};

/// Publishes one message and returns the queue where it ends, and the milliseconds that it waited.
fn follow(broker: &mut Simulator, exchange: &str, key: &str) -> (String, u64) {
    broker.clear();
    broker.step(&Step::Publish(exchange.to_owned(), key.to_owned(), 1));
    let waited = broker.settle();
    assert_eq!((broker.lost(), broker.parked()), (&[][..], 0), "{key} from {exchange}");
    let contents: Vec<_> = broker.contents().into_iter().collect();
    let [(queue, messages)] = &contents[..] else { panic!("{key} from {exchange} is in {contents:?}") };
    assert_eq!(messages, &[(1, key.to_owned())], "once, with its own key");
    (queue.clone(), waited)
}

#[test]
fn the_simulator_follows_rabbitmqs_rules() {
    for rule in simulator::rules::rules() {
        let mut broker = Simulator::new(&rule.desired);
        rule.steps.iter().for_each(|step| broker.step(step));
        let ready: Vec<(String, Vec<u32>)> = broker
            .contents()
            .into_iter()
            .map(|(queue, messages)| (queue, messages.into_iter().map(|(id, _)| id).collect()))
            .collect();
        let ends: Vec<(String, Vec<u32>)> =
            rule.ends.iter().map(|(queue, ids)| ((*queue).to_owned(), ids.to_vec())).collect();
        assert_eq!(ready, ends, "{}", rule.name);
    }
}

#[rstest::rstest]
#[case("a.b", "a.b", true)]
#[case("a.b", "a.b.c", false)]
#[case("*.b", "a.b", true)]
#[case("*", "", false)]
#[case("*", "a.b", false)]
#[case("*.*", ".", true)]
#[case("#", "", true)]
#[case("#", "a.b.c", true)]
#[case("a.#", "a", true)]
#[case("#.b", "a.a.b", true)]
#[case("#.b.#", "a.c", false)]
#[case("a.#.*", "a", false)]
#[case("", "", true)]
#[case("", "a", false)]
fn a_pattern_matches_words(#[case] pattern: &str, #[case] key: &str, #[case] expected: bool) {
    assert_eq!(matches(pattern, key), expected);
}

#[test]
fn a_queue_that_keeps_order_has_one_consumer_at_a_time_and_no_delivery_limit() {
    let ordered = "a: {}, a-b: { on-failure: block }, b: { on-failure: block, register: off }";
    let text = format!("version: 1\nname: t\ntypes: {{ {ordered}, c-b: {{ register: off }} }}");
    let desired = compile(&read(&text)).expect("safe");
    let queue = |name: &str| desired.queues.iter().find(|queue| queue.name == name).expect("the queue is there");
    let pattern = fancy_regex::Regex::new(&desired.policies[0].pattern).expect("a pattern");
    let is_limited = |name: &str| pattern.is_match(name).expect("it matches or not");
    for (name, keeps_order) in [("a", false), ("a-b", true), ("b", true), ("c-b", false)] {
        let name = format!("t.processor.{name}");
        let arguments = &queue(&name).arguments;
        assert_eq!(arguments.contains_key(SINGLE), keeps_order, "{name}");
        assert_eq!(arguments.contains_key(LIMIT), keeps_order, "{name}");
        assert_eq!(is_limited(&name), !keeps_order, "{name}");
    }
    // A type that keeps order has no quarantine queue.
    let quarantines: Vec<&str> =
        desired.queues.iter().map(|queue| queue.name.as_str()).filter(|name| name.starts_with("t.aside.")).collect();
    assert_eq!(quarantines, ["t.aside.c-b"]);
    assert!(is_limited("t.aside.c-b"));
    assert!(
        !desired
            .queues
            .iter()
            .any(|queue| queue.name.starts_with("t.retry.a-b") || queue.name.starts_with("t.retry.b"))
    );
}

#[test]
fn wedged_messages_stay_parked_as_long_as_nothing_is_bound() {
    let rule = simulator::rules::rules().into_iter().find(|rule| rule.name.contains("32")).expect("the rule");
    let mut broker = Simulator::new(&rule.desired);
    rule.steps.iter().for_each(|step| broker.step(step));
    assert_eq!((broker.parked(), broker.lost()), (33, &[][..]));
    broker.again();
    assert_eq!(broker.parked(), 33, "as long as nothing is bound");
    assert_eq!(broker.refused, Vec::<u32>::new());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_valid_file_is_refused(file in files(Pace::Any)) {
        prop_assert_eq!(compile(&read(&file)).err(), None);
    }

    #[test]
    fn every_key_ends_in_the_right_queue_and_at_the_right_time(
        file in files(Pace::Any),
        millis in 0..400_000_000_000_u64,
    ) {
        let topology = read(&file);
        let desired = compile(&topology).expect("safe");
        let broker = &mut Simulator::new(&desired);
        let timers: Vec<Ttl> = hatcheries(&topology).into_iter().collect();
        for (event_type, spec) in &topology.types {
            let processing = format!("t.processor.{event_type}");
            let delay = Duration::from_millis(millis);
            let route = Route::after(delay, &timers, topology.ladder);
            let (queue, waited) = follow(broker, "t.scheduler", &route.key(event_type));
            prop_assert_eq!(&queue, &processing);
            let step = topology.ladder.resolution().as_millis();
            let round = (1_u64 << topology.ladder.levels()) - 1;
            let expected = match route {
                Route::Ladder(..) => millis.div_ceil(step).min(round) * step,
                Route::Now | Route::Hatchery(_) => millis,
            };
            prop_assert_eq!(waited, expected);
            for ttl in &timers {
                let key = Route::Hatchery(*ttl).key(event_type);
                prop_assert_eq!(follow(broker, "t.scheduler", &key), (processing.clone(), ttl.as_millis()));
            }
            for ttl in spec.retry_queues() {
                let key = names::retry_key(event_type, ttl);
                prop_assert_eq!(follow(broker, "t.retry", &key), (processing.clone(), ttl.as_millis()));
            }
            let buried = follow(broker, "t.dead-letter", &names::dead_letter_key(event_type));
            prop_assert_eq!(buried, (format!("t.dead-letter.{event_type}"), 0));
            if spec.has_quarantine() {
                let quarantine = follow(broker, "t.aside", &names::quarantine_key(event_type));
                prop_assert_eq!(quarantine, (format!("t.aside.{event_type}"), 0));
            }
        }
        for lost in ["nobody.now", "type-0.7m", "type-0", "type-0.250ms-27.0", "nobody.1s"] {
            prop_assert_eq!(follow(broker, "t.scheduler", lost).0, "t.unrouted");
        }
    }

    /// After any sequence of publishes and of steps of workers and people, each message is in exactly one queue. In the
    /// end each is in a queue that workers or people read.
    #[test]
    fn no_message_is_lost_and_none_is_duplicated(case in cases(Pace::Any)) {
        let Case { desired, steps, .. } = case;
        let mut broker = Simulator::new(&desired);
        let mut published = 0;
        for step in &steps {
            published += usize::from(matches!(step, Step::Publish(..)));
            broker.step(step);
            let mut ids: Vec<u32> = broker.contents().into_values().flatten().map(|(id, _)| id).collect();
            ids.sort_unstable();
            prop_assert_eq!(broker.lost(), &[][..]);
            prop_assert_eq!((broker.parked(), broker.refused.len(), ids.len()), (0, 0, published));
            ids.dedup();
            prop_assert_eq!(ids.len(), published, "once each");
        }
        broker.settle();
        for queue in broker.contents().keys() {
            let resting = ["t.processor.", "t.aside.", "t.dead-letter.", "t.unrouted"];
            prop_assert!(resting.iter().any(|start| queue.starts_with(start)), "{queue}");
        }
    }
}

#[test]
fn quorum_queues_have_the_balanced_leader_locator_and_classic_queues_have_none() {
    let compiled = |queue_type: &str| {
        let text = format!("version: 1\nname: t\nqueue-type: {queue_type}\ntypes: {{ mail: {{}} }}\n");
        compile(&crate::file::read(&text, "topology.yaml").expect("a valid file")).expect("safe").queues
    };
    let locator = |queue: &Queue| queue.arguments.get(LOCATOR).and_then(Argument::as_text).map(str::to_owned);
    let mut quorum = compiled("quorum").into_iter().filter(|queue| !queue.is_stream());
    assert!(quorum.all(|queue| locator(&queue).as_deref() == Some("balanced")));
    // RabbitMQ 3.10 would refuse a classic queue with this argument.
    assert!(compiled("classic").iter().all(|queue| locator(queue).is_none()));
}

#[rstest::rstest]
fn the_switches_have_a_stream_without_retention(#[values("quorum", "classic")] kind: &str) {
    let text = format!("version: 1\nname: t\nqueue-type: {kind}\ntypes: {{ mail: {{}} }}\n");
    let desired = compile(&read(&text)).expect("safe");
    let stream = desired.queues.iter().find(|queue| queue.name == "t.control").expect("the stream");
    let arguments = [(OWNER, "t"), ("x-queue-type", "stream")];
    let arguments = arguments.map(|(name, value)| (name.to_owned(), Argument::Text(value.to_owned())));
    assert_eq!(stream.arguments, BTreeMap::from(arguments));
    assert!(desired.policies.iter().all(|policy| !policy.pattern.contains("control")));
    assert_eq!(follow(&mut Simulator::new(&desired), "t.control", "anything").0, "t.control");
}

#[rstest::rstest]
#[case::default("", 2, &["604800s", "1073741824", "104857600"])]
#[case::of_a_size("life-cycle: { events: all, keep: 1500ms, max-size: 50MiB }", 2, &["2s", "52428800", "5242880"])]
#[case::off("life-cycle: off", 1, &[])]
fn the_life_of_events_has_a_stream_with_retention(
    #[case] key: &str,
    #[case] streams: usize,
    #[case] expected: &[&str],
    #[values("quorum", "classic")] kind: &str,
) {
    let text = format!("version: 1\nname: t\nqueue-type: {kind}\ntypes: {{ mail: {{}} }}\n{key}\n");
    let desired = compile(&read(&text)).expect("safe");
    let all: Vec<&Queue> = desired.queues.iter().filter(|queue| queue.is_stream()).collect();
    assert_eq!(all.len(), streams);
    let policy = desired.policies.iter().find(|policy| policy.name == "t.life-cycle");
    let value = |argument: &Argument| match argument {
        Argument::Number(number) => number.to_string(),
        other => other.as_text().unwrap_or_default().to_owned(),
    };
    let values: Vec<String> = policy.iter().flat_map(|policy| policy.definition.values().map(value)).collect();
    assert_eq!(values, expected);
    if streams == 2 {
        assert_eq!(follow(&mut Simulator::new(&desired), "t.life-cycle", "mail.failed").0, "t.life-cycle");
    }
}

#[rstest::rstest]
#[case("quorum", true)]
#[case("classic", false)]
fn a_declared_source_has_a_queue_in_order_and_each_source_has_dead_letters(#[case] kind: &str, #[case] limited: bool) {
    let text = format!(
        "version: 1\nname: t\nqueue-type: {kind}\ntypes: {{ mail: {{}} }}\nsources:\n  \
         hr: {{ declare: on, events: [ {{ type: mail }} ] }}\n  other: {{ queue: q, events: [ {{ type: mail }} ] }}\n"
    );
    let desired = compile(&crate::file::read(&text, "topology.yaml").expect("a valid file")).expect("safe");
    let names: Vec<&str> = desired.queues.iter().map(|queue| queue.name.as_str()).collect();
    assert!(names.contains(&"t.source.hr") && !names.contains(&"t.source.other") && !names.contains(&"q"), "{names:?}");
    let queue = |name: &str| desired.queues.iter().find(|queue| queue.name == name).expect("a queue");
    let declared = queue("t.source.hr");
    assert_eq!(declared.arguments.get(SINGLE), Some(&Argument::Flag(true)));
    assert_eq!(declared.arguments.contains_key(LIMIT), limited);
    assert!(!declared.arguments.contains_key("x-dead-letter-exchange"));
    assert!(desired.bindings.iter().all(|binding| binding.target.name() != "t.source.hr"));
    for source in ["hr", "other"] {
        let letters = format!("t.dead-letter.source-{source}");
        assert_eq!(queue(&letters).arguments, queue("t.dead-letter.mail").arguments);
        let mut broker = Simulator::new(&desired);
        assert_eq!(follow(&mut broker, "t.dead-letter", &format!("source-{source}.dead-letter")), (letters, 0));
    }
}

#[test]
fn a_renamed_topology_keeps_the_dead_letters_of_its_sources_and_leaves_their_declared_queues() {
    let text = "version: 1\nname: new\nrenamed-from: old\ntypes: { mail: {} }\nsources: { hr: { declare: on, events: [ { type: mail } ] } }\n";
    let desired = compile(&crate::file::read(text, "topology.yaml").expect("a valid file")).expect("safe");
    let renamed: Vec<&str> = desired.renames.iter().map(|rename| rename.from.as_str()).collect();
    assert!(renamed.contains(&"old.dead-letter.source-hr") && !renamed.contains(&"old.source.hr"), "{renamed:?}");
}
