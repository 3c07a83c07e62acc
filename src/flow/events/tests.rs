//! What people do to events that wait, with a register in memory and a broker that keeps what is published.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use rstest::rstest;
use uuid::Uuid;

use super::{Events, EventsError, Moved, NotKept, Which};
use crate::{
    adapters::memory::MemoryRegister,
    domain::{
        event::Event,
        register::{
            Cancelled, Claim, Claimed, End, Note, Record, Reserve, Reserved, Settle, Slot, Stage, Stamp, Subject,
            search::{Filter, Known, State},
        },
        spec::Topology,
        wire::{self, Incoming, Message, Properties, kept},
    },
    ports::{Broker, BrokerError, Clock, Deliveries, Delivery, Order, Register},
};

const FILE: &str = "
version: 1
name: t
hatcheries: [1h]
ladder: { resolution: 250ms, horizon: 1d }
types:
  import: { coalesce: latest }
  newest: { coalesce: { delayed: latest } }
  mail: {}
  plain: { register: off }
";

/// Seconds since 1970. Tests begin at 1,000,000.
struct Now(AtomicI64);

impl Clock for Now {
    fn now(&self) -> Timestamp {
        second(self.0.load(Ordering::SeqCst))
    }
}

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

#[derive(Default)]
struct Kept {
    published: Mutex<Vec<Message>>,
    refuse: AtomicUsize,
}

#[async_trait]
impl Broker for Kept {
    async fn publish(&self, message: Message) -> Result<(), BrokerError> {
        if self.refuse.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(BrokerError::Missing { object: "t.scheduler".into() });
        }
        self.published.lock().expect("no panic").push(message);
        Ok(())
    }

    async fn consume(&self, _: &str, _: u16, _: Order) -> Result<Box<dyn Deliveries>, BrokerError> {
        unreachable!("nobody consumes")
    }

    async fn take(&self, _: &str) -> Result<Option<Delivery>, BrokerError> {
        unreachable!("nobody consumes")
    }

    async fn ready(&self, _: &str) -> Result<u64, BrokerError> {
        unreachable!("nobody looks")
    }

    async fn require(&self, _: &[String], _: &[String]) -> Result<(), BrokerError> {
        unreachable!("nobody looks")
    }
}

struct World {
    topology: Arc<Topology>,
    clock: Arc<Now>,
    register: Arc<MemoryRegister>,
    broker: Arc<Kept>,
    events: Events,
}

impl World {
    fn new() -> Self {
        let topology = Arc::new(crate::file::read(FILE, "topology.yaml").expect("a valid file"));
        let clock = Arc::new(Now(AtomicI64::new(1_000_000)));
        let register = Arc::new(MemoryRegister::new(clock.clone(), Duration::from_hours(24)));
        let broker = Arc::new(Kept::default());
        let events = Events::new(topology.clone(), broker.clone(), register.clone(), register.clone(), clock.clone());
        Self { topology, clock, register, broker, events }
    }

    fn at(&self, seconds: i64) -> Timestamp {
        self.clock.now() + Duration::from_secs(seconds.unsigned_abs())
    }

    /// Publishes an event into a slot as a publisher does it, and keeps its message if it is told to.
    async fn put(&self, event_type: &str, reference: &str, id: &str, slot: &str, keep: bool) -> Event {
        let slot: Slot = slot.parse().expect("a slot");
        let due = match slot {
            Slot::DatedAt(ms) | Slot::RequeuedAt(ms) => Timestamp::from_millisecond(ms).expect("a time"),
            _ => self.at(600),
        };
        let event_type: crate::domain::words::EventType = event_type.parse().expect("a word");
        let reference = Some(reference).filter(|r| !r.is_empty()).map(|r| r.parse().expect("a reference"));
        let subject = Subject { event_type: event_type.clone(), reference: reference.clone(), id: id.into() };
        let terms = self.topology.types[&event_type].terms(&self.topology.redis);
        let mut stamp = Stamp::alone(id, 0);
        if !matches!(slot, Slot::Event(_)) {
            let ask = Reserve { subject: subject.clone(), slot: slot.clone(), due, asked_by: None, terms };
            let Reserved::Version(version) = self.register.reserve(&[ask]).await.expect("it answers")[0] else {
                unreachable!("nobody asks")
            };
            stamp = Stamp { slot: slot.clone(), version, generation: 0 };
        }
        let message = Incoming {
            routing_key: event_type.to_string(),
            properties: Properties { message_id: Some(id.into()), ..Properties::default() },
            body: format!("payload of {id}").into(),
        };
        let event = wire::decode(&event_type, message, self.clock.now(), String::new).expect("an event");
        let event = Event { reference, nbf: Some(due), stamp: stamp.clone(), ..event };
        let kept = kept::of(&event, keep.then_some(4_096));
        let record = Record { subject, slot, version: stamp.version, due, reason: None, kept, terms };
        self.register.record(&[record]).await.expect("it answers");
        event
    }

