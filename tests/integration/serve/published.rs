//! One event by `POST /v1/events`.

use hatchery::Outcome;
use reqwest::{Method, RequestBuilder, header::CONTENT_TYPE};
use rstest::rstest;
use serde_json::json;

use super::client::{Serving, mail};
use crate::support::{broker::eventually, declared::Declared, redis, relay::Relay, workers::Working};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_answered_with_201_is_in_its_queue_and_runs_as_it_was_sent() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let event = json!({ "type": "mail", "reference": "50", "payload": { "to": "ada" }, "correlation_id": "c" });
    let first = serving.publish(&event).await.expect(201).json();
    let own = json!({ "type": "mail", "id": "own", "payload_base64": "AP8=" });
    assert_eq!(serving.publish(&own).await.expect(201).text, r#"{"id":"own"}"#);
    assert_eq!(declared.amqp().await.ready(&declared.processing("mail")).await, 2, "201 before the confirm");
    // An event whose answer got lost is repeated with its id, and is no second event.
    assert_eq!(serving.publish(&own).await.expect(200).text, r#"{"id":"own","state":"waiting"}"#);

    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let seen = worker.runs.reach(2).await;
    let run =
        |id: Option<&str>| &seen.iter().find(|seen| id == Some(seen.event.id.as_str())).expect("it has run").event;
    let sent = run(first["id"].as_str());
    assert_eq!(&*sent.payload, br#"{"to":"ada"}"#);
    assert_eq!(sent.reference.as_ref().map(ToString::to_string).as_deref(), Some("50"));
    assert_eq!(sent.correlation_id.as_deref(), Some("c"));
    assert_eq!(&*run(Some("own")).payload, [0, 255]);
    declared.amqp().await.expect_empty(&declared.queues()).await;
    assert_eq!(serving.publish(&own).await.expect(200).json()["state"], "handled");
    declared.amqp().await.expect_empty(&declared.queues()).await;
    assert_eq!(worker.stop().await.done, 2);
}

#[tokio::test]
async fn an_id_is_known_only_where_it_names_one_event_and_redis_has_it() {
    let types = "types: { mail: {}, latest: { coalesce: latest }, plain: { register: off } }";
    let declared = Declared::new(types).await;
    let serving = Serving::start(&declared).await;
    for (event, is_known) in [
        (json!({ "type": "latest", "reference": "1", "id": "a" }), false),
        (json!({ "type": "latest", "id": "a" }), true),
        (json!({ "type": "plain", "id": "a" }), false),
        (json!({ "type": "mail", "id": "a", "reference": "1", "delay": "1h" }), true),
    ] {
        serving.publish(&event).await.expect(201);
        if is_known {
            // Redis may take too long on a busy machine, and then the id counts as new.
            let again = async || (serving.publish(&event).await.status == 200).then_some(());
            eventually("the id is known", again).await;
        } else {
            serving.publish(&event).await.expect(201);
        }
    }
    assert_eq!(serving.publish(&json!({ "type": "mail", "id": "b" })).await.expect(201).text, r#"{"id":"b"}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_a_known_id_is_answered_as_a_new_one() {
    let relay = Relay::to(redis::url()).await;
    let declared = Declared::with_redis("types: { mail: {} }", &relay.url).await;
    let serving = Serving::start(&declared).await;
    serving.publish(&mail("own")).await.expect(201);
    serving.publish(&mail("own")).await.expect(200);
    relay.close();
    assert_eq!(serving.publish(&mail("own")).await.expect(201).text, r#"{"id":"own"}"#);
    let line = serving.batch("{\"type\":\"mail\",\"id\":\"own\"}\n".to_owned()).await.expect(200).lines().remove(0);
    assert_eq!(line["state"], json!(null), "{line}");
    relay.open();
    let is_known = async || (serving.publish(&mail("own")).await.status == 200).then_some(());
    eventually("the id is known again", is_known).await;
    // Redis answers nothing, and the publish does not wait for it.
    relay.silence();
    serving.publish(&mail("own")).await.expect(201);
}

const JSON: &str = "application/json";

#[rstest]
#[case::no_json(JSON, "[]", 400, false, "not a JSON object")]
#[case::no_event(JSON, r#"{"paylod": 1}"#, 400, false, "unknown field `paylod`")]
#[case::two_times(
    JSON,
    r#"{"type": "mail", "delay": "1s", "nbf": "2026-06-01T00:00:00Z"}"#,
    422,
    false,
    "exclude each other"
)]
#[case::a_secret(JSON, r#"{"type": "amqp://u:s3cret@h"}"#, 422, false, "may have a password")]
#[case::a_change(JSON, r#"{"cancel": {"type": "mail", "id": "a"}}"#, 400, false, "unknown field `cancel`")]
#[case::a_form("text/plain", r#"{"type": "mail"}"#, 415, false, "application/json")]
#[case::unknown_type(JSON, r#"{"type": "mial", "id": "a"}"#, 422, true, "is it `mail`?")]
#[case::no_reference(JSON, r#"{"type": "mail", "reference": ""}"#, 422, true, "a reference has 1 to 255 bytes")]
#[tokio::test]
async fn a_bad_request_is_refused_in_the_words_of_the_command_line(
    #[case] media_type: &'static str,
    #[case] body: &'static str,
    #[case] status: u16,
    #[case] is_event: bool,
    #[case] detail: &str,
) {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let request = |request: RequestBuilder| request.header(CONTENT_TYPE, media_type).body(body);
    let answer = serving.send(Method::POST, "/v1/events", request).await.expect(status);
    let problem = answer.json();
    assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    assert!(!answer.text.contains("s3cret"), "{problem}");
    // It has its id as soon as it is an event.
    assert_eq!(problem["id"].is_string(), is_event, "{problem}");
    assert_eq!(declared.amqp().await.ready(&declared.processing("mail")).await, 0);
}

#[tokio::test]
async fn an_event_that_is_too_large_is_refused() {
    let declared = Declared::new("max-payload: 1KiB\ntypes: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let payload = |bytes: usize| json!({ "type": "mail", "payload": "x".repeat(bytes) });
    let problem = serving.publish(&payload(2_000)).await.expect(413).json();
    assert_eq!(problem["detail"], "the payload has 2002 bytes, more than max-payload (1024)");
    let problem = serving.publish(&payload(100_000)).await.expect(413).json();
    assert!(problem["detail"].as_str().unwrap().starts_with("the body has more than"), "{problem}");
    serving.publish(&payload(1_000)).await.expect(201);
}
