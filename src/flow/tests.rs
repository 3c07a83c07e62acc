//! The order of effects, seen from outside: a broker and a register that only write down what they are asked.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use rstest::rstest;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{publish::Publisher, shutdown::Worker};
use crate::{
    NewEvent, Outcome,
    domain::{
        register::{
            Cancel, Cancelled, Claim, Claimed, End, Later, Postponed, Record, Release, Renew, Renewed, Reserve,
            Reserved, Settle, Slot,
        },
        spec::Topology,
        wire::{self, Incoming, Message, Properties, Value},
    },
    ports::{Broker, BrokerError, Clock, Deliveries, Delivery, Order, Receipt, Register, RegisterError},
};

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
  ping: { on-failure: drop, prefetch: 1, concurrency: 1 }
  post: { retry: { delays: [8s], jitter: 50% } }
  keen: { on-failure: in-place, in-place: { tries: 3, delay: 1ms } }
  strict: { on-failure: block, retry: { delays: [1ms] } }
";

fn topology() -> Arc<Topology> {
    Arc::new(crate::file::read(FILE, "topology.yaml").expect("a valid file"))
}

/// What happened, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, entry: impl Into<String>) {
        self.0.lock().expect("no panic").push(entry.into());
    }

    fn entries(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }
}

#[derive(Default)]
struct Fake {
    diary: Diary,
    published: Mutex<Vec<Message>>,
    /// How many publishes the broker does not confirm at first.
    lose: AtomicUsize,
    /// What is delivered.
    incoming: Mutex<Vec<Incoming>>,
    /// What is in the aside queue, the first one last.
    aside: Mutex<Vec<Incoming>>,
    claims: Mutex<Vec<Claimed>>,
    away: bool,
    stale: bool,
}

impl Fake {
    fn answer<T>(&self, call: String, answer: T) -> Result<T, RegisterError> {
        if self.away {
            return Err(RegisterError::Unreachable { url: "redis".into(), reason: "away".into() });
        }
        self.diary.note(call);
        Ok(answer)
    }

    fn published(&self) -> Message {
        self.published.lock().expect("no panic").last().expect("something was published").clone()
    }
}

#[async_trait]
impl Broker for Fake {
    async fn publish(&self, message: Message) -> Result<(), BrokerError> {
        if self.lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            self.diary.note("not confirmed");
            return Err(BrokerError::Unreachable { url: "amqp".into(), reason: "cut".into() });
        }
        self.diary.note(format!("publish {} {}", message.exchange, message.routing_key));
        if message.exchange == "t.aside" {
            let Message { routing_key, properties, body, .. } = message.clone();
            self.aside.lock().expect("no panic").insert(0, Incoming { routing_key, properties, body });
        }
        self.published.lock().expect("no panic").push(message);
        Ok(())
    }

    async fn consume(&self, _: &str, _: u16, _: Order) -> Result<Box<dyn Deliveries>, BrokerError> {
        let (sender, queue) = mpsc::unbounded_channel();
        for message in self.incoming.lock().expect("no panic").drain(..) {
            sender.send(message).expect("the queue is there");
        }
        Ok(Box::new(Queue { waiting: queue, _open: Some(sender), diary: self.diary.clone() }))
    }

    async fn take(&self, _: &str) -> Result<Option<Delivery>, BrokerError> {
        let next = self.aside.lock().expect("no panic").pop();
        Ok(next.map(|message| Delivery { message, receipt: Box::new(Noted(self.diary.clone())) }))
    }

    async fn ready(&self, queue: &str) -> Result<u64, BrokerError> {
        let ready = if queue.contains(".aside.") { self.aside.lock().expect("no panic").len() } else { 0 };
        Ok(u64::try_from(ready).expect("few"))
    }

    async fn require(&self, _: &[String], _: &[String]) -> Result<(), BrokerError> {
        Ok(())
    }
}

struct Queue {
    waiting: mpsc::UnboundedReceiver<Incoming>,
    _open: Option<mpsc::UnboundedSender<Incoming>>,
    diary: Diary,
}

#[async_trait]
impl Deliveries for Queue {
    async fn next(&mut self) -> Option<Delivery> {
        let message = self.waiting.recv().await?;
        Some(Delivery { message, receipt: Box::new(Noted(self.diary.clone())) })
    }

    async fn cancel(&mut self) {
        self.waiting.close();
    }

    async fn close(self: Box<Self>) {
        self.diary.note("close");
    }
}

struct Noted(Diary);

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
        let mut claims = self.claims.lock().expect("no panic");
        let run = Claimed::Run { fence: 9, crashes: 0, stamp: batch[0].stamp.clone() };
        let answer = if claims.is_empty() { run } else { claims.remove(0) };
        self.answer(format!("claim{alone}"), vec![answer])
    }

    async fn renew(&self, _: &[Renew]) -> Result<Vec<Renewed>, RegisterError> {
        self.answer("renew".to_owned(), vec![Renewed::Held])
    }

    async fn release(&self, _: &[Release]) -> Result<(), RegisterError> {
        self.answer("release".to_owned(), ())
    }

    async fn settle(&self, batch: &[Settle]) -> Result<(), RegisterError> {
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

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        "2026-06-01T12:00:00Z".parse().expect("a time")
    }
}

