//! A broker and a register that only write down what they are asked.

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
";

pub(super) fn topology() -> Arc<Topology> {
    Arc::new(crate::file::read(FILE, "topology.yaml").expect("a valid file"))
}

/// What happened, in order.
#[derive(Clone, Default)]
pub(super) struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    pub(super) fn note(&self, entry: impl Into<String>) {
        self.0.lock().expect("no panic").push(entry.into());
    }

    pub(super) fn entries(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }
}

#[derive(Default)]
pub(super) struct Fake {
    pub(super) diary: Diary,
    pub(super) published: Mutex<Vec<Message>>,
    /// How many publishes the broker does not confirm at first.
    pub(super) lose: AtomicUsize,
    /// The broker blocks publishers.
    pub(super) blocked: AtomicBool,
    /// What is delivered was delivered before.
    pub(super) redelivered: AtomicBool,
    /// How many publishes the broker answers with nothing at first, as one that blocks publishers.
    pub(super) stuck: AtomicUsize,
    /// How long the broker takes to confirm what it has taken.
    pub(super) confirms_after: Mutex<Duration>,
    /// There is nobody to consume from.
    pub(super) absent: AtomicBool,
    /// When that was tried.
    pub(super) asked: Mutex<Vec<tokio::time::Instant>>,
    /// Whatever is published is larger than the broker takes.
    pub(super) narrow: AtomicBool,
    /// What is delivered.
    pub(super) incoming: Mutex<Vec<Incoming>>,
    /// What is in the aside queue, the first one last.
    pub(super) aside: Mutex<Vec<Incoming>>,
    pub(super) claims: Mutex<Vec<Claimed>>,
    /// By what tokens, and whether they were not released.
    pub(super) claimed: Mutex<HashMap<Uuid, bool>>,
    /// Events that may have killed their worker, by id.
    pub(super) suspects: Vec<String>,
    pub(super) away: bool,
    pub(super) stale: bool,
    /// A lease that is renewed is lost.
    pub(super) lost: bool,
    /// Claims get no answer, and everything else does.
    pub(super) deaf: AtomicBool,
    /// Events that cannot be claimed, by id, nor what is claimed with them.
    pub(super) unclaimed: Mutex<HashMap<String, RegisterError>>,
    /// How many releases get no answer at first.
    pub(super) unreleased: AtomicUsize,
    /// Events that cannot be settled, by id, nor what is settled with them.
    pub(super) unsettled: Mutex<HashMap<String, RegisterError>>,
    /// What was settled, by id.
    pub(super) settled: Mutex<Vec<String>>,
    /// The program has closed its connections.
    pub(super) closed: AtomicBool,
}

pub(super) fn unreachable() -> RegisterError {
    RegisterError::Unreachable { url: "redis".into(), trouble: Trouble::Away, reason: "gone".into() }
}

impl Fake {
    pub(super) fn answer<T>(&self, call: String, answer: T) -> Result<T, RegisterError> {
        if self.away {
            return Err(unreachable());
        }
        self.diary.note(call);
        Ok(answer)
    }

    pub(super) fn published(&self) -> Message {
        self.published.lock().expect("no panic").last().expect("something was published").clone()
    }
}

