//! What must hold of every compiled topology, and a walk through it by RabbitMQ's own rules.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::domain::{delay::Route, names};

fn topology(text: &str) -> Topology {
    crate::file::read(text, "topology.yaml").expect("a valid file")
}

/// Any file, within reason.
fn files() -> impl Strategy<Value = String> {
    let ttl = || prop_oneof![Just("250ms"), Just("1s"), Just("90s"), Just("5m"), Just("1h"), Just("3650d")];
    let some = || proptest::collection::btree_set(ttl(), 1..4);
    let ladder = prop_oneof![Just("250ms, horizon: 365d"), Just("1s, horizon: 1s"), Just("1ms, horizon: 3650d")];
    let window = prop_oneof![Just(""), Just("coalesce: { immediate: latest, window: 2s },")];
    let kind = prop_oneof![Just("quorum"), Just("classic")];
    (some(), some(), ladder, window, 1..4_usize, kind).prop_map(|(hatcheries, delays, ladder, window, types, kind)| {
        let list = |ttls: &BTreeSet<&str>| ttls.iter().copied().collect::<Vec<_>>().join(", ");
        let (hatcheries, delays) = (list(&hatcheries), list(&delays));
        let one = |n: usize| format!("  type-{n}: {{ {window} retry: {{ delays: [{delays}] }} }}\n");
        let types = (0..types).map(one).collect::<Vec<_>>().concat();
        let top = format!("version: 1\nname: t\nqueue-type: {kind}\nhatcheries: [{hatcheries}]");
        format!("{top}\nladder: {{ resolution: {ladder} }}\ntypes:\n{types}")
    })
}

fn text<'a>(arguments: &'a BTreeMap<String, Argument>, name: &str) -> Option<&'a str> {
    match arguments.get(name)? {
        Argument::Text(text) => Some(text),
        Argument::Number(_) => None,
    }
}

fn ttl(queue: &Queue) -> Option<u64> {
    match queue.arguments.get("x-message-ttl")? {
        Argument::Number(millis) => u64::try_from(*millis).ok(),
        Argument::Text(_) => None,
    }
}

/// A topic pattern's match: `*` is one word, `#` any number.
fn matches(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern.split_first(), key.split_first()) {
        (None, None) => true,
        (Some((&"#", rest)), _) => {
            matches(rest, key) || key.split_first().is_some_and(|(_, key)| matches(pattern, key))
        }
        (Some((word, pattern)), Some((first, key))) => (*word == "*" || word == first) && matches(pattern, key),
        _ => false,
    }
}

/// The queues that a message reaches from an exchange; by way of the alternate exchange where there are none.
fn routed(desired: &Desired, exchange: &str, key: &str) -> BTreeSet<String> {
    let words: Vec<&str> = key.split('.').collect();
    let bound = desired.bindings.iter().filter(|binding| binding.source == exchange);
    let matching = bound.filter(|binding| matches(&binding.key.split('.').collect::<Vec<_>>(), &words));
    let mut queues = BTreeSet::new();
    for binding in matching {
        match &binding.target {
            Target::Queue(queue) => drop(queues.insert(queue.clone())),
            Target::Exchange(next) => queues.extend(routed(desired, next, key)),
        }
    }
    let this = desired.exchanges.iter().find(|other| other.name == exchange).expect("the exchange is declared");
    match text(&this.arguments, "alternate-exchange") {
        Some(alternate) if queues.is_empty() => routed(desired, alternate, key),
        _ => queues,
    }
}

/// Follows a message until it rests in a queue without a TTL: where, and after how long. It never is in two at once, and
/// never twice in one.
fn follow(desired: &Desired, exchange: &str, key: &str) -> (String, u64) {
    let (mut exchange, mut waited, mut seen) = (exchange.to_owned(), 0, BTreeSet::new());
    loop {
        let queues = routed(desired, &exchange, key);
        assert_eq!(queues.len(), 1, "{key} from {exchange}: {queues:?}");
        let name = queues.into_iter().next().expect("there is one");
        assert!(seen.insert(name.clone()), "{key} comes to {name} again: RabbitMQ would drop it");
        let queue = desired.queues.iter().find(|queue| queue.name == name).expect("the queue is declared");
        let Some(ttl) = ttl(queue) else { return (name, waited) };
        waited += ttl;
        exchange = text(&queue.arguments, "x-dead-letter-exchange").expect("a timer leads somewhere").to_owned();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_valid_file_is_refused(file in files()) {
        prop_assert_eq!(compile(&topology(&file)).err(), None);
    }

    #[test]
    fn every_key_ends_in_the_right_queue_and_at_the_right_time(file in files(), millis in 0..400_000_000_000_u64) {
        let topology = topology(&file);
        let desired = compile(&topology).expect("safe");
        let timers: Vec<Ttl> = hatcheries(&topology).into_iter().collect();
        for (event_type, spec) in &topology.types {
            let processing = format!("t.processor.{event_type}");
            let delay = std::time::Duration::from_millis(millis);
            let route = Route::after(delay, &timers, topology.ladder);
            let (queue, waited) = follow(&desired, "t.scheduler", &route.key(event_type));
            prop_assert_eq!(&queue, &processing);
            let step = topology.ladder.resolution().as_millis();
            let round = (1_u64 << topology.ladder.levels()) - 1;
            let expected = match route {
                Route::Ladder(..) => millis.div_ceil(step).min(round) * step,
                Route::Now | Route::Hatchery(_) => millis,
            };
            prop_assert_eq!(waited, expected);
            for ttl in timers.iter().chain(&topology.hatcheries) {
                let key = Route::Hatchery(*ttl).key(event_type);
                prop_assert_eq!(follow(&desired, "t.scheduler", &key), (processing.clone(), ttl.as_millis()));
            }
            for ttl in &spec.retry.delays {
                let key = names::retry_key(event_type, *ttl);
                prop_assert_eq!(follow(&desired, "t.retry", &key), (processing.clone(), ttl.as_millis()));
            }
            let buried = follow(&desired, "t.dead-letter", &names::dead_letter_key(event_type));
            prop_assert_eq!(buried, (format!("t.dead-letter.{event_type}"), 0));
        }
        for lost in ["nobody.now", "type-0.7m", "type-0", "type-0.250ms-27.0", "nobody.1s"] {
            prop_assert_eq!(follow(&desired, "t.scheduler", lost).0, "t.unrouted");
        }
    }
}
