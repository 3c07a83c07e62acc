//! Index keys and kept-message keys that hold foreign data. Events go on as if these keys did not exist.

use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use hatchery::{
    EventInfo, EventSelector, EventsError, Filter, Hatchery, NewEvent, Outcome, RegisterError,
    internals::{
        ports::{Index as _, Register as _},
        register::{
            Cancel, Claim, ClaimAnswer, CopyVersion, DedupSlot, End, Note, Record, Reserve, Settle, Stage, index::Find,
        },
    },
};
use jiff::Timestamp;
use redis::AsyncCommands as _;
use rstest::rstest;

use super::{
    bench::{EXCLUSIVE, HORIZON, event, register, reserve, token, version},
    stored::Stored,
};
use crate::support::{
    broker::eventually,
    declared::Declared,
    logs::Logs,
    redis::{Server, connect, free_port, prefix, url},
    workers::Working,
};

const TYPES: &str = "types: { import: { coalesce: latest, keep-payload: 4KiB, retry: { delays: [50ms] } } }";

async fn publish(hatchery: &Hatchery, payload: &str, reference: &str, delay: Duration) {
    let mut event = NewEvent::new("import", payload.to_owned()).delay(delay);
    if !reference.is_empty() {
        event = event.reference(reference);
    }
    let published = hatchery.publisher().publish(event).await.unwrap();
    assert!(!published.unversioned, "{payload}");
}

async fn listed(hatchery: &Hatchery) -> Result<Vec<EventInfo>, EventsError> {
    hatchery.events().search(&Filter::default()).try_collect().await
}

#[rstest]
#[case::the_index(&["x"])]
#[case::kept_messages(&["p:r:done", "p:r:failing", "p:r:dead", "p:r:cancelled", "p:r:waiting"])]
#[tokio::test]
async fn events_run_although_the_index_or_kept_messages_are_damaged(#[case] names: &[&str]) {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis(TYPES, &redis.url).await;
    let keys: Vec<_> = names.iter().map(|name| declared.key(&format!("import:{name}"))).collect();
    for key in &keys {
        redis.say(&["SET", key, "garbage"]).await;
    }
    let logs = Logs::capture();
    let hatchery = declared.connect_patiently().await;
    publish(&hatchery, "older", "done", Duration::ZERO).await;
    for reference in ["done", "failing", "dead"] {
        publish(&hatchery, reference, reference, Duration::ZERO).await;
    }
    publish(&hatchery, "alone", "", Duration::ZERO).await;
    publish(&hatchery, "cancelled", "cancelled", Duration::from_secs(1)).await;
    let cancelled = hatchery.events().cancel(&EventSelector::reference("import", "cancelled")).await.unwrap();
    assert_eq!(cancelled.iter().map(|cancelled| cancelled.waiting).collect::<Vec<_>>(), [true], "{cancelled:?}");

    let worker = Working::start(&hatchery, "import", |event| match &event.payload[..] {
        b"failing" if event.attempts == 0 => Outcome::Retry { reason: "again".to_owned(), after: None },
        b"dead" => Outcome::DeadLetter { reason: "never".to_owned() },
        _ => Outcome::Done,
    });
    worker.runs.reach(5).await;
    let amqp = declared.amqp().await;
    amqp.expect_empty(&declared.passages()).await;
    let summary = worker.stop().await;
    let counts = (summary.done, summary.retried, summary.dead_lettered, summary.replaced, summary.stale);
    assert_eq!(counts, (3, 1, 1, 1, 1), "{summary:?}");
    assert_eq!((summary.busy, summary.given_back, amqp.ready(&declared.dead_letters("import")).await), (0, 0, 1));
    let mut connection = connect(&redis.url).await.unwrap();
    let places = connection.keys::<_, Vec<String>>("*:r:*").await.unwrap();
    for key in places.into_iter().filter(|key| !key.contains(":p:")) {
        let value: Vec<u8> = connection.get(&key).await.unwrap();
        assert_eq!(value[1], 0, "{key} has a lease");
    }

    let told: Vec<_> = keys.iter().flat_map(|key| logs.with(&["WARN", &format!("{key}: WRONGTYPE")])).collect();
    assert_eq!(told.len(), 1, "not exactly one warning within a minute: {:#?}", logs.with(&[]));
    assert_eq!(logs.with(&["WRONGTYPE"]), told);
    if names == ["x"] {
        let error = listed(&hatchery).await.unwrap_err().to_string();
        assert!(error.contains("WRONGTYPE") && error.contains(&keys[0]), "{error}");
    }
    for key in &keys {
        redis.say(&["DEL", key]).await;
    }
    let before = listed(&hatchery).await.unwrap().len();
    publish(&hatchery, "waits", "waiting", Duration::from_hours(1)).await;
    let events = listed(&hatchery).await.unwrap();
    let last = events.last().unwrap().reference.as_ref().map(hatchery::Reference::as_str);
    assert_eq!((events.len(), last), (before + 1, Some("waiting")));
    // The message is kept, so that the event can run now.
    assert_eq!(hatchery.events().run_now(&EventSelector::reference("import", "waiting")).await.unwrap().len(), 1);
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(1).await;
    assert_eq!(worker.stop().await.done, 1);
    eventually("the event is not listed any more", async || {
        (listed(&hatchery).await.unwrap().len() == before).then_some(())
    })
    .await;
}

struct One {
    register: hatchery::internals::redis::RedisRegister,
    stored: Stored,
}

