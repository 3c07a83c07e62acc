//! `status` says that a service is away which handlers need.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use hatchery::{NewEvent, Outcome};
use rstest::rstest;
use serde_json::json;

use super::{finding, kinds, seen, status};
use crate::support::{
    broker::eventually,
    declared::{Declared, publish_all},
    process::Place,
    workers::Working,
};

#[rstest]
#[case::any_order("{}")]
#[case::ordered("{ on-failure: block }")]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits for figures of RabbitMQ, which come every few seconds; scripts/test --all runs it"]
async fn status_says_why_a_handler_is_unavailable_until_it_is_back(#[case] settings: &str) {
    let declared = Declared::new(&format!("types: {{ mail: {settings} }}\n")).await;
    declared.own_register().await;
    let (place, hatchery) = (Place::new(&declared), declared.connect().await);
    let is_away = Arc::new(AtomicBool::new(true));
    let service = Arc::clone(&is_away);
    let worker = Working::start(&hatchery, "mail", move |_| {
        if service.load(Ordering::SeqCst) {
            Outcome::unavailable("mail.internal:587: connection refused")
        } else {
            Outcome::Done
        }
    });
    publish_all(&hatchery, (0..20).map(|n| NewEvent::new("mail", n.to_string())).collect()).await;
    let named = eventually("status names it", async || {
        let (code, answer) = seen(&place).await;
        kinds(&answer).contains("handler-unavailable").then_some((code, answer))
    });
    let (code, answer) = named.await;
    let found = finding(&answer, "handler-unavailable");
    assert_eq!((code, &found["types"], &found["workers"]), (Some(4), &json!(["mail"]), &json!(1)), "{found:#}");
    assert_eq!(found["why"], "mail.internal:587: connection refused");
    assert_eq!(answer["types"][0]["dead"], 0, "no attempt is spent");
    let screen = place.run(&mut status(&place, &[])).await.expect(0).stdout;
    assert!(screen.contains("! the handler of mail is unavailable: mail.internal:587"), "{screen}");
    is_away.store(false, Ordering::SeqCst);
    eventually("status is well", async || {
        let (code, answer) = seen(&place).await;
        (code == Some(0) && kinds(&answer).is_empty()).then_some(())
    })
    .await;
    worker.stop().await;
}
