//! A topology that is declared on the broker, with a virtual host and a Redis key prefix of its own.

use std::time::{Duration, Instant};

use hatchery::{
    Builder, Hatchery, NewEvent, Topology,
    internals::{
        compile::{Desired, compile},
        names::{Names, lock},
        rabbitmq::connection::AmqpUrl,
        redis::RedisRegister,
        register::Owner,
        switches::Switches,
        words::EventType,
    },
};
use hatchery_admin::{
    broker::declare::Declarer,
    management::{Management as _, ManagementApi, ManagementUrl},
    plan::plan,
};
use lapin::BasicProperties;

use super::{
    amqp::Amqp,
    broker::{PATIENCE, VirtualHost, eventually, text},
    redis,
};

/// A ladder of few levels: up to 1.55 s in steps of 50 ms.
const SMALL: &str = "ladder: { resolution: 50ms, horizon: 1500ms }\n";

pub(crate) struct Declared {
    pub(crate) host: VirtualHost,
    pub(crate) topology: Topology,
    /// The whole topology file.
    pub(crate) text: String,
    pub(crate) redis_url: String,
}

impl Declared {
    /// Declares a topology called `t` on the shared broker. `text` is its file without `version` and `name`, which are
    /// put before it, as is a small ladder if it has none. The prefix for Redis is unique.
    pub(crate) async fn new(text: &str) -> Self {
        Self::with_redis(text, redis::url()).await
    }

    pub(crate) async fn with_redis(text: &str, redis_url: &str) -> Self {
        Self::on(VirtualHost::new(), text, redis_url).await
    }

    /// Declares the topology in this virtual host.
    pub(crate) async fn on(host: VirtualHost, text: &str, redis_url: &str) -> Self {
        Self::with_shards(host, text, redis_url, 1).await
    }

    /// Declares the topology with its Redis keys spread over this many shards.
    pub(crate) async fn with_shards(host: VirtualHost, text: &str, redis_url: &str, shards: u16) -> Self {
        let ladder = if text.contains("ladder:") { "" } else { SMALL };
        let settings = format!("prefix: {}, shards: {shards}", redis::prefix());
        let text = match text.split_once("redis: {") {
            Some((before, after)) => format!("version: 1\nname: t\n{ladder}{before}redis: {{ {settings},{after}"),
            None => format!("version: 1\nname: t\nredis: {{ {settings} }}\n{ladder}{text}"),
        };
        let topology = hatchery::file::read(&text, "topology.yaml").unwrap_or_else(|error| panic!("{error:?}"));
        let declared = Self { host, topology, text, redis_url: redis_url.to_owned() };
        declared.apply().await;
        declared
    }

    /// Declares the same topology, with the same prefix for Redis, in another virtual host.
    pub(crate) async fn again(&self, host: VirtualHost, redis_url: &str) -> Self {
        let Self { topology, text, .. } = self;
        let again = Self { host, topology: topology.clone(), text: text.clone(), redis_url: redis_url.to_owned() };
        again.apply().await;
        again
    }

    /// Returns the same topology with another key prefix in Redis. On the broker, that concerns nothing but a mark.
    pub(crate) fn with_another_prefix(self) -> Self {
        let text = self.text.replace(&self.topology.redis.prefix, &redis::prefix());
        let topology = hatchery::file::read(&text, "topology.yaml").unwrap();
        Self { topology, text, ..self }
    }

    /// Creates the objects that are missing on the broker, and the first snapshot of the switches.
    pub(crate) async fn apply(&self) {
        declare(&self.host, &compile(&self.topology).unwrap()).await;
        if self.amqp().await.ready(&self.names().control()).await == 0 {
            self.switch(&Switches::default()).await;
        }
    }

    /// Writes a snapshot of the switches, and waits for its confirm.
    pub(crate) async fn switch(&self, switches: &Switches) {
        let (control, text) = (self.names().control(), switches.text());
        self.amqp().await.publish(&control, "", BasicProperties::default(), text.as_bytes()).await;
    }

    /// Writes this topology and this broker into the register as its owner, as `topology apply` does.
    pub(crate) async fn own_register(&self) {
        let Topology { name, redis, .. } = &self.topology;
        let register = RedisRegister::new(&self.redis_url, &self.host.name, name, redis).unwrap();
        let cluster_name = text(&self.host.overview(), "cluster_name").to_owned();
        let owner = Owner { topology: Some(name.to_string()), cluster_name: Some(cluster_name) };
        register.set_owner(&owner).await.unwrap();
    }

    pub(crate) fn names(&self) -> Names {
        Names::new(self.topology.name.clone())
    }

    pub(crate) async fn connect(&self) -> Hatchery {
        self.connect_by(&self.host.amqp()).await
    }

