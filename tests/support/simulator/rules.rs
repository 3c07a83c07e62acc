//! RabbitMQ's rules one by one: small topologies, unsafe ones too, what is done to them, and where everything ends.

use std::collections::{BTreeMap, BTreeSet};

use hatchery::internals::{
    compile::{Argument, Binding, Desired, Exchange, OWNER, Policy, Queue, Target},
    delay::Ladder,
};

use super::Step;

/// One rule.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) desired: Desired,
    pub(crate) steps: Vec<Step>,
    /// The messages that are ready at the end.
    pub(crate) ends: &'static [(&'static str, &'static [u32])],
}

type Arguments = &'static [(&'static str, Value)];

#[derive(Clone, Copy)]
enum Value {
    Text(&'static str),
    Number(i64),
}
use Value::{Number, Text};

const TTL: (&str, Value) = ("x-message-ttl", Number(20));
const DLX: (&str, Value) = ("x-dead-letter-exchange", Text("dlx"));
const QUORUM: (&str, Value) = ("x-queue-type", Text("quorum"));
const CLASSIC: (&str, Value) = ("x-queue-type", Text("classic"));
const AT_LEAST_ONCE: (&str, Value) = ("x-dead-letter-strategy", Text("at-least-once"));
const REJECTING: (&str, Value) = ("x-overflow", Text("reject-publish"));
const ONE: (&str, Value) = ("x-max-length", Number(1));

/// Everything has the owner that the tests' topologies have.
fn arguments(list: Arguments) -> BTreeMap<String, Argument> {
    let value = |value: &Value| match value {
        Text(text) => Argument::Text((*text).to_owned()),
        Number(number) => Argument::Number(*number),
    };
    let owner = (OWNER.to_owned(), Argument::Text("t".to_owned()));
    list.iter().map(|(name, it)| ((*name).to_owned(), value(it))).chain([owner]).collect()
}

/// Exchanges with their alternates, queues with their arguments, bindings (to the exchange of that name if there is one).
fn topology(
    exchanges: &[(&'static str, Arguments)],
    queues: &[(&'static str, Arguments)],
    bindings: &[(&str, &str, &str)],
) -> Desired {
    let target = |name: &str| {
        let exchange = exchanges.iter().any(|(exchange, _)| *exchange == name);
        if exchange { Target::Exchange(name.to_owned()) } else { Target::Queue(name.to_owned()) }
    };
    Desired {
        exchanges: exchanges
            .iter()
            .map(|(name, list)| Exchange { name: (*name).to_owned(), arguments: arguments(list) })
            .collect(),
        queues: queues
            .iter()
            .map(|(name, list)| Queue { name: (*name).to_owned(), arguments: arguments(list) })
            .collect(),
        bindings: bindings
            .iter()
            .map(|(source, to, key)| Binding {
                source: (*source).to_owned(),
                target: target(to),
                key: (*key).to_owned(),
            })
            .collect(),
        ..nothing()
    }
}

/// A topology without any object.
pub(crate) fn nothing() -> Desired {
    let ttl = |text: &str| text.parse().expect("a TTL");
    Desired {
        owner: "t".to_owned(),
        exchanges: Vec::new(),
        queues: Vec::new(),
        bindings: Vec::new(),
        policies: Vec::new(),
        ladder: Ladder::new(ttl("1s"), ttl("1s")).expect("a ladder"),
        ack_timeout: std::time::Duration::from_mins(30),
        former_owners: Vec::new(),
        adopted: BTreeSet::new(),
        renames: Vec::new(),
    }
}

/// A limit of returns, by a policy.
fn limited(mut desired: Desired, queue: &str, limit: i64) -> Desired {
    desired.policies.push(Policy {
        name: "limit".to_owned(),
        pattern: format!("^{queue}$"),
        definition: BTreeMap::from([("delivery-limit".to_owned(), Argument::Number(limit))]),
    });
    desired
}

fn publish(exchange: &str, key: &str, id: u32) -> Step {
    Step::Publish(exchange.to_owned(), key.to_owned(), id)
}

fn reject(queue: &str) -> Step {
    Step::Reject(queue.to_owned())
}

/// All of them.
pub(crate) fn rules() -> Vec<Rule> {
    let mut rules = routing();
    rules.extend(dying());
    rules.extend(circles());
    rules.extend(overflow());
    rules.extend(returns());
    rules
}

fn routing() -> Vec<Rule> {
    vec![
        Rule {
            name: "a queue gets a message once, however many bindings lead there",
            desired: topology(
                &[("x", &[]), ("y", &[])],
                &[("q", &[QUORUM]), ("r", &[CLASSIC])],
                &[("x", "q", "#"), ("x", "q", "a.*"), ("x", "y", "*.b"), ("y", "q", "a.b"), ("y", "r", "a.b")],
            ),
            steps: vec![publish("x", "a.b", 1), publish("x", "c", 2)],
            ends: &[("q", &[1, 2]), ("r", &[1])],
        },
        Rule {
            name: "an alternate exchange gets what has no binding, and one that leads nowhere is a binding",
            desired: topology(
                &[("x", &[("alternate-exchange", Text("other"))]), ("y", &[]), ("other", &[])],
                &[("q", &[QUORUM])],
                &[("x", "y", "a.#"), ("other", "q", "#")],
            ),
            steps: vec![publish("x", "a.b", 1), publish("x", "b", 2)],
            ends: &[("q", &[2])],
        },
        Rule {
            name: "an alternate exchange may have another, and both an empty key",
            desired: topology(
                &[("x", &[("alternate-exchange", Text("y"))]), ("y", &[("alternate-exchange", Text("z"))]), ("z", &[])],
                &[("q", &[QUORUM])],
                &[("x", "q", "*"), ("y", "q", "*.*"), ("z", "q", "#")],
            ),
            steps: vec![publish("x", "", 1), publish("x", "a.b", 2), publish("x", "a.b.c", 3)],
            ends: &[("q", &[1, 2, 3])],
        },
        Rule {
            name: "exchanges in a circle route once",
            desired: topology(
                &[("x", &[]), ("y", &[])],
                &[("q", &[QUORUM])],
                &[("x", "y", "#"), ("y", "x", "#"), ("y", "q", "#")],
            ),
            steps: vec![publish("x", "a", 1)],
            ends: &[("q", &[1])],
        },
        Rule {
            name: "the exchange without a name knows queues alone",
            desired: topology(&[("x", &[])], &[("q", &[QUORUM])], &[("x", "q", "#")]),
            steps: vec![publish("", "q", 1), publish("", "x", 2)],
            ends: &[("q", &[1])],
        },
    ]
}

fn dying() -> Vec<Rule> {
    let wedged = |unroutable: u32| {
        let steps = (0..unroutable).map(|n| publish("", "q", n + 1));
        steps.chain([Step::Wait, publish("x", "a", 100), Step::Wait]).collect::<Vec<_>>()
    };
    let half_bound = || {
        topology(
            &[("x", &[]), ("dlx", &[])],
            &[("q", &[QUORUM, TTL, DLX, AT_LEAST_ONCE, REJECTING]), ("r", &[QUORUM])],
            &[("x", "q", "#"), ("dlx", "r", "a")],
        )
    };
    vec![
        Rule {
            name: "what expires goes wherever its exchange leads, with its own key",
            desired: topology(
                &[("x", &[]), ("dlx", &[])],
                &[("q", &[QUORUM, TTL, DLX, AT_LEAST_ONCE, REJECTING]), ("r", &[QUORUM]), ("s", &[CLASSIC])],
                &[("x", "q", "#"), ("dlx", "r", "a.#"), ("dlx", "s", "#.b")],
            ),
            steps: vec![publish("x", "a.b", 1), publish("x", "a", 2), Step::Wait],
            ends: &[("r", &[1, 2]), ("s", &[1])],
        },
        Rule {
            name: "without a dead-letter exchange it is gone",
            desired: topology(&[("x", &[])], &[("q", &[QUORUM, TTL])], &[("x", "q", "#")]),
            steps: vec![publish("x", "a", 1), Step::Wait],
            ends: &[],
        },
        Rule {
            name: "at most once, what has no binding is gone",
            desired: topology(
                &[("x", &[]), ("dlx", &[])],
                &[("q", &[QUORUM, TTL, DLX]), ("c", &[CLASSIC, TTL, DLX]), ("r", &[QUORUM])],
                &[("x", "q", "#"), ("x", "c", "#"), ("dlx", "r", "a")],
            ),
            steps: vec![publish("x", "a", 1), publish("x", "b", 2), Step::Wait],
            ends: &[("r", &[1, 1])],
        },
        Rule {
            name: "at least once, 31 without a binding wait, and others go past them",
            desired: half_bound(),
            steps: wedged(31),
            ends: &[("r", &[100])],
        },
        Rule {
            name: "at least once, 32 without a binding wedge the queue",
            desired: half_bound(),
            steps: wedged(32),
            ends: &[],
        },
    ]
}

fn circles() -> Vec<Rule> {
    let chain = topology(
        &[("x", &[]), ("dlx", &[]), ("back", &[])],
        &[
            ("q", &[QUORUM, TTL, DLX, AT_LEAST_ONCE, REJECTING]),
            ("r", &[QUORUM, TTL, ("x-dead-letter-exchange", Text("back"))]),
            ("s", &[QUORUM]),
        ],
        &[("x", "q", "#"), ("dlx", "r", "#"), ("back", "s", "#")],
    );
    let there_and_back = |list: Arguments| {
        topology(
            &[("x", &[]), ("dlx", &[]), ("back", &[])],
            &[("q", list), ("r", &[QUORUM, TTL, ("x-dead-letter-exchange", Text("back"))])],
            &[("x", "q", "#"), ("dlx", "r", "#"), ("back", "q", "#")],
        )
    };
    vec![
        Rule {
            name: "at most once, what comes back to a queue by itself is gone",
            desired: topology(&[("dlx", &[])], &[("q", &[CLASSIC, TTL, DLX])], &[("dlx", "q", "#")]),
            steps: vec![publish("dlx", "a", 1), Step::Wait],
            ends: &[],
        },
        Rule {
            name: "at least once it stays between the queues for ever",
            desired: topology(
                &[("dlx", &[])],
                &[("q", &[QUORUM, TTL, DLX, AT_LEAST_ONCE, REJECTING])],
                &[("dlx", "q", "#")],
            ),
            steps: vec![publish("dlx", "a", 1), Step::Wait],
            ends: &[],
        },
        Rule {
            name: "the circle may have two queues",
            desired: there_and_back(&[QUORUM, TTL, DLX]),
            steps: vec![publish("x", "a", 1), Step::Wait],
            ends: &[],
        },
        Rule {
            name: "of two targets one may be a circle",
            desired: topology(
                &[("dlx", &[])],
                &[("q", &[CLASSIC, TTL, DLX]), ("r", &[CLASSIC])],
                &[("dlx", "q", "#"), ("dlx", "r", "a")],
            ),
            steps: vec![publish("", "q", 1), publish("dlx", "a", 2), Step::Wait],
            ends: &[("r", &[2, 2])],
        },
        Rule {
            name: "a rejection on the way breaks the circle, every time",
            desired: there_and_back(&[QUORUM, DLX]),
            steps: vec![
                publish("x", "a", 1),
                reject("q"),
                Step::Wait,
                reject("q"),
                Step::Wait,
                reject("q"),
                Step::Wait,
            ],
            ends: &[("q", &[1])],
        },
        Rule {
            name: "what somebody publishes again with its headers has been there before",
            desired: chain,
            steps: vec![publish("x", "a", 1), Step::Wait, Step::Move("s".to_owned(), "x".to_owned()), Step::Wait],
            ends: &[],
        },
        Rule {
            name: "a limit of returns is no rejection",
            desired: limited(there_and_back(&[QUORUM, DLX]), "q", 1),
            steps: vec![publish("x", "a", 1), Step::Return("q".to_owned(), 2), Step::Wait],
            ends: &[],
        },
    ]
}

fn overflow() -> Vec<Rule> {
    vec![
        Rule {
            name: "a full queue lets its oldest go, to the dead-letter exchange if there is one",
            desired: topology(
                &[("x", &[]), ("dlx", &[])],
                &[("q", &[QUORUM, ONE, DLX]), ("c", &[CLASSIC, ONE]), ("r", &[QUORUM])],
                &[("x", "q", "#"), ("x", "c", "#"), ("dlx", "r", "#")],
            ),
            steps: vec![publish("x", "a", 1), publish("x", "a", 2), publish("x", "a", 3)],
            ends: &[("c", &[3]), ("q", &[3]), ("r", &[1, 2])],
        },
        Rule {
            name: "or refuses the publisher",
            desired: topology(&[("x", &[])], &[("c", &[CLASSIC, ONE, REJECTING])], &[("x", "c", "#")]),
            steps: vec![publish("x", "a", 1), publish("x", "a", 2)],
            ends: &[("c", &[1])],
        },
        Rule {
            name: "what is dead-lettered at most once into a queue that refuses is gone",
            desired: topology(
                &[("x", &[]), ("dlx", &[])],
                &[("q", &[CLASSIC, TTL, DLX]), ("c", &[CLASSIC, ONE, REJECTING])],
                &[("x", "q", "#"), ("dlx", "c", "#")],
            ),
            steps: vec![publish("x", "a", 1), Step::Wait, publish("x", "a", 2), Step::Wait],
            ends: &[("c", &[1])],
        },
    ]
}

fn returns() -> Vec<Rule> {
    let both = |limit| {
        let desired = topology(
            &[("x", &[]), ("dlx", &[])],
            &[("q", &[QUORUM, DLX, ("x-delivery-limit", Number(3))]), ("r", &[QUORUM])],
            &[("x", "q", "#"), ("dlx", "r", "#")],
        );
        limited(desired, "q", limit)
    };
    let returned = |times| vec![publish("x", "a", 1), Step::Return("q".to_owned(), times)];
    vec![
        Rule { name: "as many returns as the limit says", desired: both(5), steps: returned(3), ends: &[("q", &[1])] },
        Rule { name: "and not one more", desired: both(5), steps: returned(4), ends: &[("r", &[1])] },
        Rule {
            name: "of argument and policy the smaller one",
            desired: both(1),
            steps: returned(2),
            ends: &[("r", &[1])],
        },
        Rule {
            name: "without a dead-letter exchange it is gone then",
            desired: topology(&[("x", &[])], &[("q", &[QUORUM, ("x-delivery-limit", Number(2))])], &[("x", "q", "#")]),
            steps: returned(3),
            ends: &[],
        },
        Rule {
            name: "and not if the limit is large enough",
            desired: topology(
                &[("x", &[])],
                &[("q", &[QUORUM, ("x-delivery-limit", Number(1_000_000_000))])],
                &[("x", "q", "#")],
            ),
            steps: returned(30),
            ends: &[("q", &[1])],
        },
        Rule {
            name: "a classic queue counts no returns",
            desired: topology(&[("x", &[])], &[("q", &[CLASSIC])], &[("x", "q", "#")]),
            steps: returned(30),
            ends: &[("q", &[1])],
        },
        Rule {
            name: "what somebody moves begins anew in its queue",
            desired: both(3),
            steps: vec![
                publish("x", "a", 1),
                Step::Return("q".to_owned(), 4),
                Step::Move("r".to_owned(), "x".to_owned()),
                Step::Return("q".to_owned(), 3),
            ],
            ends: &[("q", &[1])],
        },
    ]
}