#[async_trait]
impl Broker for Fake {
    async fn publish(&self, message: Message) -> Result<(), BrokerError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(BrokerError::Closed);
        }
        if self.blocked.load(Ordering::SeqCst) {
            self.diary.note("blocked");
            return std::future::pending().await;
        }
        if self.narrow.load(Ordering::SeqCst) {
            self.diary.note("too large");
            let (exchange, size) = (message.exchange, message.body.len());
            return Err(BrokerError::TooLarge { exchange, size, reason: "message size".into() });
        }
        if self.lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            self.diary.note("not confirmed");
            return Err(BrokerError::Unreachable { url: "amqp".into(), reason: "cut".into() });
        }
        if self.stuck.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            self.diary.note("stuck");
            std::future::pending::<()>().await;
        }
        self.diary.note(format!("publish {} {}", message.exchange, message.routing_key));
        if message.exchange == "t.aside" {
            let Message { routing_key, properties, body, .. } = message.clone();
            self.aside.lock().expect("no panic").insert(0, Incoming { routing_key, properties, body });
        }
        self.published.lock().expect("no panic").push(message);
        let confirms_after = *self.confirms_after.lock().expect("no panic");
        tokio::time::sleep(confirms_after).await;
        Ok(())
    }

    async fn consume(&self, _: &str, _: u16, _: Order) -> Result<Box<dyn Deliveries>, BrokerError> {
        self.asked.lock().expect("no panic").push(tokio::time::Instant::now());
        if self.absent.load(Ordering::SeqCst) {
            return Err(BrokerError::Unreachable { url: "amqp".into(), reason: "cut".into() });
        }
        let (sender, queue) = mpsc::unbounded_channel();
        for message in self.incoming.lock().expect("no panic").drain(..) {
            sender.send(message).expect("the queue is there");
        }
        let redelivered = self.redelivered.load(Ordering::SeqCst);
        Ok(Box::new(Queue { waiting: queue, _open: Some(sender), redelivered, diary: self.diary.clone() }))
    }

    async fn take(&self, _: &str) -> Result<Option<Delivery>, BrokerError> {
        let next = self.aside.lock().expect("no panic").pop();
        Ok(next.map(|message| Delivery { message, redelivered: false, receipt: Box::new(Noted(self.diary.clone())) }))
    }

    async fn ready(&self, queue: &str) -> Result<u64, BrokerError> {
        let ready = if queue.contains(".aside.") { self.aside.lock().expect("no panic").len() } else { 0 };
        Ok(u64::try_from(ready).expect("few"))
    }

    async fn identity(&self) -> Result<BrokerIdentity, BrokerError> {
        Ok(BrokerIdentity::default())
    }

    async fn require(&self, _: &[String], _: &[String]) -> Result<(), BrokerError> {
        Ok(())
    }
}

pub(super) struct Queue {
    pub(super) waiting: mpsc::UnboundedReceiver<Incoming>,
    pub(super) _open: Option<mpsc::UnboundedSender<Incoming>>,
    pub(super) redelivered: bool,
    pub(super) diary: Diary,
}

#[async_trait]
impl Deliveries for Queue {
    async fn next(&mut self) -> Option<Delivery> {
        let message = self.waiting.recv().await?;
        Some(Delivery { message, redelivered: self.redelivered, receipt: Box::new(Noted(self.diary.clone())) })
    }

    async fn cancel(&mut self) {
        self.waiting.close();
    }

    async fn close(self: Box<Self>) {
        self.diary.note("close");
    }
}

pub(super) struct Noted(Diary);

#[async_trait]
impl Receipt for Noted {
    async fn acknowledge(self: Box<Self>) {
        self.0.note("acknowledge");
    }

    async fn requeue(self: Box<Self>) {
        self.0.note("give back");
    }

    async fn reject(self: Box<Self>) {
        self.0.note("reject");
    }
}

#[async_trait]
impl Register for Fake {
    async fn ping(&self) -> Result<(), RegisterError> {
        self.answer("ping".to_owned(), ())
    }

    async fn slot(&self, _: &Subject, _: &Slot) -> Result<Option<SlotState>, RegisterError> {
        self.answer("slot".to_owned(), None)
    }

    async fn reserve(&self, batch: &[Reserve]) -> Result<Vec<Reserved>, RegisterError> {
        let slots: Vec<String> = batch.iter().map(|ask| ask.slot.to_string()).collect();
        let answer = if self.stale { Reserved::Stale } else { Reserved::Version(7) };
        self.answer(format!("reserve {}", slots.join(" ")), vec![answer; batch.len()])
    }

    async fn record(&self, batch: &[Record]) -> Result<(), RegisterError> {
        self.answer(format!("record {}", batch[0].version), ())
    }

    async fn claim(&self, batch: &[Claim]) -> Result<Vec<Claimed>, RegisterError> {
        let alone = if batch[0].alone { " alone" } else { "" };
        if self.deaf.load(Ordering::SeqCst) {
            return Err(unreachable());
        }
        let unclaimed = self.unclaimed.lock().expect("no panic");
        if let Some(error) = batch.iter().find_map(|ask| unclaimed.get(&ask.subject.id)) {
            self.diary.note(format!("{} not claimed", batch.len()));
            return Err(error.clone());
        }
        let mut claims = self.claims.lock().expect("no panic");
        let run = |ask: &Claim| Claimed::Run { fence: 9, crashes: 0, stamp: ask.stamp.clone() };
        let answers = batch.iter().map(|ask| match claims.is_empty() {
            true if !ask.alone && self.suspects.contains(&ask.subject.id) => Claimed::Alone,
            true => run(ask),
            false => claims.remove(0),
        });
        let answers = answers.collect();
        for ask in batch {
            // A release that comes late would take this claim away. Written down: a panic here would end the task that asks, and
            // leave the test waiting.
            if self.claimed.lock().expect("no panic").insert(ask.token, true) == Some(false) {
                self.diary.note("claimed by a token that was released");
            }
        }
        self.answer(format!("claim{alone}"), answers)
    }

