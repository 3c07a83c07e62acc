//! The register's index of waiting events, the payloads that it keeps, and the metric of how long the oldest due event has
//! waited, on which an alert rests.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use hatchery::{
    Filter, MoveOutcome, NewEvent, Outcome, State,
    internals::{
        ports::{Index as _, Register as _},
        redis::RedisRegister,
        register::{
            CopyVersion, DedupSlot, End, Note, Record, Settle, Stage, Subject,
            index::{Entry, Find},
        },
        wire::kept,
    },
};
use jiff::{SignedDuration, Timestamp};
use metrics_exporter_prometheus::PrometheusBuilder;
use rstest::rstest;

use crate::support::{
    broker::eventually,
    declared::{Declared, publish},
    redis::{Server, free_port},
    workers::Working,
};

struct Listed {
    register: RedisRegister,
}

impl Listed {
    fn of(declared: &Declared) -> Self {
        let Declared { host, topology, redis_url, .. } = declared;
        Self { register: RedisRegister::new(redis_url, &host.name, &topology.name, &topology.redis).unwrap() }
    }

    async fn entries(&self) -> Vec<Entry> {
        let found = self.register.find(&Find::first("import".parse().unwrap(), 100)).await.unwrap();
        found.events.into_iter().filter_map(|shown| shown.entry).collect()
    }

    /// Returns the kept payload and one of the kept headers.
    async fn kept(&self, subject: &Subject, slot: &DedupSlot, header: &str) -> Option<(String, String)> {
        let kept = self.register.kept(&[(subject.clone(), slot.clone())]).await.unwrap().remove(0)?;
        let (properties, payload) = kept::decode(&kept).unwrap();
        Some((String::from_utf8(payload.to_vec()).unwrap(), format!("{:?}", properties.headers.get(header)?)))
    }
}

#[tokio::test]
async fn a_waiting_event_is_listed_with_and_without_coalescing() {
    for coalesce in ["off", "latest", "{ immediate: first }"] {
        let declared = Declared::new(&format!("types: {{ import: {{ coalesce: {coalesce} }} }}")).await;
        let (hatchery, listed) = (declared.connect().await, Listed::of(&declared));
        let event = || NewEvent::new("import", "{}").reference("1234").reason("changed by hand");
        let now = publish(&hatchery, event()).await;
        let dated = publish(&hatchery, event().delay(Duration::from_mins(10))).await;
        let entries = listed.entries().await;
        let ids: Vec<_> = entries.iter().map(|entry| entry.subject.id.clone()).collect();
        assert_eq!(ids, [now, dated], "{coalesce}");
        assert!(entries.iter().all(|entry| entry.note.reason.as_deref() == Some("changed by hand")));
        let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
        worker.runs.reach(1).await;
        eventually("the handled event is not listed any more", async || {
            (listed.entries().await.len() == 1).then_some(())
        })
        .await;
        worker.stop().await;
    }
}

/// An idle worker often starts an event before its publisher has recorded it in the register.
#[tokio::test]
async fn a_running_event_is_listed_and_kept_even_if_the_worker_is_faster_than_the_publisher() {
    let kept = "types: { import: { keep-payload: 4KiB }, mail: { coalesce: latest, keep-payload: 4KiB } }";
    let declared = Declared::new(kept).await;
    let hatchery = declared.connect().await;
    for event_type in ["import", "mail"] {
        let (worker, gate) = Working::gated(hatchery.worker(), event_type);
        let events = (0..8).map(|n| NewEvent::new(event_type, n.to_string()).reference(n.to_string())).collect();
        let published = hatchery.publisher().publish_batch(events).await;
        assert!(published.iter().all(Result::is_ok));
        worker.runs.reach(8).await;
        let filter = Filter::default().event_type(event_type);
        let known: Vec<_> = hatchery.events().search(&filter).try_collect().await.unwrap();
        assert_eq!(known.iter().filter(|event| event.running).count(), 8, "{known:?}");
        gate.let_through(8);
        worker.stop().await;
    }
    let worker = Working::start(&hatchery, "import", |_| Outcome::DeadLetter { reason: "never".into() });
    for n in 0..20 {
        publish(&hatchery, NewEvent::new("import", n.to_string())).await;
    }
    worker.runs.reach(20).await;
    worker.stop().await;
    let dead = Filter::default().event_type("import").state(State::DeadLetter);
    let moved: Vec<_> = hatchery.events().run_now_all(&dead).try_collect().await.unwrap();
    assert_eq!(moved.iter().filter(|(_, moved)| *moved == MoveOutcome::Done).count(), 20, "{moved:?}");
}

#[tokio::test]
async fn a_failed_event_is_listed_as_a_retry_and_then_as_a_dead_letter() {
    let declared = Declared::new("types: { import: { retry: { delays: [200ms], max-attempts: 2 } } }").await;
    let (hatchery, listed) = (declared.connect().await, Listed::of(&declared));
    let worker = Working::start(&hatchery, "import", |_| Outcome::Retry { reason: "no luck".into(), after: None });
    publish(&hatchery, NewEvent::new("import", "{}")).await;
    for (stage, attempts) in [(Stage::Retry, 1), (Stage::DeadLetter, 2)] {
        let entry = eventually("the event is listed at the next stage", async || {
            listed.entries().await.into_iter().find(|entry| entry.note.stage == stage)
        });
        let note = entry.await.note;
        assert_eq!(note.attempts, attempts);
        assert!(note.reason.unwrap().contains("no luck"));
    }
    worker.stop().await;
}

