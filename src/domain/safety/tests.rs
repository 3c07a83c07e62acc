//! Tests that a valid file compiles to a safe topology, and that each single change that makes it unsafe is refused.

use rstest::rstest;

use super::*;
use crate::domain::compile::{Binding, Rename, compile};

const QUORUM: &str = "version: 1
name: t
hatcheries: [5m]
ladder: { resolution: 1s, horizon: 3s }
types: { mail: { retry: { delays: [1m] } } }
";

fn desired(queue_type: &str) -> Desired {
    let topology = crate::file::read(&format!("{QUORUM}queue-type: {queue_type}\n"), "topology.yaml");
    compile(&topology.expect("a valid file")).expect("a safe topology")
}

/// Changes the topology and returns the text of each hazard.
fn refused(queue_type: &str, change: impl FnOnce(&mut Desired)) -> Vec<String> {
    let mut desired = desired(queue_type);
    change(&mut desired);
    prove(&desired).map_or_else(|Unsafe(hazards)| hazards.iter().map(ToString::to_string).collect(), |()| Vec::new())
}

fn queue<'a>(desired: &'a mut Desired, name: &str) -> &'a mut Queue {
    desired.queues.iter_mut().find(|queue| queue.name == name).expect("the queue is there")
}

fn exchange<'a>(desired: &'a mut Desired, name: &str) -> &'a mut Exchange {
    desired.exchanges.iter_mut().find(|exchange| exchange.name == name).expect("the exchange is there")
}

fn set(desired: &mut Desired, name: &str, argument: &str, value: impl Into<Argument>) {
    queue(desired, name).arguments.insert(argument.to_owned(), value.into());
}

fn unset(desired: &mut Desired, name: &str, argument: &str) {
    queue(desired, name).arguments.remove(argument).expect("the argument is there");
}

fn bind(desired: &mut Desired, source: &str, target: Target, key: &str) {
    desired.bindings.push(Binding { source: source.to_owned(), target, key: key.to_owned() });
}

fn to_queue(name: &str) -> Target {
    Target::Queue(name.to_owned())
}

fn to_exchange(name: &str) -> Target {
    Target::Exchange(name.to_owned())
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Argument {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Argument {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

type Change = fn(&mut Desired);

#[rstest]
// Names.
#[case(|d: &mut Desired| d.queues.push(d.queues[0].clone()), "queue t.unrouted is declared twice")]
#[case(|d: &mut Desired| d.exchanges.push(d.exchanges[0].clone()), "exchange t.unrouted is declared twice")]
#[case(|d: &mut Desired| { let own = Queue { name: "t.lock".into(), ..d.queues[0].clone() }; d.queues.push(own); },
    "queue t.lock has a reserved name")]
#[case(|d: &mut Desired| { let own = Queue { name: "t.control.lock".into(), ..d.queues[0].clone() }; d.queues.push(own); },
    "queue t.control.lock has a reserved name")]
#[case(|d: &mut Desired| { let own = Queue { name: "t.moving.x".into(), ..d.queues[0].clone() }; d.queues.push(own); },
    "queue t.moving.x has a reserved name")]
#[case(|d: &mut Desired| { let own = Queue { name: "amq.x".into(), ..d.queues[0].clone() }; d.queues.push(own); },
    "queue amq.x has a reserved name")]
// Labels, types and unknown arguments.
#[case(|d: &mut Desired| unset(d, "t.processor.mail", OWNER), "queue t.processor.mail does not name its owner")]
#[case(|d: &mut Desired| set(d, "t.processor.mail", OWNER, "u"), "queue t.processor.mail does not name its owner")]
#[case(|d: &mut Desired| { exchange(d, "t.retry").arguments.remove(OWNER); }, "exchange t.retry does not name its owner")]
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-message-tll", 5), "queue t.hatchery.5m has the argument x-message-tll, which is not valid there")]
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-max-priority", 5), "queue t.hatchery.5m has the argument x-max-priority, which is not valid there")]
#[case(|d: &mut Desired| { exchange(d, "t.retry").arguments.insert("x-delayed-type".into(), "topic".into()); },
    "exchange t.retry has the argument x-delayed-type, which is not valid there")]
