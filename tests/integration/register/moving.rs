//! A hash slot of a cluster moves, key by key, while events have kept messages.

use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use hatchery::{
    EventSelector, EventsError, Filter, MoveOutcome, NewEvent, Outcome, RegisterError,
    internals::{
        ports::{Index as _, Register as _},
        redis::RedisRegister,
        register::{
            Cancel, Claim, ClaimAnswer, CopyVersion, DedupSlot, End, Later, Note, Record, Renew, Reserve, Settle,
            Stage, index::Find,
        },
        trouble::Trouble,
    },
};
use jiff::Timestamp;

use super::{
    bench::{EXCLUSIVE, HORIZON, event, register, reserve, stamp, token, version},
    cluster::{Moving, last},
};
use crate::support::{
    broker::eventually,
    declared::Declared,
    deployments::{Cluster, Kind},
    redis::prefix,
    workers::Working,
};

const DUE: Timestamp = Timestamp::UNIX_EPOCH;
const PUT_OFF: DedupSlot = DedupSlot::DatedAt(5);

/// The events of one reference: one that runs, a newer one that is being published, and two dated ones.
struct Events {
    register: RedisRegister,
    running: CopyVersion,
    fence: i64,
    newer: i64,
    put_off: CopyVersion,
}

impl Events {
    async fn new(register: RedisRegister) -> Self {
        let (running, put_off) = (stamp(&DedupSlot::Immediate, 0, 0), stamp(&PUT_OFF, 0, 0));
        let mut of = Self { register, running, fence: 0, newer: 0, put_off };
        for (slot, message) in [(DedupSlot::Immediate, "one"), (PUT_OFF, "put off"), (DedupSlot::Dated, "cancelled")] {
            let version = of.reserve(&of.register, &slot).await.unwrap();
            of.record(&of.register, &slot, version, message).await.unwrap();
            match slot {
                DedupSlot::Immediate => of.running.version = version,
                PUT_OFF => of.put_off.version = version,
                _ => {}
            }
        }
        of.newer = of.reserve(&of.register, &DedupSlot::Immediate).await.unwrap();
        let claim = Claim {
            subject: event("1", "a"),
            stamp: of.running.clone(),
            token: token(1),
            due: DUE,
            alone: false,
            terms: EXCLUSIVE,
        };
        let ClaimAnswer::Run { fence, .. } = of.register.claim(&[claim]).await.unwrap()[0] else {
            panic!("the claim may not run")
        };
        Self { fence, ..of }
    }

    async fn reserve(&self, register: &RedisRegister, slot: &DedupSlot) -> Result<i64, RegisterError> {
        version(register, Reserve { due: DUE, ..reserve(&event("1", "a"), slot) }).await
    }

    async fn record(
        &self,
        register: &RedisRegister,
        slot: &DedupSlot,
        version: i64,
        message: &'static str,
    ) -> Result<(), RegisterError> {
        let (subject, kept) = (event("1", "a"), Some(Bytes::from_static(message.as_bytes())));
        let call = Record { subject, slot: slot.clone(), version, due: DUE, reason: None, kept, terms: EXCLUSIVE };
        register.record(&[call]).await
    }