#[tokio::test]
async fn payloads_are_kept_up_to_the_size_that_the_type_says() {
    let declared = Declared::new("types: { import: { coalesce: latest, keep-payload: 16B } }").await;
    let (hatchery, listed) = (declared.connect().await, Listed::of(&declared));
    let large = "x".repeat(17);
    for (payload, kept) in [("[1, 2]", true), (large.as_str(), false)] {
        let event = NewEvent::new("import", payload.to_owned()).reference("1234");
        publish(&hatchery, event.at("2040-01-01T00:00:00Z".parse().unwrap())).await;
        let entry = listed.entries().await.remove(0);
        let found = listed.kept(&entry.subject, &entry.slot, "slot").await;
        let slot = "Text([100, 58, 50, 50, 48, 56, 57, 56, 56, 56, 48, 48, 48, 48, 48])".to_owned();
        assert_eq!(found, kept.then(|| (payload.to_owned(), slot)));
    }
}

#[tokio::test]
async fn the_payload_of_a_requeued_event_is_kept() {
    let declared = Declared::new("types: { import: { coalesce: latest, keep-payload: 4KiB } }").await;
    let (hatchery, listed) = (declared.connect().await, Listed::of(&declared));
    let at: jiff::Timestamp = "2040-01-01T00:00:00Z".parse().unwrap();
    let worker = Working::start(&hatchery, "import", move |_| Outcome::Requeue { at, reason: "not yet".into() });
    publish(&hatchery, NewEvent::new("import", "{}").reference("1234")).await;
    let slot = DedupSlot::RequeuedAt(at.as_millisecond());
    let entry = eventually("the requeued event is listed", async || {
        listed.entries().await.into_iter().find(|entry| entry.slot == slot)
    });
    let entry = entry.await;
    assert_eq!((entry.due, entry.note.reason.as_deref()), (at, Some("not yet")));
    assert_eq!(listed.kept(&entry.subject, &slot, "reason").await.unwrap().0, "{}");
    worker.stop().await;
}

#[tokio::test]
async fn publishing_does_not_wait_for_the_index_of_an_absent_redis() {
    let port = free_port();
    let declared = Declared::with_redis("types: { import: {} }", &format!("redis://127.0.0.1:{port}")).await;
    let hatchery = declared.connect().await;
    let publisher = hatchery.publisher();
    for _ in 0..20 {
        assert!(!publisher.publish(NewEvent::new("import", "{}")).await.unwrap().unversioned);
    }
    let _redis = Server::start(port, &[]);
    let listed = Listed::of(&declared);
    eventually("an event is listed", async || {
        publish(&hatchery, NewEvent::new("import", "{}")).await;
        (!listed.entries().await.is_empty()).then_some(())
    })
    .await;
}

#[rstest]
#[case::behind_letters(300, Some(7_200.0))]
#[case::beyond_what_is_read(1_100, None)]
#[tokio::test]
#[ignore = "waits for the first look of a worker, after ten seconds; scripts/test --all runs it"]
async fn the_age_of_the_oldest_due_event_is_told_although_dead_letters_are_older(
    #[case] letters: usize,
    #[case] expected: Option<f64>,
) {
    let declared = Declared::new("types: { mail: {}, log: {} }\n").await;
    let Declared { topology, host, redis_url, .. } = &declared;
    let register = RedisRegister::new(redis_url, &host.name, &topology.name, &topology.redis).unwrap();
    let (event_type, spec) = topology.types.get_key_value("mail").unwrap();
    let (began, terms) = (Timestamp::now(), spec.terms(&topology.redis));
    let subject = |id: String| Subject { event_type: event_type.clone(), reference: None, id };
    let ids = (0..letters).map(|n| format!("n{n:05}"));
    let letters: Vec<Settle> = ids
        .map(|id| {
            let due = began - SignedDuration::from_hours(3);
            let note = Note { stage: Stage::DeadLetter, attempts: 1, reason: Some("given up".to_owned()) };
            let stamp = CopyVersion::uncontested(&id, 0);
            Settle::by_a_person(subject(id), stamp, 0, due, End::Copied { due, note }, terms)
        })
        .collect();
    register.settle(&letters).await.unwrap();
    let record = Record {
        subject: subject("old".to_owned()),
        slot: DedupSlot::Event("old".to_owned()),
        version: 0,
        due: began - SignedDuration::from_hours(2),
        reason: None,
        kept: None,
        terms,
    };
    register.record(&[record]).await.unwrap();
    let recorder = PrometheusBuilder::new().build_recorder();
    let _counted_here = metrics::set_default_local_recorder(&recorder);
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "log", |_| Outcome::Done);
    let value = |page: &str, name: &str| {
        let begin = format!("hatchery_oldest_due_seconds{{type=\"{name}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&begin)?.parse::<f64>().ok())
    };
    let page = eventually("the worker has looked", async || {
        let page = recorder.handle().render();
        // A gauge begins with 0.
        (value(&page, "mail").is_some_and(|age| age != 0.0)).then_some(page)
    })
    .await;
    let (age, of_none) = (value(&page, "mail").unwrap(), value(&page, "log"));
    match expected {
        Some(least) => assert!((least..least + 100.0).contains(&age), "{age}"),
        None => assert!(age.is_nan(), "{age}"),
    }
    assert_eq!(of_none, Some(0.0), "{page}");
    worker.stop().await;
}