    async fn claim(&self, event: &Event) -> Claimed {
        let claim = Claim {
            subject: event.subject(),
            stamp: event.stamp.clone(),
            token: Uuid::now_v7(),
            due: event.due(),
            alone: false,
            terms: self.topology.types[&event.event_type].terms(&self.topology.redis),
        };
        self.register.claim(&[claim]).await.expect("it answers").remove(0)
    }

    /// Runs an event that fails, up to this stage.
    async fn fail(&self, event: &Event, stage: Stage, attempts: u32) -> Event {
        self.fail_as(event, Note { stage, attempts, reason: Some(format!("attempt={attempts}")) }).await
    }

    async fn fail_as(&self, event: &Event, note: Note) -> Event {
        let Claimed::Run { fence, stamp, .. } = self.claim(event).await else { unreachable!("it is wanted") };
        let attempts = note.attempts;
        let settle = Settle {
            subject: event.subject(),
            stamp,
            fence,
            token: Uuid::nil(),
            due: event.due(),
            end: End::Copied { due: self.at(60), note },
            terms: self.topology.types[&event.event_type].terms(&self.topology.redis),
        };
        self.register.settle(&[settle]).await.expect("it answers");
        self.register.with_shard(|shard| shard.leases.clear());
        Event { stamp: event.stamp.next(), attempts, nbf: None, ..event.clone() }
    }

    /// What was published, each with its exchange and routing key.
    fn sent(&self) -> Vec<(String, Event)> {
        let published = self.broker.published.lock().expect("no panic").clone();
        let read = |message: Message| {
            let Message { exchange, routing_key, properties, body } = message;
            let event_type = routing_key.split('.').next().expect("a type").parse().expect("a word");
            let incoming = Incoming { routing_key: routing_key.clone(), properties, body };
            let event = wire::decode(&event_type, incoming, self.clock.now(), String::new).expect("an event");
            (format!("{exchange} {routing_key}"), event)
        };
        published.into_iter().map(read).collect()
    }

    async fn found(&self, filter: &Filter) -> Vec<Known> {
        self.events.search(filter).try_collect().await.expect("it answers")
    }

    async fn ids(&self, filter: &Filter) -> Vec<String> {
        self.found(filter).await.into_iter().filter_map(|event| event.id).collect()
    }
}

fn of_1234() -> Which {
    Which::reference("import", "1234")
}

fn waits(slot: &str) -> Cancelled {
    Cancelled { slot: slot.parse().expect("a slot"), waiting: true, running: false }
}

#[tokio::test]
async fn a_search_goes_by_due_time_over_all_types_and_pages() {
    let world = World::new();
    let mut expected = Vec::new();
    for n in 0..1_200_i64 {
        let (event_type, reference) = if n % 3 == 0 { ("newest", "d") } else { ("import", "") };
        let slot = if n % 3 == 0 { "d".to_owned() } else { format!("d:{}", 1_000_000_000 + n * 1_000) };
        let reference = if reference.is_empty() { "1234".to_owned() } else { format!("{n:04}") };
        world.put(event_type, &reference, &n.to_string(), &slot, false).await;
        expected.push(n.to_string());
    }
    let all = world.found(&Filter::default()).await;
    assert_eq!(all.len(), 1_200);
    assert!(all.is_sorted_by_key(|event| event.due));
    let mut ids: Vec<String> = all.into_iter().filter_map(|event| event.id).collect();
    ids.sort_by_key(|id| id.parse::<u32>().expect("a number"));
    assert_eq!(ids, expected);
    let some = Filter::default().event_type("newest").reference_prefix("000");
    assert_eq!(world.ids(&some).await, ["0", "3", "6", "9"]);
}