    /// Makes each kind of call with this register, and returns its result.
    async fn calls(&self, register: &RedisRegister) -> [(&'static str, Result<(), RegisterError>); 9] {
        let (subject, terms) = (event("1", "a"), EXCLUSIVE);
        let renew = Renew { subject: subject.clone(), stamp: self.running.clone(), token: token(1), due: DUE, terms };
        let note = Note { stage: Stage::Retry, attempts: 1, reason: None };
        let settle = Settle {
            subject: subject.clone(),
            stamp: self.running.clone(),
            fence: self.fence,
            token: token(1),
            due: DUE,
            end: End::Copied { due: DUE, note },
            terms,
        };
        let later = Later { subject: subject.clone(), stamp: self.put_off.clone(), at: Timestamp::now() };
        let cancel = Cancel { subject: subject.clone(), slot: Some(DedupSlot::Dated), due: None, horizon: HORIZON };
        [
            ("renew", register.renew(&[renew]).await.map(drop)),
            ("settle", register.settle(&[settle]).await),
            ("reserve", self.reserve(register, &DedupSlot::Immediate).await.map(drop)),
            ("record", self.record(register, &DedupSlot::Immediate, self.newer, "newer").await),
            ("later", register.later(&[later]).await.map(drop)),
            ("cancel", register.cancel(&[cancel]).await.map(drop)),
            ("find", register.find(&find()).await.map(drop)),
            ("look", register.look(std::slice::from_ref(&subject)).await.map(drop)),
            ("look_at", register.look_at(&[(subject, DedupSlot::Immediate)]).await.map(drop)),
        ]
    }

    async fn kept(&self, slot: &DedupSlot) -> Option<Bytes> {
        self.register.kept(&[(event("1", "a"), slot.clone())]).await.unwrap().remove(0)
    }
}

fn find() -> Find {
    Find::first(event("", "").event_type, 9)
}

#[tokio::test]
#[ignore = "moves a hash slot ten times and waits for calls to time out; scripts/test --all runs it"]
async fn calls_during_a_move_of_a_hash_slot_wait_and_leave_no_key_behind() {
    let cluster = Cluster::start(Kind::default()).await;
    for name in ["last", "import:x", "import:r:1", "import:d:1", "import:p:r:1"] {
        move_one_key_apart(&cluster, name, true).await;
        move_one_key_apart(&cluster, name, false).await;
    }
}

/// Moves the key of this name before all others, or after them.
async fn move_one_key_apart(cluster: &Cluster, name: &str, goes_first: bool) {
    let prefix = prefix();
    let events = Events::new(register(&cluster.url(), &prefix, 1)).await;
    let hasty = events.register.clone().with_limit(Duration::from_secs(1));
    let moving = Moving::slot_of(cluster, &last(&prefix, 0)).await;
    moving.importing().await;
    moving.migrating().await;
    let keys = moving.keys().await;
    assert_eq!(keys.len(), 5, "{keys:?}");
    let go: Vec<String> = keys.into_iter().filter(|key| key.ends_with(name) == goes_first).collect();
    moving.bring(&go).await;
    for (call, answer) in events.calls(&hasty).await {
        if let Err(error) = answer {
            assert_eq!(error.trouble(), Trouble::FailingOver, "{call}, {name} first {goes_first}: {error}");
        }
    }
    loop {
        let keys = moving.keys().await;
        if keys.is_empty() {
            break;
        }
        moving.bring(&keys).await;
    }
    moving.finish().await;
    let listed = async || {
        let found = events.register.find(&find()).await.unwrap().events;
        found.into_iter().map(|shown| shown.slot).filter(|slot| *slot != DedupSlot::Dated).collect::<Vec<_>>()
    };
    assert_eq!(listed().await.len(), 2, "{:?}", listed().await);
    for (call, answer) in events.calls(&events.register).await {
        answer.unwrap_or_else(|error| panic!("{call}, {name} first {goes_first}: {error}"));
    }
    let kept = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    assert_eq!(events.kept(&DedupSlot::Immediate).await, kept("newer"));
    assert_eq!(events.kept(&PUT_OFF).await, kept("put off"));
    assert_eq!(events.kept(&DedupSlot::Dated).await, None);
    assert_eq!(listed().await.len(), 2);
    // The next case uses the same hash slot, whatever its prefix.
    for node in &cluster.nodes {
        node.ask::<()>(&["FLUSHALL"]).await.unwrap();
    }
}

/// The number of dated events, each with a reference of its own.
const DATED: usize = 20;

#[tokio::test]
#[ignore = "starts a Redis Cluster and moves a hash slot key by key; scripts/test --all runs it"]
async fn no_event_is_lost_while_the_register_moves() {
    let cluster = Cluster::start(Kind::default()).await;
    let types = "ladder: { resolution: 50ms, horizon: 2h }\n\
                 types: { import: { coalesce: { delayed: each-time }, keep-payload: 4KiB } }\n";
    let declared = Declared::with_redis(types, &cluster.url()).await;
    let (hatchery, hasty) = (declared.connect_patiently().await, declared.connect().await);
    let (publisher, events) = (hatchery.publisher(), hatchery.events());
    let change = |name: &str| NewEvent::new("import", name.to_owned()).reference(name).id(name);
    let dated: Vec<String> = (0..DATED).map(|n| format!("dated {n}")).collect();
    for name in &dated {
        assert!(!publisher.publish(change(name).delay(Duration::from_hours(1))).await.unwrap().unversioned);
    }
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    assert!(!publisher.publish(change("before")).await.unwrap().unversioned);
    worker.runs.reach(1).await;

    let counter = declared.key("last");
    let moving = Moving::slot_of(&cluster, &counter).await;
    moving.importing().await;
    moving.migrating().await;
    let (mut brought, mut expected) = (0, vec!["before".to_owned()]);
    loop {
        let keys = moving.keys().await;
        if keys.is_empty() {
            break;
        }
        for key in keys {
            moving.bring(&[key]).await;
            brought += 1;
            if brought % 10 == 0 {
                let name = format!("during {brought}");
                hasty.publisher().publish(change(&name)).await.unwrap();
                expected.push(name);
            }
            if brought == DATED {
                let told = events.run_now(&EventSelector::id("import", dated[0].clone()).of(dated[0].clone())).await;
                let Err(EventsError::Register(error)) = told else { panic!("{told:?}") };
                assert_eq!(error.trouble(), Trouble::FailingOver, "{error}");
            }
        }
    }
    assert!(brought > 2 * DATED, "each date has a slot key and a kept message, but only {brought} keys moved");
    moving.finish().await;

    publisher.publish(change("after")).await.unwrap();
    expected.push("after".to_owned());
    for name in &dated {
        let which = EventSelector::id("import", name.clone()).of(name.clone());
        let moved = eventually("Redis answers again", async || events.run_now(&which).await.ok()).await;
        assert!(matches!(&moved[..], [(_, MoveOutcome::Done)]), "{moved:?}");
    }
    expected.extend(dated);
    worker.runs.reach(expected.len()).await;
    let runs = worker.runs.clone();
    worker.stop().await;
    let mut ran = runs.payloads();
    ran.sort();
    expected.sort();
    assert_eq!(ran, expected);
    let left: Vec<_> = events.search(&Filter::default()).try_collect().await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}
