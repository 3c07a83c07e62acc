//! The broker and the register in memory, with a diary of what they are asked, and the messages of the tests.

use super::*;

const FILE: &str = "
version: 1
name: t
hatcheries: [5s]
types:
  mail: { retry: { delays: [1s, 2s], max-attempts: 3 } }
  import: { coalesce: { immediate: latest, delayed: each-time, window: 2s } }
  plain: { register: off, retry: { delays: [1s, 2s], max-attempts: 3 } }
  quick: { register: off, on-failure: in-place, in-place: { tries: 2, delay: 1ms } }
  exact: { register: off, on-failure: block, retry: { delays: [1ms] } }
  hasty: { lease: 1s }
  ping: { on-failure: drop, prefetch: 1, concurrency: 1 }
  post: { retry: { delays: [8s], jitter: 50% } }
  keen: { on-failure: in-place, in-place: { tries: 3, delay: 1ms } }
  strict: { on-failure: block, retry: { delays: [1ms] } }
sources:
  own: { declare: on, events: [ { when: { /kind: change }, type: import, reference: /number } ] }
  pairs: { declare: on, events: [ { type: mail }, { type: import } ] }
  theirs: { queue: hr-changes, events: [ { when: { /kind: change }, type: import, reference: /number }, { type: mail } ] }
";

pub(super) fn topology() -> Arc<Topology> {
    Arc::new(crate::file::read(FILE, "topology.yaml").expect("a valid file"))
}

/// A broker on which [`topology`] was applied, and a register, both at noon for ever: no timer runs out.
#[derive(Clone)]
pub(super) struct World {
    script: Arc<Script>,
    topology: Arc<Topology>,
    pub(super) broker: MemoryBroker,
    pub(super) register: Arc<MemoryRegister>,
}

/// The faults and the diary of both.
impl std::ops::Deref for World {
    type Target = Script;

    fn deref(&self) -> &Script {
        &self.script
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new(Script::default())
    }
}

/// Seven microseconds after 1970: the first version of this register is 7, and the next one is 8.
struct Seven;

impl Clock for Seven {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(7).expect("a time")
    }
}

impl World {
    pub(super) fn new(script: Script) -> Self {
        Self::of(topology(), script)
    }

    /// This world with a register that has another clock.
    pub(super) fn register_at(mut self, clock: Arc<dyn Clock>) -> Self {
        let (retention, script) = (self.topology.redis.backlog_retention, Arc::clone(&self.script));
        self.register = Arc::new(MemoryRegister::scripted(clock, retention, script));
        self
    }

    /// A world with another topology.
    pub(super) fn of(topology: Arc<Topology>, script: Script) -> Self {
        let script = Arc::new(script);
        let mut desired = compile(&topology).expect("a safe topology");
        // The queue of somebody else.
        let foreign = Queue { name: "hr-changes".to_owned(), arguments: [].into() };
        desired.queues.push(foreign);
        let broker = MemoryBroker::scripted(&desired, Arc::new(Noon), script.clone());
        let register = MemoryRegister::scripted(Arc::new(Seven), topology.redis.backlog_retention, script.clone());
        Self { script, topology, broker, register: Arc::new(register) }
    }

    pub(super) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(super) fn worker(&self) -> Worker {
        self.worker_at(Arc::new(Noon))
    }

    /// A worker with another clock.
    pub(super) fn worker_at(&self, clock: Arc<dyn Clock>) -> Worker {
        Worker::new(Arc::clone(&self.topology), Arc::new(self.broker.clone()), self.register.clone(), clock)
    }

    pub(super) fn publisher(&self) -> Publisher {
        let register: Arc<dyn Register> = self.register.clone();
        Publisher::new(topology(), Arc::new(self.broker.clone()), &register, Arc::new(Noon))
    }

    /// Puts a message into the queue that its key leads to.
    pub(super) fn put(&self, message: Incoming) {
        let (event_type, route) = message.routing_key.split_once('.').expect("two words");
        let exchange = if route == "aside" { "aside" } else { "processor" };
        self.broker.put(&format!("t.{exchange}.{event_type}"), message);
    }