    async fn renew(&self, _: &[Renew]) -> Result<Vec<Renewed>, RegisterError> {
        self.answer("renew".to_owned(), vec![if self.lost { Renewed::Lost } else { Renewed::Held }])
    }

    async fn release(&self, batch: &[Release]) -> Result<(), RegisterError> {
        if self.unreleased.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(unreachable());
        }
        let claimed = self.claimed.lock().expect("no panic").insert(batch[0].token, false);
        self.answer(if claimed == Some(true) { "release" } else { "release nothing" }.to_owned(), ())
    }

    async fn settle(&self, batch: &[Settle]) -> Result<(), RegisterError> {
        let unsettled = self.unsettled.lock().expect("no panic");
        if let Some(error) = batch.iter().find_map(|tell| unsettled.get(&tell.subject.id)) {
            self.diary.note(format!("{} not settled", batch.len()));
            return Err(error.clone());
        }
        self.settled.lock().expect("no panic").extend(batch.iter().map(|tell| tell.subject.id.clone()));
        let end = if batch[0].end == End::Finished { "finished" } else { "copied" };
        self.answer(format!("settle {end}"), ())
    }

    async fn later(&self, _: &[Later]) -> Result<Vec<Postponed>, RegisterError> {
        unreachable!("no handler puts another event off")
    }

    async fn cancel(&self, _: &[Cancel]) -> Result<Vec<Vec<Cancelled>>, RegisterError> {
        unreachable!("no handler cancels")
    }
}

pub(super) struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        "2026-06-01T12:00:00Z".parse().expect("a time")
    }
}

/// Noon, and four seconds more for each publish that was not confirmed.
pub(super) struct Passing(pub(super) Arc<Fake>);

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

/// Works off what the fake delivers, with a handler that always answers this.
pub(super) async fn work(fake: &Arc<Fake>, outcome: Outcome) -> Vec<String> {
    work_at(fake, outcome, Arc::new(Noon)).await
}

/// The same at another time.
pub(super) async fn work_at(fake: &Arc<Fake>, outcome: Outcome, clock: Arc<dyn Clock>) -> Vec<String> {
    let diary = fake.diary.clone();
    let handler = move |_| {
        diary.note("handler");
        let outcome = outcome.clone();
        async move { Ok::<_, String>(outcome) }
    };
    let first = |queue: &Mutex<Vec<Incoming>>| Some(queue.lock().expect("no panic").first()?.routing_key.clone());
    let routing_key = first(&fake.incoming).or_else(|| first(&fake.aside)).expect("something is delivered");
    let event_type = routing_key.split('.').next().expect("a word").to_owned();
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), clock).stop_when_empty(true);
    worker.handle(&event_type, handler).run(CancellationToken::new()).await.expect("it stops when empty");
    fake.diary.entries()
}

/// Works on what the fake delivers with a handler that fails, and tells the worker to stop meanwhile.
pub(super) async fn fail_and_stop(fake: &Arc<Fake>) -> Summary {
    let stop = CancellationToken::new();
    let told = stop.clone();
    let handler = move |_| {
        told.cancel();
        async { Ok::<_, String>(failure()) }
    };
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon));
    let worker = worker.drain_timeout(Duration::from_millis(10)).handle("mail", handler);
    worker.run(stop).await.expect("it stops")
}

pub(super) async fn publish(fake: &Arc<Fake>, event: NewEvent) -> (Vec<String>, bool) {
    let register: Arc<dyn Register> = fake.clone();
    let publisher = Publisher::new(topology(), fake.clone(), &register, Arc::new(Noon));
    let published = publisher.publish(event).await.expect("it is confirmed");
    (fake.diary.entries(), published.unversioned)
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

/// The same in this slot.
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