impl One {
    async fn new() -> Self {
        let prefix = prefix();
        Self { register: register(url(), &prefix, 1), stored: Stored::connect(&prefix).await }
    }

    async fn publish(&self, slot: &DedupSlot) -> CopyVersion {
        let (subject, due) = (event("1", "a"), Timestamp::now());
        let version = version(&self.register, Reserve { due, ..reserve(&subject, slot) }).await.unwrap();
        let kept = Some(Bytes::from_static(b"kept"));
        let call = Record { subject, slot: slot.clone(), version, due, reason: None, kept, terms: EXCLUSIVE };
        self.register.record(&[call]).await.unwrap();
        CopyVersion { slot: slot.clone(), version, generation: 0 }
    }

    async fn run(&self, stamp: &CopyVersion, end: End) {
        let (subject, token, due, terms) = (event("1", "a"), token(1), Timestamp::now(), EXCLUSIVE);
        let stamp = stamp.clone();
        let claim = Claim { subject: subject.clone(), stamp: stamp.clone(), token, due, alone: false, terms };
        let claimed = self.register.claim(&[claim]).await.unwrap().remove(0);
        let ClaimAnswer::Run { fence, .. } = claimed else { panic!("{claimed:?}") };
        self.register.settle(&[Settle { subject, stamp, fence, token, due, end, terms }]).await.unwrap();
        assert!(self.stored.read().await.0.leases.is_empty());
    }

    async fn find(&self) -> Result<usize, RegisterError> {
        Ok(self.register.find(&Find::first(event("", "").event_type, 9)).await?.events.len())
    }

    async fn kept(&self) -> Result<Option<Bytes>, RegisterError> {
        Ok(self.register.kept(&[(event("1", "a"), DedupSlot::Immediate)]).await?.remove(0))
    }

    async fn set(&self, name: &str) -> String {
        let key = self.stored.key(name);
        let () = self.stored.connection().set(&key, "garbage").await.unwrap();
        key
    }
}

fn copied() -> End {
    End::Copied { due: Timestamp::now(), note: Note { stage: Stage::Retry, attempts: 1, reason: None } }
}

fn names(error: &RegisterError, key: &str) -> bool {
    matches!(error, RegisterError::Unreadable { reason, .. } if reason.contains("WRONGTYPE") && reason.contains(key))
}

#[tokio::test]
async fn reading_a_damaged_list_or_message_names_its_key() {
    let one = One::new().await;
    let first = one.publish(&DedupSlot::Immediate).await;
    let key = one.set("import:p:r:1").await;
    assert!(names(&one.kept().await.unwrap_err(), &key));
    one.run(&first, copied()).await;
    assert!(names(&one.kept().await.unwrap_err(), &key), "the damaged kept message was removed");
    // Nothing is kept of the next event, and the index says so.
    one.publish(&DedupSlot::Immediate).await;
    assert_eq!(one.kept().await.unwrap(), None);
    assert_eq!(one.find().await.unwrap(), 1);
    let key = one.set("import:x").await;
    assert!(names(&one.find().await.unwrap_err(), &key));
    let () = one.stored.connection().del(&key).await.unwrap();
    assert_eq!(one.find().await.unwrap(), 0);
    one.publish(&DedupSlot::DatedAt(5)).await;
    let key = one.set("import:d:1").await;
    assert!(names(&one.find().await.unwrap_err(), &key));
    one.publish(&DedupSlot::Immediate).await;
    let () = one.stored.connection().del(&key).await.unwrap();
    let key = one.set("import:r:1").await;
    assert!(names(&one.find().await.unwrap_err(), &key));
}

#[tokio::test]
async fn foreign_data_in_the_index_stops_no_call() {
    let one = One::new().await;
    let key = one.stored.key("import:x");
    let mut connection = one.stored.connection();
    // One member that is no place in the index, and one whose slot key has another type.
    for member in ["garbage", "r:2\0i"] {
        let () = connection.zadd(&key, member, 5).await.unwrap();
    }
    let other = one.set("import:r:2").await;
    let first = one.publish(&DedupSlot::Immediate).await;
    let left: Vec<String> = connection.zrange(&key, 0, -1).await.unwrap();
    assert_eq!(left, ["r:1\0i"]);
    let () = connection.del(other).await.unwrap();
    let () = connection.zadd(&key, "garbage", 5).await.unwrap();
    assert_eq!(one.find().await.unwrap(), 1);
    // Foreign details of a slot.
    for (end, details) in [(copied(), "x"), (End::Finished, "x\0\0\0\0\0\x08")] {
        one.stored.set_details("import:r:1", "i", details).await;
        let generation = i64::from(matches!(end, End::Finished));
        one.run(&CopyVersion { generation, ..first.clone() }, end).await;
    }
    for details in ["", "x\0\0\0\0\0\x08"] {
        for slot in [DedupSlot::DatedAt(1), DedupSlot::DatedAt(2)] {
            one.publish(&slot).await;
            one.stored.set_details("import:r:1", &slot.field(), details).await;
        }
        one.publish(&DedupSlot::DatedAt(1)).await;
        one.find().await.unwrap();
        let cancel = Cancel { subject: event("1", "a"), slot: None, due: None, horizon: HORIZON };
        assert_eq!(one.register.cancel(&[cancel]).await.unwrap()[0].len(), 3);
    }
    assert_eq!(one.find().await.unwrap(), 0);
}