    pub(super) fn put_all(&self, messages: impl IntoIterator<Item = Incoming>) {
        messages.into_iter().for_each(|message| self.put(message));
    }
}

pub(super) struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        "2026-06-01T12:00:00Z".parse().expect("a time")
    }
}

/// Noon, and four seconds more for each publish that was not confirmed.
pub(super) struct Passing(pub(super) World);

impl Clock for Passing {
    fn now(&self) -> Timestamp {
        let lost = self.0.diary.entries().iter().filter(|entry| *entry == "not confirmed").count();
        Noon.now() + Duration::from_secs(4 * u64::try_from(lost).expect("few"))
    }
}

pub(super) fn incoming(routing_key: &str, headers: &[(&str, Value)]) -> Incoming {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let properties = Properties { message_id: Some("id-1".into()), headers, ..Properties::default() };
    Incoming { routing_key: routing_key.into(), properties, body: "{}".into() }
}

pub(super) fn failure() -> Outcome {
    Outcome::Retry { reason: "no luck".into(), after: None }
}

/// Works off what waits, with a handler that always answers this.
pub(super) async fn work(world: &World, outcome: Outcome) -> Vec<String> {
    work_at(world, outcome, Arc::new(Noon)).await
}

/// Works with another clock.
pub(super) async fn work_at(world: &World, outcome: Outcome, clock: Arc<dyn Clock>) -> Vec<String> {
    let diary = world.diary.clone();
    let handler = move |_| {
        diary.note("handler");
        let outcome = outcome.clone();
        async move { Ok::<_, String>(outcome) }
    };
    let routing_key = world.broker.waiting().remove(0).message.routing_key;
    let event_type = routing_key.split('.').next().expect("a word").to_owned();
    let worker = world.worker_at(clock).stop_when_empty(true);
    worker.handle(&event_type, handler).run(CancellationToken::new()).await.expect("it stops when empty");
    world.diary.entries()
}

/// Works on what waits with a handler that fails, and tells the worker to stop meanwhile.
pub(super) async fn fail_and_stop(world: &World) -> Summary {
    let stop = CancellationToken::new();
    let told = stop.clone();
    let handler = move |_| {
        told.cancel();
        async { Ok::<_, String>(failure()) }
    };
    let worker = world.worker();
    let worker = worker.drain_timeout(Duration::from_millis(10)).handle("mail", handler);
    worker.run(stop).await.expect("it stops")
}

pub(super) async fn publish(world: &World, event: NewEvent) -> (Vec<String>, bool) {
    let publisher = world.publisher();
    let published = publisher.publish(event).await.expect("it is confirmed");
    (world.diary.entries(), published.unversioned)
}

pub(super) fn header(message: &Message, name: &str) -> Option<String> {
    match message.properties.headers.get(name)? {
        Value::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        Value::I64(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}

pub(super) fn versioned() -> Incoming {
    stamped("i")
}

/// A message with a version in this slot.
pub(super) fn stamped(slot: &str) -> Incoming {
    let text = |text| Value::Text(Vec::from(text));
    let version = ("version", Value::I64(5));
    incoming("import.now", &[("reference", text("1234")), ("slot", text(slot)), version])
}

/// What is logged by this thread until the guard is dropped.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(super) fn keep(&self) -> tracing::subscriber::DefaultGuard {
        // Where one subscriber is all there is, `tracing` takes a place in the code that another thread comes to first for one
        // that nobody listens to, for good. This one is every thread's, and throws away what it is told.
        static LISTENED_TO: std::sync::Once = std::sync::Once::new();
        LISTENED_TO.call_once(|| {
            let everybody = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
            tracing::subscriber::set_global_default(everybody).expect("the first one");
        });
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }

    /// The lines with this in them.
    pub(super) fn lines(&self, about: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().expect("no panic").clone()).expect("text");
        text.lines().filter(|line| line.contains(about)).map(str::to_owned).collect()
    }
}

/// RabbitMQ has had it back so often.
pub(super) fn came_back(times: i64) -> (&'static str, Value) {
    ("x-delivery-count", Value::I64(times))
}