fn incoming(routing_key: &str, headers: &[(&str, Value)]) -> Incoming {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let properties = Properties { message_id: Some("id-1".into()), headers, ..Properties::default() };
    Incoming { routing_key: routing_key.into(), properties, body: "{}".into() }
}

fn failure() -> Outcome {
    Outcome::Retry { reason: "no luck".into(), after: None }
}

/// Works off what the fake delivers, with a handler that always answers this.
async fn work(fake: &Arc<Fake>, outcome: Outcome) -> Vec<String> {
    let diary = fake.diary.clone();
    let handler = move |_| {
        diary.note("handler");
        let outcome = outcome.clone();
        async move { Ok::<_, String>(outcome) }
    };
    let first = |queue: &Mutex<Vec<Incoming>>| Some(queue.lock().expect("no panic").first()?.routing_key.clone());
    let routing_key = first(&fake.incoming).or_else(|| first(&fake.aside)).expect("something is delivered");
    let event_type = routing_key.split('.').next().expect("a word").to_owned();
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).stop_when_empty(true);
    worker.handle(&event_type, handler).run(CancellationToken::new()).await.expect("it stops when empty");
    fake.diary.entries()
}

async fn publish(fake: &Arc<Fake>, event: NewEvent) -> (Vec<String>, bool) {
    let register: Arc<dyn Register> = fake.clone();
    let publisher = Publisher::new(topology(), fake.clone(), &register, Arc::new(Noon));
    let published = publisher.publish(event).await.expect("it is confirmed");
    (fake.diary.entries(), published.unversioned)
}

