//! Random topologies, and random things that happen to them.

use std::{collections::BTreeSet, fmt};

use hatchery::{
    Topology,
    internals::{
        compile::{Desired, compile, hatcheries},
        delay::Route,
        names::Names,
        spec::TypeSpec,
    },
};
use proptest::{prelude::*, sample::select};

use super::Step;

/// How long its timers are.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// Any time that RabbitMQ takes.
    Any,
    /// Over in a moment, or never in a test.
    Quick,
}

/// A topology and what happens to it.
#[derive(Clone)]
pub(crate) struct Case {
    /// The file.
    pub(crate) text: String,
    pub(crate) desired: Desired,
    pub(crate) steps: Vec<Step>,
}

/// Prints the parts that explain a failure.
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step:?}"))
    }
}

/// Any file, within reason.
pub(crate) fn files(pace: Pace) -> impl Strategy<Value = String> {
    let (ttls, ladders): (&[&str], &[&str]) = match pace {
        Pace::Any => (
            &["1ms", "250ms", "1s", "90s", "5m", "1h", "3650d"],
            &["250ms, horizon: 365d", "1s, horizon: 1s", "1ms, horizon: 3650d", "7m, horizon: 100h"],
        ),
        Pace::Quick => {
            (&["1ms", "20ms", "50ms", "1h"], &["10ms, horizon: 1s", "20ms, horizon: 20ms", "30ms, horizon: 400ms"])
        }
    };
    // Words that something else is called as well.
    let words =
        ["mail", "Mail", "hr-import", "t", "now", "retry", "processor", "dead-letter", "unrouted", "1h", "0", "_"];
    let some = || proptest::collection::btree_set(select(ttls.to_vec()), 1..4);
    // From a queue with a single active consumer nobody takes a message by hand, as the test on a real broker does.
    let (window, former, strategy) = match pace {
        Pace::Any => ("2s", vec!["", "renamed-from: u\n", "renamed-from: [u, v]\n"], vec!["drop", "in-place", "block"]),
        Pace::Quick => ("30ms", vec![""], vec!["drop", "in-place"]),
    };
    let strategy = select(strategy).prop_map(|strategy| format!("on-failure: {strategy},"));
    let register = select(vec!["", "register: off,"]).prop_map(str::to_owned);
    // What the register does and what follows a failure, each for itself and both together.
    let strategy = (register.clone(), strategy).prop_map(|(register, strategy)| register + &strategy);
    let window = Just(format!("coalesce: {{ immediate: latest, window: {window} }},"));
    let window = prop_oneof![2 => register, 2 => window, 2 => strategy];
    let types = proptest::collection::btree_set(select(words.to_vec()), 1..4);
    let kind = select(vec!["quorum", "quorum", "classic"]);
    (some(), some(), select(ladders.to_vec()), window, types, (kind, select(former))).prop_map(
        |(hatcheries, delays, ladder, window, types, (kind, former))| {
            let list = |ttls: &BTreeSet<&str>| ttls.iter().copied().collect::<Vec<_>>().join(", ");
            let (hatcheries, delays) = (list(&hatcheries), list(&delays));
            // Where the topology had another name, so had its types.
            let was =
                |name: &str| if former.is_empty() { String::new() } else { format!("renamed-from: \"{name}2\",") };
            let one = |name: &&str| {
                let was = was(name);
                format!("  \"{name}\": {{ {was} {window} }}\n")
            };
            let types: String = types.iter().map(one).collect();
            let top = format!("version: 1\nname: t\n{former}queue-type: {kind}\nhatcheries: [{hatcheries}]\n");
            // A type that drops may not say it itself.
            let defaults = format!("defaults: {{ retry: {{ delays: [{delays}] }} }}\n");
            format!("{top}ladder: {{ resolution: {ladder} }}\n{defaults}types:\n{types}")
        },
    )
}