#[case(|d: &mut Desired| set(d, "t.unrouted", "x-queue-type", "mqtt"), "queue t.unrouted is neither a quorum queue nor a classic one, nor a stream;queue t.unrouted has the argument x-delivery-limit, which is not valid there;queue t.unrouted has the argument x-queue-leader-locator, which is not valid there")]
#[case(|d: &mut Desired| set(d, "t.processor.mail", "x-queue-type", "classic"), "queue t.processor.mail has the argument x-dead-letter-strategy, which is not valid there;queue t.processor.mail has the argument x-overflow, which is not valid there;queue t.processor.mail has the argument x-queue-leader-locator, which is not valid there")]
// References to objects that do not exist.
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-dead-letter-exchange", "t.gone"), "queue t.hatchery.5m leads to exchange t.gone, which does not exist")]
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-dead-letter-exchange", ""), "queue t.hatchery.5m leads to exchange , which does not exist")]
#[case(|d: &mut Desired| bind(d, "t.retry", to_queue("t.gone"), "a.b"), "exchange t.retry leads to queue t.gone, which does not exist")]
#[case(|d: &mut Desired| bind(d, "t.retry", to_exchange("t.gone"), "a.b"), "exchange t.retry leads to exchange t.gone, which does not exist")]
#[case(|d: &mut Desired| bind(d, "t.gone", to_queue("t.unrouted"), "a.b"), "queue t.unrouted leads to exchange t.gone, which does not exist")]
#[case(|d: &mut Desired| { exchange(d, "t.retry").arguments.insert("alternate-exchange".into(), "t.gone".into()); },
    "exchange t.retry leads to exchange t.gone, which does not exist;exchange t.retry has no alternate exchange that takes everything")]
// Streams.
#[case(|d: &mut Desired| set(d, "t.control", "x-max-age", "7D"), "queue t.control is bounded by x-max-age")]
#[case(|d: &mut Desired| set(d, "t.control", "x-max-length-bytes", 1_000_000), "queue t.control is bounded by x-max-length-bytes")]
#[case(|d: &mut Desired| set(d, "t.control", "x-message-ttl", 5), "queue t.control has the argument x-message-ttl, which is not valid there;queue t.control has a TTL and no dead-letter exchange")]
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-max-age", "7D"), "queue t.hatchery.5m has the argument x-max-age, which is not valid there")]
#[case(|d: &mut Desired| bind(d, "t.scheduler", to_queue("t.control"), "x.y"), "stream t.control is on the way of events: exchange t.scheduler leads there")]
#[case(|d: &mut Desired| bind(d, "t.scheduler", to_exchange("t.control"), "x.y"), "stream t.control is on the way of events: exchange t.control leads there")]
#[case(|d: &mut Desired| bind(d, "t.control", to_queue("t.unrouted"), "x.y"), "stream t.control is on the way of events: exchange t.control leads there")]
#[case(|d: &mut Desired| set(d, "t.processor.mail", "x-dead-letter-exchange", "t.control"), "stream t.control is on the way of events: exchange t.control leads there")]
#[case(|d: &mut Desired| { exchange(d, "t.retry").arguments.insert("alternate-exchange".into(), "t.control".into()); },
    "stream t.control is on the way of events: exchange t.control leads there")]
#[case(|d: &mut Desired| set(d, "t.life-cycle", "x-max-age", "7D"), "queue t.life-cycle is bounded by x-max-age")]
#[case(|d: &mut Desired| bind(d, "t.scheduler", to_exchange("t.life-cycle"), "x.y"), "stream t.life-cycle is on the way of events: exchange t.life-cycle leads there")]
#[case(|d: &mut Desired| { d.policies.pop(); }, "stream t.life-cycle has no policy that limits its size")]
#[case(|d: &mut Desired| { d.policies[1].definition.remove("max-length-bytes"); }, "stream t.life-cycle has no policy that limits its size")]
#[case(|d: &mut Desired| { d.policies[1].pattern = "^t\\.(control|life-cycle)$".into(); d.policies[1].definition.retain(|key, _| key == "max-length-bytes"); },
    "policy t.life-cycle limits t.control by max-length-bytes")]