fn header(message: &Message, name: &str) -> Option<String> {
    match message.properties.headers.get(name)? {
        Value::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        Value::I64(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_event_is_recorded_only_when_the_broker_has_it() {
    let fake = Arc::new(Fake { lose: AtomicUsize::new(1), ..Fake::default() });
    let (diary, unversioned) = publish(&fake, NewEvent::new("import", "{}").reference("1234")).await;
    assert_eq!(diary, ["reserve i", "not confirmed", "publish t.scheduler import.2s", "record 7"]);
    assert!(!unversioned);
}

#[tokio::test]
async fn what_competes_with_nothing_needs_no_register() {
    let fake = Arc::new(Fake { away: true, ..Fake::default() });
    let (diary, unversioned) = publish(&fake, NewEvent::new("mail", "{}").id("my-id").reference("1234")).await;
    assert_eq!(diary, ["publish t.scheduler mail.now"]);
    assert!(!unversioned);
    assert_eq!(header(&fake.published(), "slot").as_deref(), Some("e:my-id"));
    assert_eq!(header(&fake.published(), "version"), None);
}

#[tokio::test]
async fn with_redis_away_an_event_is_published_all_the_same_and_competes_with_nothing() {
    let fake = Arc::new(Fake { away: true, ..Fake::default() });
    let (diary, unversioned) = publish(&fake, NewEvent::new("import", "{}").id("my-id").reference("1234")).await;
    assert_eq!(diary, ["publish t.scheduler import.2s"]);
    assert!(unversioned);
    assert_eq!(header(&fake.published(), "slot").as_deref(), Some("e:my-id"));
}

#[rstest]
#[case::now(NewEvent::new("mail", "{}"), "mail.now", None)]
#[case::named(NewEvent::new("mail", "{}").delay(Duration::from_secs(5)), "mail.5s", Some("2026-06-01T12:00:05.000Z"))]
#[case::past(NewEvent::new("mail", "{}").at(Timestamp::UNIX_EPOCH), "mail.now", Some("1970-01-01T00:00:00.000Z"))]
#[tokio::test]
async fn a_date_is_a_header_and_a_way(#[case] event: NewEvent, #[case] key: &str, #[case] nbf: Option<&str>) {
    let fake = Arc::new(Fake::default());
    publish(&fake, event).await;
    assert_eq!(fake.published().routing_key, key);
    assert_eq!(header(&fake.published(), "nbf").as_deref(), nbf);
}

#[tokio::test]
async fn a_dated_event_competes_for_its_date() {
    let fake = Arc::new(Fake::default());
    let at = "2026-06-02T00:00:00.0001Z".parse().expect("a time");
    publish(&fake, NewEvent::new("import", "{}").reference("1234").at(at)).await;
    // Rounded up to what the header can say: never early.
    assert_eq!(header(&fake.published(), "nbf").as_deref(), Some("2026-06-02T00:00:00.001Z"));
    assert_eq!(header(&fake.published(), "slot").as_deref(), Some("d:1780358400001"));
    assert_eq!(header(&fake.published(), "version").as_deref(), Some("7"));
}

#[tokio::test]
async fn the_order_of_calls_is_the_order_of_versions() {
    struct Counting(Mutex<i64>);
    #[async_trait]
    impl Register for Counting {
        async fn ping(&self) -> Result<(), RegisterError> {
            Ok(())
        }
        async fn reserve(&self, batch: &[Reserve]) -> Result<Vec<Reserved>, RegisterError> {
            let mut last = self.0.lock().expect("no panic");
            let next = |_: &Reserve| {
                *last += 1;
                Reserved::Version(*last)
            };
            Ok(batch.iter().map(next).collect())
        }
        async fn record(&self, _: &[Record]) -> Result<(), RegisterError> {
            Ok(())
        }
        async fn claim(&self, _: &[Claim]) -> Result<Vec<Claimed>, RegisterError> {
            Ok(Vec::new())
        }
        async fn renew(&self, _: &[Renew]) -> Result<Vec<Renewed>, RegisterError> {
            Ok(Vec::new())
        }
        async fn release(&self, _: &[Release]) -> Result<(), RegisterError> {
            Ok(())
        }
        async fn settle(&self, _: &[Settle]) -> Result<(), RegisterError> {
            Ok(())
        }
        async fn later(&self, _: &[Later]) -> Result<Vec<Postponed>, RegisterError> {
            Ok(Vec::new())
        }
        async fn cancel(&self, _: &[Cancel]) -> Result<Vec<Vec<Cancelled>>, RegisterError> {
            Ok(Vec::new())
        }
    }
    let fake = Arc::new(Fake::default());
    let register: Arc<dyn Register> = Arc::new(Counting(Mutex::new(0)));
    let publisher = Publisher::new(topology(), fake.clone(), &register, Arc::new(Noon));
    let events = (1..=2_000).map(|n| NewEvent::new("import", n.to_string()).reference("1234")).collect();
    assert!(publisher.publish_batch(events).await.iter().all(Result::is_ok));
    for message in fake.published.lock().expect("no panic").iter() {
        assert_eq!(header(message, "version").map(String::into_bytes), Some(message.body.to_vec()));
    }
}

#[tokio::test]
async fn what_is_done_is_settled_before_it_is_acknowledged() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    assert_eq!(work(&fake, Outcome::Done).await, ["claim", "handler", "settle finished", "acknowledge"]);
}

#[tokio::test]
async fn a_follow_up_is_confirmed_before_the_event_is_settled() {
    let fake = Arc::new(Fake { lose: AtomicUsize::new(2), ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[("attempts", Value::U8(1))]));
    let expected = [
        "claim",
        "handler",
        "not confirmed",
        "not confirmed",
        "publish t.retry mail.2s",
        "settle copied",
        "acknowledge",
    ];
    assert_eq!(work(&fake, failure()).await, expected);
    assert_eq!(header(&fake.published(), "attempts").as_deref(), Some("2"));
    assert_eq!(header(&fake.published(), "generation").as_deref(), Some("1"));
}

#[tokio::test]
async fn the_last_failure_is_buried_with_its_reason() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("mail.2s", &[("attempts", Value::I32(2))]));
    let diary = work(&fake, failure()).await;
    assert_eq!(diary[2..], ["publish t.dead-letter mail.dead-letter", "settle copied", "acknowledge"]);
    let expected = "given up: attempt=3 failed_at=2026-06-01T12:00:00.000Z error=\"no luck\"";
    assert_eq!(header(&fake.published(), "reason").as_deref(), Some(expected));
}

#[tokio::test]
async fn a_failure_that_the_file_drops_is_settled_as_done() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("ping.now", &[]));
    assert_eq!(work(&fake, failure()).await, ["claim", "handler", "settle finished", "acknowledge"]);
}

#[tokio::test]
async fn a_delay_that_the_handler_chooses_raises_the_due_time_first() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    let after = Some(Duration::from_secs(5));
    let diary = work(&fake, Outcome::Retry { reason: "busy".into(), after }).await;
    let expected = ["reserve e:id-1", "publish t.scheduler mail.5s", "settle copied", "acknowledge"];
    assert_eq!(diary[2..], expected);
    assert_eq!(header(&fake.published(), "nbf").as_deref(), Some("2026-06-01T12:00:05.000Z"));
}

#[tokio::test]
async fn a_delay_with_jitter_goes_through_the_ladder() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("post.now", &[]));
    let diary = work(&fake, failure()).await;
    assert!(diary[3].starts_with("publish t.scheduler post.250ms-27.0."), "{diary:?}");
    assert_eq!(
        (diary[2].as_str(), &diary[4..]),
        ("reserve e:id-1", &["settle copied", "acknowledge"].map(String::from)[..])
    );
    let nbf = header(&fake.published(), "nbf").expect("a date");
    assert!(("2026-06-01T12:00:08.000Z".."2026-06-01T12:00:12.000Z").contains(&nbf.as_str()), "{nbf}");
    assert_eq!(header(&fake.published(), "attempts").as_deref(), Some("1"));
}