#[tokio::test]
async fn events_of_a_reference_are_found_whether_they_compete_or_not() {
    let world = World::new();
    world.put("newest", "7", "dated", "d", false).await;
    world.put("newest", "7", "alone", "e:alone", false).await;
    world.put("newest", "8", "other", "d", false).await;
    world.put("import", "7", "another type", "i", false).await;
    let mut ids = world.ids(&Filter::default().event_type("newest").reference("7")).await;
    ids.sort();
    assert_eq!(ids, ["alone", "dated"]);
    for id in ["dated", "alone"] {
        assert_eq!(world.ids(&Filter::default().event_type("newest").id(id)).await, [id]);
        let which = Which::id("newest", id);
        assert_eq!(world.events.show(&which.clone().of("7")).await.expect("known").len(), 1);
        assert_eq!(world.events.show(&which).await.expect("known").len(), 1);
    }
}

#[rstest]
#[case(Which::reference("improt", "1"), "is it `import`?")]
#[case(Which::reference("plain", "1"), "register: off")]
#[case(Which::reference("import", ""), "1 to 255 bytes")]
#[case(Which::id("import", ""), "1 to 255 bytes")]
#[case(Which::reference("mail", "1").immediate(), "by its id")]
#[tokio::test]
async fn what_cannot_be_is_refused(#[case] which: Which, #[case] why: &str) {
    let error = World::new().events.cancel(&which).await.expect_err("refused").to_string();
    assert!(error.contains(why), "{error}");
}

#[tokio::test]
async fn a_cancelled_reference_starts_nothing() {
    let world = World::new();
    let events = [
        world.put("import", "1234", "now", "i", false).await,
        world.put("import", "1234", "june", "d:1001000000", false).await,
    ];
    let other = world.put("import", "5678", "other", "i", false).await;
    let mut cancelled = world.events.cancel(&of_1234()).await.expect("it answers");
    cancelled.sort_by_key(|slot| slot.slot.to_string());
    assert_eq!(cancelled, [waits("d:1001000000"), waits("i")]);
    for event in &events {
        assert_eq!(world.claim(event).await, Claimed::Stale);
    }
    assert!(matches!(world.claim(&other).await, Claimed::Run { .. }));
    assert_eq!(world.ids(&Filter::default()).await, ["other"]);
    let shown = world.events.show(&of_1234()).await.expect("it answers");
    assert!(shown.len() == 2 && shown.iter().all(|event| event.state == State::Cancelled), "{shown:?}");
    // Nothing waits any more.
    let again = world.events.cancel(&of_1234()).await.expect("it answers");
    assert!(again.iter().all(|slot| !slot.waiting && !slot.running), "{again:?}");
    // What is published from now on is another matter.
    let later = world.put("import", "1234", "later", "i", false).await;
    assert!(matches!(world.claim(&later).await, Claimed::Run { .. }));
}

#[tokio::test]
async fn one_slot_is_cancelled_and_the_others_stay() {
    let world = World::new();
    let now = world.put("import", "1234", "now", "i", false).await;
    let june = world.put("import", "1234", "june", "d:1001000000", false).await;
    let july = world.put("import", "1234", "july", "d:1002000000", false).await;
    let cancelled = world.events.cancel(&of_1234().at(second(1_001_000))).await.expect("it answers");
    assert_eq!(cancelled, [waits("d:1001000000")]);
    assert_eq!(world.claim(&june).await, Claimed::Stale);
    assert_eq!(world.events.cancel(&of_1234().immediate()).await.expect("it answers"), [waits("i")]);
    assert_eq!(world.claim(&now).await, Claimed::Stale);
    assert!(matches!(world.claim(&july).await, Claimed::Run { .. }));
}

#[tokio::test]
async fn events_that_compete_with_nothing_go_with_their_reference_or_by_their_ids() {
    let world = World::new();
    let events = [
        world.put("mail", "ann", "a", "e:a", false).await,
        world.put("mail", "ann", "b", "e:b", false).await,
        world.put("mail", "", "c", "e:c", false).await,
    ];
    assert_eq!(world.events.cancel(&Which::id("mail", "c")).await.expect("it answers"), [waits("e:c")]);
    let mut cancelled = world.events.cancel(&Which::reference("mail", "ann")).await.expect("it answers");
    cancelled.sort_by_key(|slot| slot.slot.to_string());
    assert_eq!(cancelled, [waits("e:a"), waits("e:b")]);
    for event in &events {
        assert_eq!(world.claim(event).await, Claimed::Stale);
    }
}

