//! The broker simulator of the unit tests behaves as a real broker does.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write as _},
    time::Instant,
};

use futures_util::future::try_join_all;
use hatchery::internals::compile::{Argument, Binding, Desired, Exchange, OWNER, Queue, Target, compile};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    message::BasicGetMessage,
    options::{
        BasicAckOptions, BasicGetOptions, BasicPublishOptions, BasicRejectOptions, ConfirmSelectOptions,
        QueueDeclareOptions,
    },
    types::FieldTable,
};
use proptest::{
    collection,
    sample::select,
    strategy::{Strategy, ValueTree as _},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::support::{
    broker::{FORWARDED, VirtualHost, eventually},
    declared::declare,
    simulator::{
        Contents, Simulator, Step,
        generate::{Pace, cases, read},
        matches,
        rules::{nothing, rules},
    },
};

/// How many times in a row the broker must agree with the simulator: a message that should be gone may still be on its
/// way.
const LOOKS: usize = 20;

/// A real broker, on which the same steps are done as on the simulator.
struct Real {
    channel: Channel,
    queues: Vec<String>,
    /// The broker's major version.
    version: u32,
    _connection: Connection,
    _host: VirtualHost,
}

impl Real {
    async fn new(desired: &Desired) -> Self {
        let host = VirtualHost::new();
        let version = declare(&host, desired).await;
        let version = version.split('.').next().and_then(|major| major.parse().ok()).expect("a version");
        let connection = Connection::connect(&host.amqp(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let queues = desired.queues.iter().map(|queue| queue.name.clone()).collect();
        Self { channel, queues, version, _connection: connection, _host: host }
    }

    /// Does a step on both, and expects both to agree afterwards. After a publish it does not compare.
    async fn step(&self, step: &Step, simulator: &mut Simulator) -> Result<(), String> {
        let ready = |simulator: &Simulator, queue: &str| simulator.contents().get(queue).map_or(0, Vec::len);
        match step {
            Step::Publish(exchange, key, id) => {
                simulator.step(step);
                self.publish(exchange, key, BasicProperties::default(), id.to_string().as_bytes()).await;
                return Ok(());
            }
            Step::Wait => {}
            Step::Reject(queue) => {
                for message in self.take(queue, ready(simulator, queue)).await {
                    message.acker.reject(BasicRejectOptions { requeue: false }).await.unwrap();
                }
                simulator.step(step);
            }
            Step::Return(queue, times) => {
                for _ in 0..*times {
                    for message in self.take(queue, ready(simulator, queue)).await {
                        message.acker.reject(BasicRejectOptions { requeue: true }).await.unwrap();
                    }
                    simulator.step(&Step::Return(queue.clone(), 1));
                }
            }
            Step::Move(queue, exchange) => {
                for message in self.take(queue, ready(simulator, queue)).await {
                    let key = message.routing_key.as_str();
                    self.publish(exchange, key, message.properties.clone(), &message.data).await;
                    message.acker.ack(BasicAckOptions::default()).await.unwrap();
                }
                simulator.step(step);
            }
        }
        // Let time pass in the simulator too, as it does on the real broker.
        simulator.step(&Step::Wait);
        self.agree(simulator).await
    }

    /// Publishes and waits for the answer, be it a confirm or a refusal.
    async fn publish(&self, exchange: &str, key: &str, properties: BasicProperties, body: &[u8]) {
        let (properties, options) = (properties.with_delivery_mode(2), BasicPublishOptions::default());
        let sent = self.channel.basic_publish(exchange.into(), key.into(), options, body, properties).await;
        sent.unwrap().await.unwrap();
    }

    /// Takes this many messages without acknowledging them.
    async fn take(&self, queue: &str, count: usize) -> Vec<BasicGetMessage> {
        let mut taken = Vec::new();
        for _ in 0..count {
            let get = async || self.channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap();
            taken.push(eventually(&format!("{queue} has {count} messages"), get).await);
        }
        taken
    }

    /// Waits until each queue has as many ready messages as in the simulator. Returns an error after a time limit.
    async fn agree(&self, simulator: &Simulator) -> Result<(), String> {
        let contents = simulator.contents();
        let expected: BTreeMap<&str, usize> = contents.iter().map(|(queue, ids)| (queue.as_str(), ids.len())).collect();
        let (limit, mut looks) = (Instant::now() + FORWARDED, 0);
        while looks < LOOKS {
            let ready = self.ready().await;
            looks = if ready == expected { looks + 1 } else { 0 };
            if Instant::now() > limit {
                return Err(format!("the broker has {ready:?}, the simulator {expected:?}"));
            }
        }
        Ok(())
    }

    async fn ready(&self) -> BTreeMap<&str, usize> {
        let count = |queue: &'_ String| {
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            self.channel.queue_declare(queue.as_str().into(), passive, FieldTable::default())
        };
        let counts = try_join_all(self.queues.iter().map(count)).await.unwrap();
        let counts = counts.iter().map(|queue| usize::try_from(queue.message_count()).unwrap());
        self.queues.iter().map(String::as_str).zip(counts).filter(|(_, count)| *count > 0).collect()
    }

    /// Takes as many messages as are in `like`, and returns them.
    async fn contents(&self, like: &Contents) -> Contents {
        let mut contents = Contents::new();
        for (queue, ids) in like {
            let taken = self.take(queue, ids.len()).await;
            let number = |message: &BasicGetMessage| String::from_utf8_lossy(&message.data).parse().unwrap();
            let mut ids: Vec<_> = taken.iter().map(|it| (number(it), it.routing_key.to_string())).collect();
            ids.sort();
            contents.insert(queue.clone(), ids);
        }
        contents
    }
}

/// Does the same steps on both, and compares the contents of all queues.
async fn compare(desired: &Desired, steps: &[Step]) -> Result<(), String> {
    let (real, mut simulator) = (Real::new(desired).await, Simulator::new(desired));
    simulator.begins_anew = real.version >= 4;
    for step in steps {
        real.step(step, &mut simulator).await.map_err(|error| format!("{error} after {step:?}"))?;
    }
    real.agree(&simulator).await?;
    let expected = simulator.contents();
    let contents = real.contents(&expected).await;
    if contents == expected { Ok(()) } else { Err(format!("the broker has {contents:?}, the simulator {expected:?}")) }
}

#[tokio::test]
#[ignore = "compares each rule with a broker; scripts/test --all runs it"]
async fn a_real_broker_obeys_each_rule() {
    let mut wrong = Vec::new();
    for rule in rules() {
        if let Err(error) = compare(&rule.desired, &rule.steps).await {
            wrong.push(format!("{}: {error}", rule.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Random values from a fixed seed, or from `HATCHERY_TEST_SEED`.
struct Random {
    seed: u64,
    runner: TestRunner,
}

impl Random {
    fn new() -> Self {
        let seed: u64 = std::env::var("HATCHERY_TEST_SEED").map_or(1, |seed| seed.parse().expect("a number"));
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(); 4].concat());
        // Not by `eprintln!`, which prints nothing when the test passes.
        let _ = writeln!(io::stderr(), "random by HATCHERY_TEST_SEED={seed}");
        Self { seed, runner: TestRunner::new_with_rng(Config::default(), rng) }
    }

    fn any<T>(&mut self, strategy: &impl Strategy<Value = T>) -> T {
        strategy.new_tree(&mut self.runner).expect("a value").current()
    }
}

#[tokio::test]
#[ignore = "sends random events through random topologies; scripts/test --all runs it"]
async fn random_events_end_in_the_same_queues_as_in_the_simulator() {
    let mut random = Random::new();
    let cases = cases(Pace::Quick);
    for n in 0..8 {
        let case = random.any(&cases);
        if let Err(error) = compare(&case.desired, &case.steps).await {
            panic!("HATCHERY_TEST_SEED={}, case {n}: {error}\n{case:?}", random.seed);
        }
    }
}

#[tokio::test]
async fn topic_patterns_match_the_same_keys_as_in_the_simulator() {
    let mut random = Random::new();
    let mut texts = |words: &'static [&'static str]| -> BTreeSet<String> {
        let text = collection::vec(select(words), 0..5).prop_map(|words| words.join("."));
        random.any(&collection::vec(text, 100)).into_iter().collect()
    };
    let (mut patterns, keys) = (texts(&["a", "b", "*", "#", "#", ""]), texts(&["a", "b", "c", "*", "#", ""]));
    // RabbitMQ 4.3 refuses patterns with more than two `#`: "at most 2 are allowed".
    patterns.retain(|pattern| pattern.matches('#').count() <= 2);

    let arguments = |more: &[(&str, &str)]| -> BTreeMap<String, Argument> {
        let all = more.iter().chain(&[(OWNER, "t")]);
        all.map(|(name, value)| ((*name).to_owned(), Argument::Text((*value).to_owned()))).collect()
    };
    let queue = |pattern: &String| format!("q:{pattern}");
    let bind = |pattern: &String| Binding {
        source: "x".to_owned(),
        target: Target::Queue(queue(pattern)),
        key: pattern.clone(),
    };
    let desired = Desired {
        exchanges: vec![Exchange { name: "x".to_owned(), arguments: arguments(&[]) }],
        queues: patterns
            .iter()
            .map(|pattern| Queue { name: queue(pattern), arguments: arguments(&[("x-queue-type", "classic")]) })
            .collect(),
        bindings: patterns.iter().map(bind).collect(),
        ..nothing()
    };
    let real = Real::new(&desired).await;
    for key in &keys {
        real.publish("x", key, BasicProperties::default(), key.as_bytes()).await;
    }
    for pattern in &patterns {
        let expected: BTreeSet<&String> = keys.iter().filter(|key| matches(pattern, key)).collect();
        let taken = real.take(&queue(pattern), expected.len()).await;
        let found: BTreeSet<String> = taken.iter().map(|message| message.routing_key.to_string()).collect();
        assert_eq!(found.iter().collect::<BTreeSet<_>>(), expected, "{pattern:?}, HATCHERY_TEST_SEED={}", random.seed);
    }
    assert_eq!(real.ready().await, BTreeMap::new(), "HATCHERY_TEST_SEED={}", random.seed);
}

/// The reason why operators are told to move such messages to the processor exchange.
#[tokio::test]
async fn unrouted_messages_from_the_ladder_must_be_moved_to_the_processor_exchange() {
    let file = "version: 1\nname: t\nladder: { resolution: 20ms, horizon: 60ms }\ntypes: { mail: {} }";
    let desired = compile(&read(file)).unwrap();
    let publish = |id| Step::Publish("t.scheduler".to_owned(), "nobody.20ms-2.1.1".to_owned(), id);
    let unrouted = |to: &str| Step::Move("t.unrouted".to_owned(), to.to_owned());
    let (real, mut simulator) = (Real::new(&desired).await, Simulator::new(&desired));
    simulator.begins_anew = real.version >= 4;
    for step in [publish(1), Step::Wait, unrouted("t.processor"), publish(2), Step::Wait, unrouted("t.scheduler")] {
        real.step(&step, &mut simulator).await.unwrap();
    }
    let expected = if simulator.begins_anew { (2, 0) } else { (0, 2) };
    assert_eq!((simulator.contents().get("t.unrouted").map_or(0, Vec::len), simulator.parked()), expected);
}