fn versioned() -> Incoming {
    let text = |text| Value::Text(Vec::from(text));
    let version = ("version", Value::I64(5));
    incoming("import.now", &[("reference", text("1234")), ("slot", text("i")), version])
}

#[tokio::test]
async fn a_requeue_is_a_publish_like_any_other_into_the_slot_of_its_date() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(versioned());
    let at = "2026-06-01T12:00:05Z".parse().expect("a time");
    let diary = work(&fake, Outcome::Requeue { at, reason: "next-change".into() }).await;
    let expected =
        ["reserve q:1780315205000", "publish t.scheduler import.5s", "record 7", "settle finished", "acknowledge"];
    assert_eq!(diary[2..], expected);
    let copy = fake.published();
    assert_eq!(header(&copy, "slot").as_deref(), Some("q:1780315205000"));
    assert_eq!(header(&copy, "generation").as_deref(), Some("0"));
    assert_eq!(header(&copy, "reason").as_deref(), Some("next-change"));
}

#[tokio::test]
async fn who_is_cancelled_while_it_runs_gets_no_follow_up() {
    let fake = Arc::new(Fake { stale: true, ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(versioned());
    let outcome = Outcome::Requeue { at: Timestamp::MAX, reason: "later".into() };
    let diary = work(&fake, outcome).await;
    // Nothing is settled: whoever made it stale has said how it goes on.
    assert_eq!(diary[3..], ["release", "acknowledge"]);
}

#[tokio::test]
async fn what_competes_with_nothing_stays_so_when_it_is_requeued() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    let at = "2026-06-01T12:00:05Z".parse().expect("a time");
    let diary = work(&fake, Outcome::Requeue { at, reason: "later".into() }).await;
    assert_eq!(diary[2..], ["reserve e:id-1", "publish t.scheduler mail.5s", "settle copied", "acknowledge"]);
    assert_eq!(header(&fake.published(), "generation").as_deref(), Some("1"));
}

#[rstest]
#[case::stale(Claimed::Stale, &["claim", "acknowledge"])]
#[case::replaced(Claimed::Replaced, &["claim", "acknowledge"])]
#[case::busy(Claimed::Busy, &["claim", "claim", "handler", "settle finished", "acknowledge"])]
#[case::later(Claimed::Later("2026-06-01T12:00:05Z".parse().expect("a time")), &["claim", "publish t.scheduler mail.5s", "acknowledge"])]
#[case::suspect(Claimed::Alone, &["claim", "claim alone", "handler", "settle finished", "acknowledge"])]
#[tokio::test]
async fn the_register_decides_whether_it_runs(#[case] answer: Claimed, #[case] expected: &[&str]) {
    let fake = Arc::new(Fake { claims: Mutex::new(vec![answer]), ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[("generation", Value::I64(3))]));
    assert_eq!(work(&fake, Outcome::Done).await, expected);
    for copy in fake.published.lock().expect("no panic").iter() {
        assert_eq!(header(copy, "generation").as_deref(), Some("3"), "the same copy waits on");
        assert_eq!(header(copy, "attempts").as_deref(), Some("0"), "no attempt is spent");
    }
}

#[tokio::test]
async fn what_finds_no_place_to_wait_in_goes_by_way_of_the_busy_hatchery() {
    let fake = Arc::new(Fake { claims: Mutex::new(vec![Claimed::Busy]), ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(incoming("ping.now", &[]));
    assert_eq!(work(&fake, Outcome::Done).await, ["claim", "publish t.scheduler ping.250ms", "acknowledge"]);
    assert_eq!(header(&fake.published(), "busy").as_deref(), Some("1"));
}

#[tokio::test]
async fn what_stays_busy_waits_in_memory_for_a_second_at_most() {
    let fake = Arc::new(Fake { claims: Mutex::new(vec![Claimed::Busy; 50]), ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    let began = tokio::time::Instant::now();
    let diary = work(&fake, Outcome::Done).await;
    let looks = diary.iter().take_while(|entry| *entry == "claim").count();
    assert!((4..=20).contains(&looks), "{diary:?}");
    assert_eq!(diary[looks..], ["publish t.scheduler mail.250ms", "acknowledge"]);
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn tries_in_place_are_one_attempt_and_one_claim() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("keen.now", &[]));
    let diary = work(&fake, failure()).await;
    let expected = [
        "claim",
        "handler",
        "handler",
        "handler",
        "publish t.dead-letter keen.dead-letter",
        "settle copied",
        "acknowledge",
    ];
    assert_eq!(diary, expected);
    let letter = fake.published();
    assert_eq!(header(&letter, "attempts").as_deref(), Some("1"));
    let failed = "2026-06-01T12:00:00.000Z no luck";
    assert_eq!(header(&letter, "first_failure").as_deref(), Some(failed));
    assert_eq!(header(&letter, "last_failure").as_deref(), Some(failed));
}

#[tokio::test]
async fn the_first_failure_stays_and_the_last_one_is_the_last() {
    let fake = Arc::new(Fake::default());
    let first = ("first_failure", Value::text("2026-05-01T00:00:00.000Z the first"));
    let last = ("last_failure", Value::text("2026-05-02T00:00:00.000Z not the last"));
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[first, last]));
    work(&fake, Outcome::DeadLetter { reason: "never".into() }).await;
    let letter = fake.published();
    assert_eq!(header(&letter, "first_failure").as_deref(), Some("2026-05-01T00:00:00.000Z the first"));
    assert_eq!(header(&letter, "last_failure").as_deref(), Some("2026-06-01T12:00:00.000Z never"));
}

#[tokio::test]
async fn what_blocks_is_claimed_anew_for_each_try_and_what_is_behind_it_waits() {
    let fake = Arc::new(Fake::default());
    let mut second = incoming("strict.now", &[]);
    second.properties.message_id = Some("id-2".into());
    fake.incoming.lock().expect("no panic").extend([incoming("strict.now", &[]), second]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).stop_when_empty(true);
    let noted = Arc::clone(&seen);
    let handler = move |run: crate::handler::Run| {
        let attempts = run.event.attempts;
        noted.lock().expect("no panic").push((run.event.id.clone(), attempts, run.event.last_failure));
        async move { if run.event.id == "id-1" && attempts < 2 { Err("no luck") } else { Ok(Outcome::Done) } }
    };
    let summary = worker.handle("strict", handler).run(CancellationToken::new()).await.expect("it stops when empty");
    let tried = ["claim alone", "release"];
    let done = ["claim alone", "settle finished", "acknowledge"];
    assert_eq!(fake.diary.entries(), [&tried[..], &tried, &done, &done, &["close"]].concat());
    let failed = || Some("2026-06-01T12:00:00.000Z no luck".to_owned());
    let expected = [("id-1", 0, None), ("id-1", 1, failed()), ("id-1", 2, failed()), ("id-2", 0, None)];
    assert_eq!(*seen.lock().expect("no panic"), expected.map(|(id, attempts, last)| (id.to_owned(), attempts, last)));
    assert_eq!((summary.done, summary.retried, summary.given_back), (2, 2, 0));
}

#[tokio::test]
async fn what_blocks_is_never_put_aside_for_its_crashes() {
    let stamp = crate::domain::register::Stamp::alone("id-1", 0);
    let crashed = Claimed::Run { fence: 9, crashes: 200, stamp };
    let fake = Arc::new(Fake { claims: Mutex::new(vec![Claimed::Busy, crashed]), ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(incoming("strict.now", &[]));
    let expected = ["claim alone", "claim alone", "handler", "settle finished", "acknowledge", "close"];
    assert_eq!(work(&fake, Outcome::Done).await, expected);
}

#[tokio::test]
async fn a_worker_that_stops_while_it_waits_to_try_again_gives_everything_back_with_its_channel() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").extend([incoming("strict.now", &[]), incoming("strict.now", &[])]);
    let stop = CancellationToken::new();
    let told = stop.clone();
    let handler = move |_| {
        told.cancel();
        let after = Some(Duration::from_hours(1));
        async move { Ok::<_, String>(Outcome::Retry { reason: "busy".into(), after }) }
    };
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon));
    let summary = worker.handle("strict", handler).run(stop).await.expect("it was told to stop");
    assert_eq!(fake.diary.entries(), ["claim alone", "release", "close"]);
    assert_eq!(summary.given_back, 2);
}

#[tokio::test]
async fn what_killed_its_worker_too_often_is_buried_and_not_started() {
    let stamp = crate::domain::register::Stamp::alone("id-1", 0);
    let crashed = Claimed::Run { fence: 9, crashes: 5, stamp };
    let fake = Arc::new(Fake { claims: Mutex::new(vec![Claimed::Alone, crashed]), ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    let diary = work(&fake, Outcome::Done).await;
    assert_eq!(diary[2..], ["publish t.dead-letter mail.dead-letter", "settle copied", "acknowledge"]);
    assert_eq!(header(&fake.published(), "reason").as_deref(), Some("crash: its worker died 5 times while it ran"));
}

#[rstest]
#[case::done(Outcome::Done, &["handler", "acknowledge"])]
#[case::retry(failure(), &["handler", "publish t.retry plain.1s", "acknowledge"])]
#[case::retry_after(
    Outcome::Retry { reason: "no luck".into(), after: Some(Duration::from_secs(5)) },
    &["handler", "publish t.scheduler plain.5s", "acknowledge"]
)]
#[case::requeue(
    Outcome::Requeue { at: "2026-06-01T12:00:05Z".parse().expect("a time"), reason: "later".into() },
    &["handler", "publish t.scheduler plain.5s", "acknowledge"]
)]
#[tokio::test]
async fn a_type_without_the_register_asks_it_nothing(#[case] outcome: Outcome, #[case] expected: &[&str]) {
    let fake = Arc::new(Fake::default());
    // Published when the type had a register.
    let competing = [("slot", Value::text("i")), ("version", Value::I64(7)), ("reference", Value::text("1234"))];
    fake.incoming.lock().expect("no panic").push(incoming("plain.now", &competing));
    assert_eq!(work(&fake, outcome.clone()).await, expected);
    if let Outcome::Requeue { .. } = outcome {
        assert_eq!(header(&fake.published(), "slot").as_deref(), Some("e:id-1"));
    }
    let (diary, unversioned) = publish(&fake, NewEvent::new("plain", "{}").reference("1234")).await;
    assert_eq!((diary[expected.len()..].join(""), unversioned), ("publish t.scheduler plain.now".to_owned(), false));
}