#[tokio::test]
async fn what_the_register_has_never_heard_of_is_cancelled_by_its_id() {
    let world = World::new();
    let unknown = Cancelled { slot: Slot::Event("x".into()), waiting: false, running: false };
    assert_eq!(world.events.cancel(&Which::id("mail", "x")).await.expect("it answers"), [unknown]);
    let event = world.put("mail", "", "x", "e:x", false).await;
    assert_eq!(world.claim(&event).await, Claimed::Stale);
    // As long as the longest delay there is.
    world.clock.0.fetch_add(86_400, Ordering::SeqCst);
    assert_eq!(world.claim(&event).await, Claimed::Stale);
}

#[tokio::test]
async fn an_id_of_a_slot_cancels_that_slot_and_remembers_nothing_else() {
    let world = World::new();
    let event = world.put("import", "1234", "a", "i", false).await;
    assert_eq!(world.events.cancel(&Which::id("import", "a")).await.expect("it answers"), [waits("i")]);
    assert_eq!(world.claim(&event).await, Claimed::Stale);
    assert_eq!(world.register.with_shard(|shard| shard.slots.len()), 1);
}

#[tokio::test]
async fn what_runs_is_told_and_goes_on() {
    let world = World::new();
    let event = world.put("import", "1234", "a", "i", true).await;
    world.claim(&event).await;
    assert_eq!(world.found(&Filter::default().state(State::Running)).await.len(), 1);
    for moved in [
        world.events.run_now(&of_1234()).await.expect("it answers"),
        world.events.reschedule(&of_1234(), world.at(5)).await.expect("it answers"),
    ] {
        assert!(matches!(&moved[..], [(_, Moved::Running)]), "{moved:?}");
    }
    let running = Cancelled { slot: Slot::Immediate, waiting: false, running: true };
    assert_eq!(world.events.cancel(&of_1234()).await.expect("it answers"), [running]);
    assert!(world.sent().is_empty());
}

#[tokio::test]
async fn all_that_a_filter_finds_is_cancelled_once() {
    let world = World::new();
    let mut events = Vec::new();
    for n in 0..1_000 {
        events.push(world.put("import", &format!("{n:04}"), &n.to_string(), "d:1001000000", false).await);
    }
    let filter = Filter::default().reference_prefix("00");
    let cancelled: Vec<_> = world.events.cancel_all(&filter).try_collect().await.expect("it answers");
    assert_eq!(cancelled.len(), 100);
    assert!(cancelled.iter().all(|(_, slot)| slot.waiting && !slot.running));
    for (n, event) in events.iter().enumerate() {
        assert_eq!(world.claim(event).await == Claimed::Stale, n < 100, "{n}");
    }
}

#[rstest]
// Into a slot of its own date, where the former copy is done with.
#[case("import", "i", true, "q:1000100000")]
#[case("import", "d:1001000000", true, "q:1000100000")]
#[case("import", "q:1001000000", true, "q:1000100000")]
// Whatever its date.
#[case("newest", "d", false, "d")]
#[case("mail", "e:a", false, "e:a")]
#[tokio::test]
async fn a_reschedule_replaces_the_former_copy(
    #[case] event_type: &str,
    #[case] slot: &str,
    #[case] is_new: bool,
    #[case] expected: &str,
) {
    let world = World::new();
    let former = world.put(event_type, "1234", "a", slot, true).await;
    let former = world.fail(&former, Stage::Retry, 2).await;
    let at = second(1_000_100);
    let moved = world.events.reschedule(&Which::id(event_type, "a").of("1234"), at).await.expect("it answers");
    assert!(matches!(&moved[..], [(_, Moved::Done)]), "{moved:?}");
    let sent = world.sent();
    let [(way, copy)] = &sent[..] else { panic!("{sent:?}") };
    assert!(way.starts_with(&format!("t.scheduler {event_type}.250ms-19.")), "{way}");
    assert_eq!((copy.stamp.slot.to_string().as_str(), copy.nbf, copy.attempts), (expected, Some(at), 0));
    assert_eq!((copy.id.as_str(), &copy.payload[..]), ("a", &b"payload of a"[..]));
    assert_eq!(copy.stamp.generation, if is_new { 0 } else { 2 });
    assert_eq!(copy.stamp.version > former.stamp.version, is_new);
    assert!(copy.reason.as_deref().is_some_and(|reason| reason.contains("was=\"attempt=2\"")), "{copy:?}");

    let found = world.found(&Filter::default()).await;
    let [event] = &found[..] else { panic!("{found:?}") };
    assert_eq!((event.due, event.attempts, event.state, event.id.as_deref()), (Some(at), 0, State::Waiting, Some("a")));
    assert_eq!(event.copy.as_ref(), Some(&copy.stamp));
    assert_eq!(world.claim(&former).await, Claimed::Stale);
    assert!(matches!(world.claim(copy).await, Claimed::Run { .. }));
}

