//! Finding and changing events, and the status.

use hatchery::Outcome;
use serde_json::json;

use super::client::{Serving, mail};
use crate::support::{declared::Declared, workers::Working};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_found_moved_and_run_now() {
    let declared = Declared::new("types: { mail: { keep-payload: 1KiB } }").await;
    let serving = Serving::start(&declared).await;
    let event = json!({ "type": "mail", "id": "a", "reference": "50", "delay": "1h" });
    serving.publish(&event).await.expect(201);
    let due = async || {
        let found = serving.get("/v1/events/mail?reference=50&id=a").await.expect(200).json();
        assert_eq!((&found["events"][0]["id"], &found["events"][0]["state"]), (&json!("a"), &json!("waiting")));
        found["events"][0]["due"].clone()
    };
    let before = due().await;
    let named = json!({ "reference": "50", "id": "a" });
    let moved = json!({ "reference": "50", "id": "a", "delay": "2h" });
    let answer = serving.post("/v1/events/mail/reschedule", &moved).await.expect(200).json();
    assert_eq!((&answer["results"], &answer["ids"]), (&json!({ "done": 1 }), &json!(["a"])));
    assert_ne!(due().await, before);
    let answer = serving.post("/v1/events/mail/run-now", &named).await.expect(200).json();
    assert_eq!((&answer["results"], &answer["ids"]), (&json!({ "done": 1 }), &json!(["a"])));
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(1).await;
    worker.stop().await;
    serving.post("/v1/events/mail/run-now", &named).await.expect(404);
}

#[tokio::test]
async fn a_cancelled_event_is_told_once_and_an_unknown_one_is_remembered() {
    let declared = Declared::new("types: { mail: {}, plain: { register: off } }").await;
    let serving = Serving::start(&declared).await;
    serving.publish(&json!({ "type": "mail", "id": "a", "delay": "1h" })).await.expect(201);
    let cancelled = serving.post("/v1/events/mail/cancel", &json!({ "id": "a" })).await.expect(200).json();
    assert_eq!((&cancelled["results"], &cancelled["ids"]), (&json!({ "cancelled": 1 }), &json!(["a"])));
    let unknown = serving.post("/v1/events/mail/cancel", &json!({ "id": "b" })).await.expect(200).json();
    assert_eq!((&unknown["results"], &unknown["ids"]), (&json!({ "remembered": 1 }), &json!([])));

    serving.get("/v1/events/mail?id=never").await.expect(404);
    serving.get("/v1/events/mial?id=a").await.expect(404);
    serving.get("/v1/events/plain?id=a").await.expect(422);
    serving.get("/v1/events/mail").await.expect(422);
    serving.get("/v1/events/mail?name=a").await.expect(400);
    let secret = serving.get("/v1/events/mail?id=amqp%3A%2F%2Fu%3As3cret%40h").await.expect(422);
    assert!(!secret.text.contains("s3cret"), "{secret:?}");
    serving.post("/v1/events/mail/reschedule", &json!({ "id": "a" })).await.expect(422);
    serving.post("/v1/events/mail/reschedule", &json!({ "id": "c", "delay": "1h" })).await.expect(404);
}

#[tokio::test]
async fn the_status_is_that_of_the_command_line() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    serving.publish(&mail("a")).await.expect(201);
    let status = serving.get("/v1/status").await.expect(200).json();
    assert_eq!((&status["topology"], &status["types"][0]["type"]), (&json!("t"), &json!("mail")), "{status:#}");
    assert_eq!(status["format_version"], 1);
}