fn came_back(times: i64) -> (&'static str, Value) {
    ("x-delivery-count", Value::I64(times))
}

#[tokio::test]
async fn what_came_back_twice_without_a_register_is_put_aside_and_runs_there() {
    let fake = Arc::new(Fake::default());
    // In the order of the queue; what came back once starts as usual.
    let events =
        [incoming("plain.now", &[came_back(2), ("crashes", Value::I64(7))]), incoming("plain.now", &[came_back(1)])];
    fake.incoming.lock().expect("no panic").extend(events);
    let diary = work(&fake, Outcome::Done).await;
    let times = |what: &str| diary.iter().filter(|entry| *entry == what).count();
    assert_eq!((times("publish t.aside plain.aside"), times("handler"), times("acknowledge")), (1, 2, 3), "{diary:?}");
    assert_eq!(diary[diary.len() - 2..], ["handler", "acknowledge"], "the suspect runs when all else is settled");
    let copy = fake.published();
    assert_eq!(header(&copy, "reason").as_deref(), Some(crate::domain::settlement::suspect(2).as_str()));
    for gone in ["x-delivery-count", "crashes"] {
        assert_eq!(header(&copy, gone), None, "it is counted anew");
    }
}

#[rstest]
#[case::first_time_alone(&[], true)]
#[case::below_the_limit(&[came_back(2)], true)]
#[case::at_the_limit(&[came_back(3)], false)]
#[case::carried_over_a_stop(&[came_back(1), ("crashes", Value::I64(2))], false)]
#[tokio::test]
async fn what_killed_its_worker_alone_too_often_is_buried_and_not_started(
    #[case] headers: &[(&str, Value)],
    #[case] runs: bool,
) {
    let fake = Arc::new(Fake::default());
    fake.aside.lock().expect("no panic").push(incoming("plain.aside", headers));
    let diary = work(&fake, failure()).await;
    if runs {
        assert_eq!(diary, ["handler", "publish t.retry plain.1s", "acknowledge"]);
    } else {
        assert_eq!(diary, ["publish t.dead-letter plain.dead-letter", "acknowledge"]);
        let reason = header(&fake.published(), "reason").expect("a reason");
        assert!(reason.starts_with("crash: its worker died 3 times while it ran alone"), "{reason}");
    }
    assert_eq!(header(&fake.published(), "crashes"), None, "a copy that goes elsewhere begins afresh");
}

