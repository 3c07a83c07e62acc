//! Pauses and circuit breakers.

use hatchery::Outcome;
use rstest::rstest;
use serde_json::{Value, json};

use super::client::{Serving, mail};
use crate::support::{broker::eventually, declared::Declared, workers::Working};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_is_paused_until_its_pause_ends() {
    let declared =
        Declared::new("types: { mail: {} }\nsources: { hr: { declare: on, events: [ { type: mail } ] } }").await;
    let serving = Serving::start(&declared).await;
    let paused = async || serving.get("/v1/pauses").await.expect(200).json()["pauses"].clone();
    assert_eq!(paused().await, json!([]));

    let body = json!({ "type": "mail", "reason": "the provider migrates", "for": "2h" });
    let answer = serving.post("/v1/pauses", &body).await.expect(200).json();
    assert_eq!((&answer["changed"], &answer["not_following"]), (&json!(true), &json!([])));
    serving.post("/v1/pauses", &json!({ "source": "hr" })).await.expect(200);
    let pauses = paused().await;
    let said = |n: usize, key: &str| pauses[n][key].as_str().unwrap().to_owned();
    assert_eq!((said(0, "name"), said(0, "reason")), ("mail".to_owned(), "the provider migrates".to_owned()));
    assert_eq!((said(1, "kind"), said(1, "reason")), ("source".to_owned(), "paused by hand".to_owned()));
    assert!(pauses[0]["until"].is_string() && pauses[1]["until"].is_null(), "{pauses}");

    // A worker starts no event of it.
    serving.publish(&mail("a")).await.expect(201);
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let is_told = async || {
        let status = serving.get("/v1/status").await.expect(200).json();
        (status["pauses"].as_array().is_some_and(|pauses| pauses.len() == 2)).then_some(())
    };
    eventually("the status names both pauses", is_told).await;
    assert_eq!(worker.runs.count(), 0);

    let ended = serving.post("/v1/pauses/end", &json!({ "type": "mail" })).await.expect(200).json();
    assert_eq!((&ended["changed"], &ended["ended"][0]["name"]), (&json!(true), &json!("mail")));
    worker.runs.reach(1).await;
    worker.stop().await;
    let ended = serving.post("/v1/pauses/end", &json!({ "type": "mail" })).await.expect(200).json();
    assert_eq!(ended["changed"], false);
}

#[rstest]
#[case::nothing(json!({}), 422, "one of `type`, `source`, `schedule` and `all`")]
#[case::two_things(json!({ "type": "mail", "all": true }), 422, "one of `type`, `source`, `schedule` and `all`")]
#[case::unknown_field(json!({ "typ": "mail" }), 400, "unknown field `typ`")]
#[case::two_ends(json!({ "type": "mail", "for": "2h", "until": "2100-01-01T00:00:00Z" }), 422, "exclude each other")]
#[case::no_time(json!({ "type": "mail", "until": "tomorrow" }), 400, "write it like 2026-06-01T09:00:00Z")]
#[case::unknown_type(json!({ "type": "mial" }), 404, "the file has no type `mial`; is it `mail`?")]
#[case::past(json!({ "type": "mail", "until": "2026-01-01T00:00:00Z" }), 422, "which has passed; nothing was written")]
#[case::secret(json!({ "amqp://u:s3cret@h": 1 }), 400, "may contain a password")]
#[tokio::test]
async fn a_bad_pause_is_refused_and_pauses_nothing(#[case] body: Value, #[case] status: u16, #[case] why: &str) {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let refused = serving.post("/v1/pauses", &body).await.expect(status);
    assert!(refused.text.contains(why) && !refused.text.contains("s3cret"), "{refused:?}");
    assert_eq!(serving.get("/v1/pauses").await.expect(200).json()["pauses"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_breaker_is_listed_and_closed_once() {
    let types = "types: { mail: { retry: { delays: [1h] }, breaker: { errors: 2, cooldown: manual } }, plain: {} }";
    let declared = Declared::new(types).await;
    let serving = Serving::start(&declared).await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Retry { reason: "HTTP 503".into(), after: None });
    for id in ["a", "b", "c"] {
        serving.publish(&mail(id)).await.expect(201);
    }
    let breaker = async || serving.get("/v1/breakers").await.expect(200).json()["breakers"][0].clone();
    let is_open = async || (breaker().await["state"] == "open").then_some(());
    eventually("the breaker is open", is_open).await;
    assert_eq!(breaker().await["reasons"][0], "HTTP 503");
    worker.stop().await;
    let close =
        async || serving.post("/v1/breakers/mail/close", &json!({})).await.expect(200).json()["changed"].clone();
    assert_eq!((close().await, close().await), (json!(true), json!(false)));
    assert_eq!(breaker().await["closed_by"], "person");
    serving.post("/v1/breakers/plain/close", &json!({})).await.expect(422);
    serving.post("/v1/breakers/mial/close", &json!({})).await.expect(404);
}