#[case(|d: &mut Desired| { d.policies[0].definition.insert("max-age".into(), "7D".into()); }, "policy t.tunables limits t.processor.mail by max-age")]
// Cycles.
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-dead-letter-exchange", "t.scheduler"),
    "RabbitMQ would drop an event in a dead-letter cycle: t.hatchery.5m -> t.scheduler -> t.hatchery.5m")]
#[case(|d: &mut Desired| set(d, "t.processor.mail", "x-dead-letter-exchange", "t.retry"),
    "RabbitMQ would drop an event in a dead-letter cycle: t.processor.mail -> t.retry -> t.retry.mail.1m -> t.processor -> t.processor.mail")]
#[case(|d: &mut Desired| bind(d, "t.ladder.1s-2.01-2s", to_queue("t.ladder.1s-2.00-1s"), "*.1s-2.1.#"),
    "RabbitMQ would drop an event in a dead-letter cycle: t.ladder.1s-2.00-1s -> t.ladder.1s-2.00-1s -> t.ladder.1s-2.01-2s -> t.ladder.1s-2.01-2s -> t.ladder.1s-2.00-1s")]
#[case(|d: &mut Desired| bind(d, "t.unrouted", to_exchange("t.processor"), "x.y"),
    "RabbitMQ would drop an event in a dead-letter cycle: t.processor.mail -> t.dead-letter -> t.unrouted -> t.processor -> t.processor.mail")]
#[case(
    |d: &mut Desired| d.renames.push(Rename { from: "u.x".into(), to: "t.hatchery.5m".into(), source: "t.processor".into(), key: "x.#".into() }),
    "RabbitMQ would drop an event in a dead-letter cycle: t.processor -> t.hatchery.5m -> t.processor"
)]
// Losses on the way.
#[case(|d: &mut Desired| { exchange(d, "t.processor").arguments.remove("alternate-exchange"); }, "exchange t.processor has no alternate exchange that takes everything")]
#[case(|d: &mut Desired| { exchange(d, "t.scheduler").arguments.insert("alternate-exchange".into(), "t.scheduler".into()); }, "exchange t.scheduler has no alternate exchange that takes everything")]
#[case(|d: &mut Desired| unset(d, "t.hatchery.5m", "x-dead-letter-strategy"), "queue t.hatchery.5m dead-letters at most once")]
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-dead-letter-strategy", "at-most-once"), "queue t.hatchery.5m dead-letters at most once")]
#[case(|d: &mut Desired| unset(d, "t.hatchery.5m", "x-overflow"), "queue t.hatchery.5m dead-letters at most once, because its x-overflow is not reject-publish")]
#[case(|d: &mut Desired| set(d, "t.ladder.1s-2.01-2s", "x-overflow", "drop-head"), "queue t.ladder.1s-2.01-2s dead-letters at most once, because its x-overflow is not reject-publish")]
#[case(|d: &mut Desired| set(d, "t.processor.mail", "x-max-length", 10_000), "queue t.processor.mail is bounded by x-max-length")]
#[case(|d: &mut Desired| set(d, "t.unrouted", "x-max-length-bytes", 10_000), "queue t.unrouted is bounded by x-max-length-bytes")]
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-expires", 3_600_000), "queue t.hatchery.5m has x-expires, and RabbitMQ would delete it with its events")]
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-dead-letter-routing-key", "mail.now"), "queue t.hatchery.5m changes the routing key of the messages that it dead-letters")]
// TTLs.
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-message-ttl", 0), "queue t.hatchery.5m has a TTL that is not between 1ms and ten years")]
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-message-ttl", -1), "queue t.hatchery.5m has a TTL that is not between 1ms and ten years")]
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-message-ttl", 315_360_000_001), "queue t.hatchery.5m has a TTL that is not between 1ms and ten years")]
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-message-ttl", "300000"), "queue t.hatchery.5m has a TTL that is not between 1ms and ten years")]
#[case(|d: &mut Desired| set(d, "t.unrouted", "x-message-ttl", 5), "queue t.unrouted has a TTL and no dead-letter exchange")]
// Delivery limits and policies.
#[case(|d: &mut Desired| unset(d, "t.unrouted", "x-delivery-limit"), "queue t.unrouted has neither a dead-letter exchange nor x-delivery-limit 1000000000")]
#[case(|d: &mut Desired| set(d, "t.dead-letter.mail", "x-delivery-limit", -1), "queue t.dead-letter.mail has neither a dead-letter exchange nor x-delivery-limit 1000000000")]
#[case(|d: &mut Desired| unset(d, "t.processor.mail", "x-dead-letter-exchange"), "queue t.processor.mail has neither a dead-letter exchange nor x-delivery-limit 1000000000;policy t.tunables sets a delivery limit for queue t.processor.mail, which has no dead-letter exchange or keeps order")]
#[case(|d: &mut Desired| d.policies[0].pattern = "letter\\.".into(), "policy t.tunables sets a delivery limit for queue t.dead-letter.mail, which has no dead-letter exchange or keeps order")]
#[case(|d: &mut Desired| set(d, "t.processor.mail", SINGLE, true), "queue t.processor.mail has a single active consumer and not x-delivery-limit 1000000000;policy t.tunables sets a delivery limit for queue t.processor.mail, which has no dead-letter exchange or keeps order")]
#[case(|d: &mut Desired| { set(d, "t.processor.mail", SINGLE, true); set(d, "t.processor.mail", LIMIT, NO_DELIVERY_LIMIT); },
    "policy t.tunables sets a delivery limit for queue t.processor.mail, which has no dead-letter exchange or keeps order")]