#[tokio::test]
async fn what_runs_alone_at_the_drain_limit_is_given_back_as_a_copy_that_knows_its_count() {
    let fake = Arc::new(Fake::default());
    fake.aside.lock().expect("no panic").push(incoming("plain.aside", &[came_back(1), ("crashes", Value::I64(1))]));
    let stop = CancellationToken::new();
    let (diary, told) = (fake.diary.clone(), stop.clone());
    let handler = move |_| {
        diary.note("handler");
        told.cancel();
        std::future::pending::<Result<Outcome, String>>()
    };
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).drain_timeout(Duration::ZERO);
    worker.handle("plain", handler).run(stop).await.expect("it was told to stop");
    assert_eq!(fake.diary.entries(), ["handler", "publish t.aside plain.aside", "acknowledge"]);
    assert_eq!(header(&fake.published(), "crashes").as_deref(), Some("2"));
}

#[tokio::test]
async fn tries_in_place_without_the_register_claim_nothing() {
    let fake = Arc::new(Fake { away: true, ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(incoming("quick.now", &[]));
    let expected = ["handler", "handler", "publish t.dead-letter quick.dead-letter", "acknowledge"];
    assert_eq!(work(&fake, failure()).await, expected);
    assert_eq!(header(&fake.published(), "attempts").as_deref(), Some("1"));
}

#[tokio::test]
async fn a_stop_between_two_tries_alone_leaves_the_reason_to_be_aside() {
    let fake = Arc::new(Fake::default());
    let headers = [came_back(1), ("crashes", Value::I64(1)), ("reason", Value::text("crash: why"))];
    fake.aside.lock().expect("no panic").push(incoming("quick.aside", &headers));
    let stop = CancellationToken::new();
    let (diary, told, tries) = (fake.diary.clone(), stop.clone(), AtomicUsize::new(0));
    let handler = move |_| {
        diary.note("handler");
        let last = tries.fetch_add(1, Ordering::SeqCst) == 1;
        let told = told.clone();
        async move {
            if !last {
                return Err("no luck");
            }
            told.cancel();
            std::future::pending::<Result<Outcome, &str>>().await
        }
    };
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).drain_timeout(Duration::ZERO);
    worker.handle("quick", handler).run(stop).await.expect("it was told to stop");
    assert_eq!(fake.diary.entries(), ["handler", "handler", "publish t.aside quick.aside", "acknowledge"]);
    let copy = fake.published();
    let carried = ["crashes", "attempts", "reason", "last_failure"].map(|name| header(&copy, name));
    let expected = ["2", "0", "crash: why", "2026-06-01T12:00:00.000Z no luck"];
    assert_eq!(carried, expected.map(|text| Some(text.to_owned())));
}

#[tokio::test]
async fn what_blocks_without_the_register_is_never_put_aside_and_claims_nothing() {
    let fake = Arc::new(Fake { away: true, ..Fake::default() });
    let mut second = incoming("exact.now", &[]);
    second.properties.message_id = Some("id-2".into());
    fake.incoming.lock().expect("no panic").extend([incoming("exact.now", &[came_back(200)]), second]);
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).stop_when_empty(true);
    let diary = fake.diary.clone();
    let handler = move |run: crate::handler::Run| {
        diary.note(format!("{} {}", run.event.id, run.event.attempts));
        async move { if run.event.id == "id-1" && run.event.attempts < 2 { Err("no luck") } else { Ok(Outcome::Done) } }
    };
    let summary = worker.handle("exact", handler).run(CancellationToken::new()).await.expect("it stops when empty");
    let expected = ["id-1 0", "id-1 1", "id-1 2", "acknowledge", "id-2 0", "acknowledge", "close"];
    assert_eq!(fake.diary.entries(), expected);
    assert_eq!((summary.done, summary.retried, summary.put_aside), (2, 2, 0));
}