/// A topology and what happens to it.
pub(crate) fn cases(pace: Pace) -> impl Strategy<Value = Case> {
    files(pace).prop_flat_map(|text| {
        let topology = read(&text);
        let desired = compile(&topology).expect("safe");
        let published = proptest::collection::vec(publication(&topology, &desired), 1..40);
        let later = proptest::collection::vec(by_hand(&topology), 0..4);
        (published, later).prop_map(move |(published, later)| {
            let published =
                published.into_iter().zip(1..).map(|((exchange, key), id)| Step::Publish(exchange, key, id));
            let later = later.into_iter().flat_map(|step| [step, Step::Wait]);
            let steps = published.chain([Step::Wait]).chain(later).collect();
            Case { text: text.clone(), desired: desired.clone(), steps }
        })
    })
}

/// The topology of a file that is valid.
pub(crate) fn read(text: &str) -> Topology {
    hatchery::file::read(text, "topology.yaml").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// An exchange and a key: what hatchery publishes, what an older or a newer one would, and what nobody should.
fn publication(topology: &Topology, desired: &Desired) -> impl Strategy<Value = (String, String)> + use<> {
    let names = Names::new(topology.name.clone());
    // No event comes to a stream.
    let is_passed = |name: &&String| ![names.control(), names.life_cycle()].contains(name);
    let queues: Vec<String> = desired.queues.iter().map(|queue| &queue.name).filter(is_passed).cloned().collect();
    let exchanges = desired.exchanges.iter().map(|exchange| &exchange.name);
    let exchanges: Vec<String> = exchanges.filter(is_passed).cloned().collect();
    let usual =
        select(vec![names.scheduler(), names.scheduler(), names.retry(), names.dead_letter(), names.processor()]);
    let exchange = prop_oneof![4 => usual, 1 => select(exchanges)];
    let by_name = select(queues).prop_map(|queue| (String::new(), queue));
    prop_oneof![9 => (exchange, key(topology)), 1 => by_name]
}

fn key(topology: &Topology) -> impl Strategy<Value = String> + use<> {
    let types: Vec<String> = topology.types.keys().map(ToString::to_string).collect();
    let retries = topology.types.values().flat_map(TypeSpec::retry_queues).map(|ttl| ttl.to_string());
    let timers = hatcheries(topology).into_iter().map(|ttl| ttl.to_string());
    let ladder = topology.ladder;
    let steps = 0..1_u64 << ladder.levels();
    let sample = "x".parse().expect("a word");
    let in_ladder = steps.prop_map(move |steps| Route::Ladder(ladder, steps).key(&sample)[2..].to_owned());
    let broken = (in_ladder.clone(), 0..60_usize).prop_map(|(way, at)| way.chars().take(at).collect::<String>());
    let longer = in_ladder.clone().prop_map(|way| way + ".1");
    let odd = ["", "7m", "250ms-9.0.1", "*", "#", "dead-letter", "now.now", "."].map(str::to_owned);
    let known: Vec<String> = ["now", "aside"].map(str::to_owned).into_iter().chain(timers).chain(retries).collect();
    let way = prop_oneof![6 => select(known), 6 => in_ladder, 1 => broken, 1 => longer, 1 => select(odd.to_vec())];
    let word = prop_oneof![8 => select(types), 1 => select(vec!["nobody".to_owned(), String::new(), "*".to_owned()])];
    prop_oneof![15 => (word, way).prop_map(|(word, way)| format!("{word}.{way}")), 1 => "[a-z.]{0,12}"]
}

/// Generates a step of a worker or a person on a message that has arrived.
fn by_hand(topology: &Topology) -> impl Strategy<Value = Step> + use<> {
    let names = Names::new(topology.name.clone());
    let of_types = |name: &dyn Fn(&hatchery::internals::words::EventType) -> String| -> Vec<String> {
        topology.types.keys().map(name).collect()
    };
    let processing = select(of_types(&|event_type| names.processing(event_type)));
    let letters = of_types(&|event_type| names.dead_letters(event_type));
    let resting = select(letters.into_iter().chain([names.unrouted()]).collect::<Vec<_>>());
    let processor = names.processor();
    prop_oneof![
        processing.clone().prop_map(Step::Reject),
        (processing, 1..4_usize).prop_map(|(queue, times)| Step::Return(queue, times)),
        (resting.clone(), 1..4_usize).prop_map(|(queue, times)| Step::Return(queue, times)),
        resting.prop_map(move |queue| Step::Move(queue, processor.clone())),
    ]
}