    /// Connects to the same broker by another URL.
    pub(crate) async fn connect_by(&self, amqp: &str) -> Hatchery {
        // The shared Redis always answers in the end, however busy the machine is, so no event may go without a
        // version.
        let builder = self.builder(amqp);
        let builder = if self.redis_url == redis::url() { builder.version_wait(PATIENCE) } else { builder };
        builder.connect().await.unwrap()
    }

    /// Connects with a publisher that waits long for its versions, so that a busy machine lets no event go without one.
    pub(crate) async fn connect_patiently(&self) -> Hatchery {
        self.builder(&self.host.amqp()).version_wait(PATIENCE).connect().await.unwrap()
    }

    /// Connects with workers that consume anew after no delivery has come for this long.
    pub(crate) async fn connect_restlessly(&self, quiet: Duration) -> Hatchery {
        let builder = self.builder(&self.host.amqp()).version_wait(PATIENCE);
        builder.consume_anew_after(quiet).connect().await.unwrap()
    }

    fn builder(&self, amqp: &str) -> Builder {
        Hatchery::builder(self.topology.clone()).amqp_url(amqp).redis_url(&self.redis_url).name("test")
    }

    pub(crate) async fn amqp(&self) -> Amqp {
        Amqp::connect(&self.host.amqp()).await
    }

    /// Returns the full name of a register key. The topology must have one shard.
    pub(crate) fn key(&self, name: &str) -> String {
        // The names of virtual hosts in tests need no encoding.
        format!("{}:{{{}:t:0}}:{name}", self.topology.redis.prefix, self.host.name)
    }

    pub(crate) fn processing(&self, event_type: &str) -> String {
        self.names().processing(&word(event_type))
    }

    pub(crate) fn quarantine(&self, event_type: &str) -> String {
        self.names().quarantine_queue(&word(event_type))
    }

    pub(crate) fn dead_letters(&self, event_type: &str) -> String {
        self.names().dead_letters(&word(event_type))
    }

    /// Returns the names of all queues of the topology that events pass.
    pub(crate) fn queues(&self) -> Vec<String> {
        let queues = compile(&self.topology).unwrap().queues.into_iter();
        queues.filter(|queue| !queue.is_stream()).map(|queue| queue.name).collect()
    }

    /// Returns the queues that events only pass through: all but dead-letter queues, the unrouted queue, and the stream of the switches.
    pub(crate) fn passages(&self) -> Vec<String> {
        let others = [self.names().unrouted(), self.names().control()];
        let resting = |queue: &String| queue.contains(".dead-letter.") || others.contains(queue);
        self.queues().into_iter().filter(|queue| !resting(queue)).collect()
    }

    /// Returns the queues in which events wait until they are due.
    pub(crate) fn hatcheries(&self) -> Vec<String> {
        self.passages().into_iter().filter(|queue| !queue.contains(".processor.")).collect()
    }
}

/// Creates the missing objects of a topology without checking that it is safe. Returns the broker's version.
pub(crate) async fn declare(host: &VirtualHost, desired: &Desired) -> String {
    let url = AmqpUrl::new(&host.amqp()).unwrap();
    let management = ManagementUrl::new(&host.management(), &url).unwrap();
    let management = ManagementApi::new(management, &host.name).unwrap();
    // A busy cluster may not start the replicas of a queue in time, or not elect a leader among them.
    let until = Instant::now() + PATIENCE / 2;
    let declared = async || {
        let observed = management.observe().await.unwrap();
        let plan = plan(desired, &observed);
        let locks = [lock(&desired.owner)];
        let declarer = Declarer::lock(url.clone(), "test", &locks, PATIENCE, |_| {}).await.unwrap();
        let carried_out = declarer.carry_out(&plan, &management, |_| {}).await;
        declarer.release().await;
        match carried_out {
            Ok(()) => Some(observed.version.unwrap()),
            Err(error) if error.to_string().contains("INTERNAL_ERROR") && Instant::now() < until => None,
            Err(error) => panic!("{error}"),
        }
    };
    eventually("the topology is declared", declared).await
}

fn word(text: &str) -> EventType {
    text.parse().unwrap()
}

/// Publishes events, and expects each to be confirmed and to have a version if its type needs one.
pub(crate) async fn publish_all(hatchery: &Hatchery, events: Vec<NewEvent>) {
    for published in hatchery.publisher().publish_batch(events).await {
        let published = published.unwrap();
        assert!(!published.unversioned, "{published:?}");
    }
}

/// Publishes one event and expects it to be confirmed. Returns its id.
pub(crate) async fn publish(hatchery: &Hatchery, event: NewEvent) -> String {
    hatchery.publisher().publish(event).await.unwrap().id
}
