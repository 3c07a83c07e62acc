//! Events in a register and a broker in memory, as people find them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use hatchery::{
    BrokerError, CopyVersion, DedupSlot, Event, EventType, Events, Topology,
    internals::{
        compile::compile,
        memory::{MemoryBroker, MemoryRegister, script::Script},
        ports::{Clock, Register as _},
        register::{Claim, ClaimAnswer, End, Note, Record, Reserve, Reserved, Settle, Stage, Subject},
        wire::{self, Incoming, Message, Properties, kept},
    },
};
use jiff::Timestamp;
use uuid::Uuid;

const FILE: &str = "
version: 1
name: t
hatcheries: [1h]
ladder: { resolution: 250ms, horizon: 1d }
types:
  import: { coalesce: latest }
  newest: { coalesce: { delayed: latest } }
  first: { coalesce: first }
  mail: {}
  plain: { register: off }
";

/// Seconds since 1970. Tests begin at 1,000,000.
pub(crate) struct Now(pub(crate) AtomicI64);

impl Clock for Now {
    fn now(&self) -> Timestamp {
        second(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

pub(crate) struct World {
    pub(crate) topology: Arc<Topology>,
    pub(crate) clock: Arc<Now>,
    pub(crate) register: Arc<MemoryRegister>,
    pub(crate) broker: Arc<MemoryBroker>,
    pub(crate) script: Arc<Script>,
    pub(crate) events: Events,
}

impl World {
    pub(crate) fn new() -> Self {
        let topology = Arc::new(hatchery::file::read(FILE, "topology.yaml").expect("a valid file"));
        let clock = Arc::new(Now(AtomicI64::new(1_000_000)));
        let script = Arc::new(Script::default());
        let register = MemoryRegister::scripted(clock.clone(), Duration::from_hours(24), script.clone());
        let desired = compile(&topology).expect("a safe topology");
        let broker = Arc::new(MemoryBroker::scripted(&desired, clock.clone(), script.clone()));
        let register = Arc::new(register);
        let events = Events::new(topology.clone(), broker.clone(), register.clone(), register.clone(), clock.clone());
        Self { topology, clock, register, broker, script, events }
    }

    /// Does this at each publish.
    pub(crate) fn on_publish(&self, then: impl FnMut(&Message) -> Result<(), BrokerError> + Send + 'static) {
        *self.script.on_publish.lock().expect("no panic") = Some(Box::new(then));
    }

    /// The broker refuses the next publish.
    pub(crate) fn refuse_one(&self) {
        let mut refuses = true;
        self.on_publish(move |_| {
            if std::mem::take(&mut refuses) {
                return Err(BrokerError::Missing { object: "t.scheduler".into() });
            }
            Ok(())
        });
    }

    pub(crate) fn at(&self, seconds: i64) -> Timestamp {
        self.clock.now() + Duration::from_secs(seconds.unsigned_abs())
    }

    /// Publishes an event into a slot as a publisher does it, and keeps its message if it is told to.
    pub(crate) async fn put(&self, event_type: &str, reference: &str, id: &str, slot: &str, keep: bool) -> Event {
        let due = match slot.parse().expect("a slot") {
            DedupSlot::DatedAt(ms) | DedupSlot::RequeuedAt(ms) => Timestamp::from_millisecond(ms).expect("a time"),
            _ => self.at(600),
        };
        self.put_at(due, event_type, reference, id, slot, keep).await
    }

    /// Publishes an event for this date.
    pub(crate) async fn put_at(
        &self,
        due: Timestamp,
        event_type: &str,
        reference: &str,
        id: &str,
        slot: &str,
        keep: bool,
    ) -> Event {
        let slot: DedupSlot = slot.parse().expect("a slot");
        let event_type: EventType = event_type.parse().expect("a word");
        let reference = Some(reference).filter(|r| !r.is_empty()).map(|r| r.parse().expect("a reference"));
        let subject = Subject { event_type: event_type.clone(), reference: reference.clone(), id: id.into() };
        let terms = self.topology.types[&event_type].terms(&self.topology.redis);
        let mut stamp = CopyVersion::uncontested(id, 0);
        if !matches!(slot, DedupSlot::Event(_)) {
            let ask = Reserve { subject: subject.clone(), slot: slot.clone(), due, asked_by: None, terms };
            let Reserved::Version(version) = self.register.reserve(&[ask]).await.expect("it answers")[0] else {
                unreachable!("nobody asks")
            };
            stamp = CopyVersion { slot: slot.clone(), version, generation: 0 };
        }
        let message = Incoming {
            routing_key: event_type.to_string(),
            properties: Properties { message_id: Some(id.into()), ..Properties::default() },
            body: format!("payload of {id}").into(),
        };
        let mut event = wire::decode(&event_type, message, self.clock.now(), String::new).expect("an event");
        (event.reference, event.nbf, event.stamp) = (reference, Some(due), stamp.clone());
        let kept = kept::of(&event, keep.then_some(4_096));
        let record = Record { subject, slot, version: stamp.version, due, reason: None, kept, terms };
        self.register.record(&[record]).await.expect("it answers");
        event
    }

    pub(crate) fn ask(&self, event: &Event) -> Claim {
        Claim {
            subject: event.subject(),
            stamp: event.stamp.clone(),
            token: Uuid::now_v7(),
            due: event.due(),
            alone: false,
            terms: self.topology.types[&event.event_type].terms(&self.topology.redis),
        }
    }

    pub(crate) async fn claim(&self, event: &Event) -> ClaimAnswer {
        self.register.claim(&[self.ask(event)]).await.expect("it answers").remove(0)
    }

    /// Runs an event that fails, up to this stage.
    pub(crate) async fn fail(&self, event: &Event, stage: Stage, attempts: u32) -> Event {
        self.fail_as(event, Note { stage, attempts, reason: Some(format!("attempt={attempts}")) }).await
    }

    pub(crate) async fn fail_as(&self, event: &Event, note: Note) -> Event {
        let attempts = note.attempts;
        self.run(event, End::Copied { due: self.at(60), note }).await;
        let mut copy = event.clone();
        (copy.stamp, copy.attempts, copy.nbf) = (event.stamp.next(), attempts, None);
        copy
    }

    /// Runs an event, which ends so.
    pub(crate) async fn run(&self, event: &Event, end: End) {
        let ClaimAnswer::Run { fence, stamp, .. } = self.claim(event).await else { unreachable!("it is wanted") };
        let settle = Settle {
            subject: event.subject(),
            stamp,
            fence,
            token: Uuid::nil(),
            due: event.due(),
            end,
            terms: self.topology.types[&event.event_type].terms(&self.topology.redis),
        };
        self.register.settle(&[settle]).await.expect("it answers");
        self.register.with_shard(|shard| shard.leases.clear());
    }

    /// Returns the published events, each with its exchange and routing key.
    pub(crate) fn sent(&self) -> Vec<(String, Event)> {
        let published = self.script.published.lock().expect("no panic").clone();
        let read = |message: Message| {
            let Message { exchange, routing_key, properties, body } = message;
            let event_type = routing_key.split('.').next().expect("a type").parse().expect("a word");
            let incoming = Incoming { routing_key: routing_key.clone(), properties, body };
            let event = wire::decode(&event_type, incoming, self.clock.now(), String::new).expect("an event");
            (format!("{exchange} {routing_key}"), event)
        };
        published.into_iter().map(read).collect()
    }
}
