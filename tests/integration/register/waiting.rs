//! The metric of how long the oldest due event has waited, on which an alert rests.

use hatchery::{
    Outcome,
    internals::{
        ports::Register as _,
        redis::RedisRegister,
        register::{CopyVersion, DedupSlot, End, Note, Record, Settle, Stage, Subject},
    },
};
use jiff::{SignedDuration, Timestamp};
use metrics_exporter_prometheus::PrometheusBuilder;
use rstest::rstest;

use crate::support::{broker::eventually, declared::Declared, workers::Working};

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