#[tokio::test]
async fn what_was_rescheduled_can_be_rescheduled() {
    let world = World::new();
    world.put("import", "1234", "a", "i", true).await;
    for at in [1_000_300, 1_000_200] {
        let moved = world.events.reschedule(&of_1234(), second(at)).await.expect("it answers");
        assert!(matches!(&moved[..], [(_, Moved::Done)]), "{moved:?}");
    }
    let (sent, found) = (world.sent(), world.found(&Filter::default()).await);
    assert_eq!((sent.len(), found.len(), found[0].due), (2, 1, Some(second(1_000_200))));
    assert_eq!(world.claim(&sent[0].1).await, Claimed::Stale);
    assert!(matches!(world.claim(&sent[1].1).await, Claimed::Run { .. }));
}

#[rstest]
#[case("import", "i")]
#[case("newest", "d")]
#[case("mail", "e:a")]
#[tokio::test]
async fn run_now_is_the_next_generation_of_the_same_event(#[case] event_type: &str, #[case] slot: &str) {
    let world = World::new();
    let former = world.put(event_type, "1234", "a", slot, true).await;
    let former = world.fail(&former, Stage::Retry, 2).await;
    let moved = world.events.run_now(&Which::id(event_type, "a").of("1234")).await.expect("it answers");
    assert!(matches!(&moved[..], [(_, Moved::Done)]), "{moved:?}");
    let sent = world.sent();
    let [(way, copy)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(way, &format!("t.scheduler {event_type}.now"));
    assert_eq!((copy.nbf, copy.attempts, &copy.stamp), (None, 2, &former.stamp.next()));
    assert_eq!(world.claim(&former).await, Claimed::Stale);
    assert!(matches!(world.claim(copy).await, Claimed::Run { .. }));
}

#[tokio::test]
async fn without_its_payload_an_event_is_put_off_and_nothing_else() {
    let world = World::new();
    let event = world.put("import", "1234", "a", "d:1001000000", false).await;
    let earlier = world.events.reschedule(&of_1234(), second(1_000_500)).await.expect("it answers");
    assert!(matches!(&earlier[..], [(_, Moved::NotKept(NotKept::Earlier))]), "{earlier:?}");
    let now = world.events.run_now(&of_1234()).await.expect("it answers");
    assert!(matches!(&now[..], [(_, Moved::NotKept(NotKept::Now))]), "{now:?}");
    let later = world.events.reschedule(&of_1234(), second(1_002_000)).await.expect("it answers");
    assert!(matches!(&later[..], [(_, Moved::Done)]), "{later:?}");
    assert!(world.sent().is_empty());
    assert_eq!(world.found(&Filter::default()).await[0].due, Some(second(1_002_000)));
    assert_eq!(world.claim(&event).await, Claimed::Later(second(1_002_000)));
}

#[tokio::test]
async fn a_dead_letter_is_brought_back_with_its_payload_alone() {
    let world = World::new();
    for (id, keep) in [("kept", true), ("lost", false)] {
        let event = world.put("mail", "", id, &format!("e:{id}"), keep).await;
        world.fail(&event, Stage::DeadLetter, 6).await;
    }
    assert_eq!(world.ids(&Filter::default().state(State::DeadLetter)).await, ["kept", "lost"]);
    let found = world.found(&Filter::default()).await;
    for (at, missing) in [(None, NotKept::Now), (Some(world.at(900)), NotKept::DeadLetter)] {
        assert_eq!(world.events.not_kept(&found, at).await.expect("it answers"), [None, Some(missing)]);
    }
    let lost = world.events.reschedule(&Which::id("mail", "lost"), world.at(900)).await.expect("it answers");
    assert!(matches!(&lost[..], [(_, Moved::NotKept(NotKept::DeadLetter))]), "{lost:?}");
    let kept = world.events.run_now(&Which::id("mail", "kept")).await.expect("it answers");
    assert!(matches!(&kept[..], [(_, Moved::Done)]), "{kept:?}");
    assert_eq!(world.sent()[0].1.attempts, 6);
}

#[tokio::test]
async fn a_message_that_is_not_of_the_copy_that_is_shown_is_not_sent() {
    let world = World::new();
    let event = world.put("import", "1234", "a", "i", true).await;
    // A newer one, of which the index has not heard yet.
    world.register.with_shard(|shard| {
        for slot in shard.slots.values_mut() {
            slot.newest += 1;
        }
    });
    let moved = world.events.run_now(&of_1234()).await.expect("it answers");
    assert!(matches!(&moved[..], [(_, Moved::NotKept(_))]), "{moved:?}");
    assert_eq!(world.claim(&event).await, Claimed::Replaced);
}

#[tokio::test]
async fn what_the_broker_does_not_confirm_keeps_its_former_copy() {
    let world = World::new();
    let mut events = Vec::new();
    for n in 0..3 {
        events.push(world.put("import", &n.to_string(), &n.to_string(), "i", true).await);
    }
    world.broker.refuse.store(1, Ordering::SeqCst);
    let all: Vec<Result<_, _>> = {
        use futures_util::StreamExt as _;
        world.events.reschedule_all(&Filter::default(), second(1_000_900)).collect().await
    };
    assert!(matches!(&all[..], [Err(EventsError::Publish(_))]), "{all:?}");
    let mut stale = 0;
    for event in &events {
        stale += usize::from(world.claim(event).await == Claimed::Stale);
    }
    assert_eq!((stale, world.sent().len()), (2, 2));
}

#[tokio::test]
async fn all_that_a_filter_finds_is_moved_once() {
    let world = World::new();
    for n in 0..1_000 {
        world.put("import", &n.to_string(), &n.to_string(), &format!("d:{}", 1_000_100_000 + n), true).await;
    }
    // Into the midst of what is looked through.
    let at = Timestamp::from_millisecond(1_000_100_800).expect("a time");
    let moved: Vec<_> = world.events.reschedule_all(&Filter::default(), at).try_collect().await.expect("it answers");
    assert_eq!((moved.len(), world.sent().len()), (999, 999));
    assert!(moved.iter().all(|(_, moved)| *moved == Moved::Done));
    assert!(world.found(&Filter::default()).await.iter().all(|event| event.due == Some(at)));
    let moved: Vec<_> = world.events.run_now_all(&Filter::default()).try_collect().await.expect("it answers");
    assert_eq!((moved.len(), world.sent().len()), (1_000, 1_999));
}

/// Which events wait, each at its time in ms.
async fn times(world: &World) -> Vec<(String, i64)> {
    let found = world.found(&Filter::default()).await;
    found.into_iter().map(|event| (event.id.expect("known"), event.due.expect("known").as_millisecond())).collect()
}

#[tokio::test]
async fn events_of_a_reference_that_go_to_one_time_all_run() {
    let world = World::new();
    for (id, slot) in [("late", "d:1003000000"), ("early", "d:1001000000"), ("now", "i")] {
        world.put("import", "1234", id, slot, true).await;
    }
    world.put("import", "5678", "other", "i", true).await;
    let at = second(1_002_000);
    world.events.reschedule(&of_1234(), at).await.expect("it answers");
    world.events.reschedule(&Which::reference("import", "5678"), at).await.expect("it answers");
    let from = |n: i64| 1_002_000_000 + n;
    let named = |id: &str, n: i64| (id.to_owned(), from(n));
    let mut expected = [named("now", 0), named("early", 1), named("late", 2), named("other", 0)];
    expected.sort();
    let sorted = async || {
        let mut times = times(&world).await;
        times.sort();
        times
    };
    assert_eq!(sorted().await, expected);
    // Each stays where it is when it is asked for again, and another one gets a place of its own.
    world.put("import", "1234", "another", "d:1001000000", true).await;
    let again = world.events.reschedule(&of_1234(), at).await.expect("it answers");
    assert!(again.len() == 4 && again.iter().all(|(_, moved)| *moved == Moved::Done), "{again:?}");
    assert_eq!(world.sent().len(), 5);
    assert!(sorted().await.contains(&named("another", 3)));
    for (_, event) in world.sent() {
        assert!(matches!(world.claim(&event).await, Claimed::Run { .. }), "{event:?}");
        world.register.with_shard(|shard| shard.leases.clear());
    }
}

#[tokio::test]
async fn a_filter_that_finds_many_dates_of_a_reference_loses_none_of_them() {
    let world = World::new();
    for n in 0..600 {
        world.put("import", "1234", &format!("{n:03}"), &format!("d:{}", 1_000_100_000 + n), true).await;
    }
    // Some of them are found again where they have been brought.
    let at = Timestamp::from_millisecond(1_000_100_300).expect("a time");
    let moved: Vec<_> = world.events.reschedule_all(&Filter::default(), at).try_collect().await.expect("it answers");
    assert!(moved.iter().all(|(_, moved)| *moved == Moved::Done));
    let times = times(&world).await;
    assert_eq!(times.len(), 600);
    let distinct: std::collections::BTreeSet<i64> = times.iter().map(|(_, at)| *at).collect();
    // One was due at that time already, and keeps its slot beside the first one that comes.
    assert_eq!((moved.len(), distinct.len()), (599, 599));
    assert!(*distinct.first().expect("some") >= 1_000_100_300);
}

#[tokio::test]
async fn a_reschedule_that_broke_off_is_put_right_by_the_next() {
    let world = World::new();
    world.put("import", "1234", "first", "d:1001000000", true).await;
    let second_copy = world.put("import", "1234", "second", "d:1001500000", true).await;
    let at = second(1_002_000);
    world.events.reschedule(&of_1234(), at).await.expect("it answers");
    // As if the former copy of the second had not been settled.
    let again = world.put("import", "1234", "second", "d:1001500000", true).await;
    world.events.reschedule(&of_1234(), at).await.expect("it answers");
    assert_eq!(times(&world).await, [("first".to_owned(), 1_002_000_000), ("second".to_owned(), 1_002_000_001)]);
    let sent = world.sent();
    assert_eq!(sent.len(), 3);
    for event in [&second_copy, &again] {
        assert_eq!(world.claim(event).await, Claimed::Stale);
    }
    assert_eq!(world.claim(&sent[1].1).await, Claimed::Replaced);
    assert!(matches!(world.claim(&sent[2].1).await, Claimed::Run { .. }));
}

#[tokio::test]
async fn what_runs_now_goes_in_the_order_of_its_due_times() {
    let world = World::new();
    for (id, slot) in [("c", "d:1003000000"), ("a", "i"), ("b", "d:1002000000")] {
        world.put("import", "1234", id, slot, true).await;
    }
    world.events.run_now(&of_1234()).await.expect("it answers");
    let ids: Vec<String> = world.sent().into_iter().map(|(_, event)| event.id).collect();
    assert_eq!(ids, ["a", "b", "c"]);
}

#[rstest]
#[case("import", "i", Which::id("import", "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11").of("5678"))]
#[case("import", "i", Which::id("import", "0197C5E2-8A55-7C1F-9A3E-6F2F6D8F1B11"))]
#[case("mail", "e:0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11", Which::id("mail", "0197C5E2-8A55-7C1F-9A3E-6F2F6D8F1B11").of("1234"))]
#[case("mail", "e:0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11", Which::id("mail", "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11").of("5678"))]
#[tokio::test]
async fn an_event_that_is_known_by_another_name_is_not_cancelled(
    #[case] event_type: &str,
    #[case] slot: &str,
    #[case] which: Which,
) {
    let world = World::new();
    let event = world.put(event_type, "1234", "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11", slot, false).await;
    let before = world.register.with_shard(|shard| shard.slots.clone());
    let error = world.events.cancel(&which).await.expect_err("refused").to_string();
    assert!(error.contains("0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11 of 1234"), "{error}");
    assert_eq!(world.register.with_shard(|shard| shard.slots.clone()), before);
    assert!(matches!(world.claim(&event).await, Claimed::Run { .. }));
}

/// How an event was published, seen from a cancel.
enum Published {
    WithoutRedis,
    BeforeRedisWasEmptied,
}

// The table in docs/operations.md.
#[rstest]
#[case::id("import", "d:1001000000", Published::WithoutRedis, Which::id("import", "x"), true)]
#[case::id_of("import", "i", Published::WithoutRedis, Which::id("import", "x").of("1234"), true)]
#[case::id("mail", "e:x", Published::WithoutRedis, Which::id("mail", "x"), true)]
#[case::id_emptied("import", "d:1001000000", Published::BeforeRedisWasEmptied, Which::id("import", "x"), false)]
#[case::id_emptied("mail", "e:x", Published::BeforeRedisWasEmptied, Which::id("mail", "x"), true)]
#[case::at("import", "d:1001000000", Published::WithoutRedis, of_1234().at(second(1_001_000)), false)]
#[case::at_emptied("import", "d:1001000000", Published::BeforeRedisWasEmptied, of_1234().at(second(1_001_000)), true)]
#[case::at_emptied("import", "q:1001000000", Published::BeforeRedisWasEmptied, of_1234().at(second(1_001_000)), false)]
#[case::at_emptied("newest", "d", Published::BeforeRedisWasEmptied, of("newest").at(second(1_000_600)), false)]
#[case::at("mail", "e:x", Published::WithoutRedis, of("mail").at(second(1_000_600)), false)]
#[case::at_emptied("mail", "e:x", Published::BeforeRedisWasEmptied, of("mail").at(second(1_000_600)), false)]
#[case::immediate("import", "i", Published::WithoutRedis, of_1234().immediate(), false)]
#[case::immediate_emptied("import", "i", Published::BeforeRedisWasEmptied, of_1234().immediate(), true)]
#[case::reference("import", "i", Published::WithoutRedis, of_1234(), false)]
#[case::reference_emptied("import", "i", Published::BeforeRedisWasEmptied, of_1234(), false)]
#[case::reference_emptied("mail", "e:x", Published::BeforeRedisWasEmptied, of("mail"), false)]
#[tokio::test]
async fn what_redis_does_not_know_is_reached_as_the_docs_say(
    #[case] event_type: &str,
    #[case] slot: &str,
    #[case] how: Published,
    #[case] which: Which,
    #[case] is_reached: bool,
) {
    let mut world = World::new();
    let mut event = world.put(event_type, "1234", "x", slot, false).await;
    if matches!(how, Published::WithoutRedis) {
        event.stamp = Stamp::alone("x", 0);
    }
    // Nothing of it is known.
    let register = Arc::new(MemoryRegister::new(world.clock.clone(), Duration::from_hours(24)));
    let (topology, broker) = (world.topology.clone(), world.broker.clone());
    world.events = Events::new(topology, broker, register.clone(), register.clone(), world.clock.clone());
    world.register = register;
    world.events.cancel(&which).await.expect("it answers");
    assert_eq!(world.claim(&event).await == Claimed::Stale, is_reached);
}

fn of(event_type: &str) -> Which {
    Which::reference(event_type, "1234")
}

#[tokio::test]
async fn a_reason_tells_of_the_last_move_and_of_what_was_before_the_first() {
    let world = World::new();
    let event = world.put("mail", "", "a", "e:a", true).await;
    let reason = async || world.found(&Filter::default()).await.remove(0).reason.expect("known");
    world.events.reschedule(&Which::id("mail", "a"), world.at(900)).await.expect("it answers");
    let moved = "reschedule: asked_at=1970-01-12T13:46:40.000Z";
    assert_eq!(reason().await, moved);
    let (_, copy) = world.sent().remove(0);
    assert_eq!(world.claim(&event).await, Claimed::Stale);
    let reason_text = Some("retry: error=\"C:\\x\"".to_owned());
    world.fail_as(&copy, Note { stage: Stage::Retry, attempts: 1, reason: reason_text }).await;
    for seconds in [1_000, 1_100, 1_200] {
        world.events.reschedule(&Which::id("mail", "a"), world.at(seconds)).await.expect("it answers");
        assert_eq!(reason().await, format!("{moved} was=\"retry: error=\\\"C:\\\\x\\\"\""));
    }
}

#[rstest]
#[case("import", "i", of_1234())]
#[case("mail", "e:a", Which::id("mail", "a"))]
#[tokio::test]
async fn a_run_that_goes_on_is_told_again_as_long_as_it_does(
    #[case] event_type: &str,
    #[case] slot: &str,
    #[case] which: Which,
) {
    let world = World::new();
    let event = world.put(event_type, "1234", "a", slot, false).await;
    world.claim(&event).await;
    for _ in 0..2 {
        let cancelled = world.events.cancel(&which).await.expect("it answers");
        assert!(matches!(&cancelled[..], [Cancelled { waiting: false, running: true, .. }]), "{cancelled:?}");
        let shown = world.events.show(&which).await.expect("it answers");
        assert!(matches!(&shown[..], [Known { state: State::Cancelled, running: true, .. }]), "{shown:?}");
    }
    world.register.with_shard(|shard| shard.leases.clear());
    let cancelled = world.events.cancel(&which).await.expect("it answers");
    assert!(cancelled.iter().all(|slot| !slot.running), "{cancelled:?}");
}