#[case(|d: &mut Desired| d.policies[0].pattern = "(".into(), "the pattern of policy t.tunables is not a regular expression")]
#[case(|d: &mut Desired| { d.policies[0].definition.insert("max-length".into(), 5.into()); }, "policy t.tunables sets max-length")]
fn each_change_is_refused_for_its_own_reason(#[case] change: Change, #[case] expected: &str) {
    assert_eq!(refused("quorum", change).join(";"), expected);
}

#[rstest]
#[case(|d: &mut Desired| set(d, "t.hatchery.5m", "x-dead-letter-strategy", "at-least-once"), "queue t.hatchery.5m has the argument x-dead-letter-strategy, which is not valid there")]
#[case(|d: &mut Desired| set(d, "t.unrouted", "x-delivery-limit", NO_DELIVERY_LIMIT), "queue t.unrouted has the argument x-delivery-limit, which is not valid there")]
#[case(|d: &mut Desired| set(d, "t.processor.mail", "x-max-length", 5), "queue t.processor.mail is bounded by x-max-length")]
#[case(|d: &mut Desired| unset(d, "t.hatchery.5m", "x-dead-letter-exchange"), "queue t.hatchery.5m has a TTL and no dead-letter exchange")]
#[case(|d: &mut Desired| set(d, "t.processor.mail", "x-queue-type", "quorum"), "queue t.processor.mail dead-letters at most once")]
fn classic_queues_have_hazards_of_their_own(#[case] change: Change, #[case] expected: &str) {
    assert_eq!(refused("classic", change).join(";"), expected);
}

#[test]
fn no_exchange_is_safe_without_a_binding_that_catches_everything() {
    let hazards = refused("quorum", |desired| desired.bindings.retain(|binding| binding.key != "#"));
    assert_eq!(hazards.len(), desired("quorum").exchanges.len());
    assert!(hazards.iter().all(|hazard| hazard.ends_with(" has no alternate exchange that takes everything")));
}