#[tokio::test]
async fn what_comes_too_early_goes_back_for_what_remains() {
    let fake = Arc::new(Fake::default());
    let nbf = Value::text("2026-06-01T12:00:00.001Z");
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[("nbf", nbf)]));
    let diary = work(&fake, Outcome::Done).await;
    assert_eq!(diary.len(), 2, "{diary:?}");
    assert!(diary[0].starts_with("publish t.scheduler mail.250ms-27.0.0.0"), "{}", diary[0]);
    assert!(diary[0].ends_with(".0.1"), "{}", diary[0]);
}

#[tokio::test]
async fn what_is_no_event_is_buried_as_it_came() {
    let fake = Arc::new(Fake::default());
    let foreign = ("x-foreign", Value::Array(vec![Value::Bool(true)]));
    let headers = [("attempts", Value::text("many")), foreign.clone(), ("x-death", Value::Void)];
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &headers));
    let diary = work(&fake, Outcome::Done).await;
    assert_eq!(diary, ["publish t.dead-letter mail.dead-letter", "acknowledge"]);
    let buried = fake.published();
    assert_eq!(buried.properties.headers.get(foreign.0), Some(&foreign.1));
    assert_eq!(buried.properties.headers.get("x-death"), None);
    assert_eq!(header(&buried, "attempts").as_deref(), Some("many"));
    let reason = header(&buried, "reason").expect("a reason");
    assert!(reason.starts_with("poison: the header `attempts`"), "{reason}");
}

#[tokio::test]
async fn what_could_not_be_copied_is_left_to_the_broker_to_bury() {
    let fake = Arc::new(Fake::default());
    fake.incoming
        .lock()
        .expect("no panic")
        .push(incoming("mail.now", &[("x-large", Value::Text(vec![b'x'; 100_000]))]));
    assert_eq!(work(&fake, Outcome::Done).await, ["reject"]);
}

#[tokio::test]
async fn a_version_given_out_by_nobody_is_not_carried_on() {
    let stamp = crate::domain::register::Stamp::alone("id-1", 0);
    let run = Claimed::Run { fence: 9, crashes: 0, stamp };
    let fake = Arc::new(Fake { claims: Mutex::new(vec![run]), ..Fake::default() });
    fake.incoming.lock().expect("no panic").push(versioned());
    work(&fake, failure()).await;
    assert_eq!(header(&fake.published(), "slot").as_deref(), Some("e:id-1"));
    assert_eq!(header(&fake.published(), "version"), None);
}

#[tokio::test]
async fn a_panic_is_a_failure_of_the_event_alone() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).stop_when_empty(true);
    let handler = |run: crate::handler::Run| async move {
        assert!(run.fence < Some(0), "boom");
        Ok::<_, String>(Outcome::Done)
    };
    worker.handle("mail", handler).run(CancellationToken::new()).await.expect("the worker goes on");
    assert_eq!(fake.diary.entries()[1..], ["publish t.retry mail.1s", "settle copied", "acknowledge"]);
    let reason = header(&fake.published(), "reason").expect("a reason");
    assert!(reason.contains("error=\"panic: boom\""), "{reason}");
}

#[tokio::test]
async fn what_runs_at_the_drain_limit_is_released_and_given_back() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    let stop = CancellationToken::new();
    let (diary, told) = (fake.diary.clone(), stop.clone());
    let handler = move |_| {
        diary.note("handler");
        told.cancel();
        std::future::pending::<Result<Outcome, String>>()
    };
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).drain_timeout(Duration::ZERO);
    worker.handle("mail", handler).run(stop).await.expect("it was told to stop");
    assert_eq!(fake.diary.entries(), ["claim", "handler", "release", "give back"]);
}

#[tokio::test]
async fn a_handler_that_cannot_start_stops_the_worker_and_spends_no_attempt() {
    struct Missing;
    #[async_trait]
    impl crate::handler::Handler for Missing {
        async fn handle(&self, _: crate::handler::Run) -> Result<Outcome, crate::handler::HandlerError> {
            Err(crate::handler::HandlerError::CannotStart("gone".into()))
        }
    }
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("mail.now", &[]));
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon));
    let error = worker.handler("mail", Arc::new(Missing)).run(CancellationToken::new()).await;
    assert!(error.expect_err("it stops").to_string().contains("gone"));
    assert_eq!(fake.diary.entries(), ["claim", "release", "give back"]);
}

fn word(text: &str) -> crate::domain::words::EventType {
    text.parse().expect("a word")
}

#[tokio::test]
async fn the_queue_decides_the_type_of_a_message_that_was_moved_to_it_by_hand() {
    let fake = Arc::new(Fake::default());
    fake.incoming.lock().expect("no panic").push(incoming("t.processor.mail", &[]));
    let worker = Worker::new(topology(), fake.clone(), fake.clone(), Arc::new(Noon)).stop_when_empty(true);
    let handler = |run: crate::handler::Run| async move { Err::<Outcome, _>(run.event.event_type) };
    worker.handle("mail", handler).run(CancellationToken::new()).await.expect("it stops when empty");
    assert_eq!(fake.diary.entries()[1], "publish t.retry mail.1s");
    assert_eq!(fake.published().properties.kind.as_deref(), Some("mail"));
}

#[test]
fn an_event_is_read_as_it_is_written() {
    let full = Incoming {
        routing_key: "import.5s".into(),
        properties: Properties {
            message_id: Some("id-1".into()),
            kind: Some("import".into()),
            timestamp: Some(1_780_000_000),
            correlation_id: Some("c".into()),
            content_type: Some("text/plain".into()),
            headers: [
                ("reference", Value::text("1234")),
                ("created_at", Value::text("2026-05-28T20:26:40.123Z")),
                ("nbf", Value::text("2026-05-28T20:26:45.000Z")),
                ("attempts", Value::I64(2)),
                ("busy", Value::I64(1)),
                ("reason", Value::text("why")),
                ("slot", Value::text("i")),
                ("version", Value::I64(1_780_000_000_000_000)),
                ("generation", Value::I64(3)),
                ("traceparent", Value::text("00-1-2-01")),
                ("x-foreign", Value::F32(1.5)),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            ..Properties::default()
        },
        body: "payload".into(),
    };
    let event = wire::decode(&word("import"), full.clone(), Noon.now(), String::new).expect("an event");
    assert_eq!(event.stamp.slot, Slot::Immediate);
    assert_eq!((event.attempts, event.busy, event.stamp.generation), (2, 1, 3));
    assert_eq!(wire::encode(&event), full.properties);
    assert_eq!(event.payload, full.body);
}

#[test]
fn a_message_with_a_key_and_a_body_alone_is_an_event() {
    let bare = Incoming { routing_key: "mail.now".into(), properties: Properties::default(), body: "x".into() };
    let event = wire::decode(&word("mail"), bare, Noon.now(), || "fresh".into()).expect("an event");
    assert_eq!((event.id.as_str(), event.created_at, event.attempts), ("fresh", Noon.now(), 0));
    assert_eq!(event.stamp, crate::domain::register::Stamp::alone("fresh", 0));
}

#[rstest]
#[case::number_as_text("attempts", Value::text("1"))]
#[case::negative("generation", Value::I64(-1))]
#[case::no_time("nbf", Value::text("tomorrow"))]
#[case::text_as_number("reference", Value::I64(1234))]
#[case::no_reference("reference", Value::text(""))]
#[case::no_text("reason", Value::Text(vec![0xff]))]
#[case::no_slot("slot", Value::text("z"))]
#[case::boolean("version", Value::Bool(true))]
fn a_header_of_the_wrong_type_is_poison(#[case] name: &str, #[case] value: Value) {
    let poisoned = wire::decode(&word("mail"), incoming("mail.now", &[(name, value)]), Noon.now(), String::new);
    let (poison, _) = *poisoned.expect_err("no event");
    assert!(poison.to_string().starts_with("poison: "), "{poison}");
}

#[test]
fn a_long_reason_is_cut_between_two_characters() {
    let reason = "ä".repeat(800);
    assert_eq!(wire::cut_reason(&reason).len(), 1_000);
    assert_eq!(wire::cut_reason(&format!("x{reason}")).len(), 999);
}
