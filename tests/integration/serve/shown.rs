//! The topology with its counts, schedules, pauses and circuit breakers.

use hatchery::Outcome;
use hatchery_admin::schedules::Schedules;
use rstest::rstest;
use serde_json::{Value, json};

use super::client::{Serving, mail};
use crate::support::{broker::eventually, declared::Declared, workers::Working};

#[tokio::test]
async fn the_topology_has_its_counts_and_pauses() {
    let declared = Declared::new("types: { mail: {}, plain: { register: off } }").await;
    let serving = Serving::start(&declared).await;
    serving.publish(&mail("a")).await.expect(201);
    serving.post("/v1/pauses", &json!({ "type": "plain", "reason": "R" })).await.expect(200);
    let processing = declared.processing("mail");
    let shown = async || serving.get("/v1/topology").await.expect(200).json();
    let is_counted = async || {
        let shown = shown().await;
        let queues = shown["queues"].as_array().unwrap();
        queues.iter().any(|queue| queue["queue"] == *processing && queue["ready"] == 1).then_some(shown)
    };
    let shown = eventually("the broker counts the event", is_counted).await;
    assert_eq!((&shown["types"][0]["register"], &shown["types"][1]["register"]), (&json!(true), &json!(false)));
    assert_eq!((&shown["types"][0]["pause"], &shown["types"][1]["pause"]["reason"]), (&Value::Null, &json!("R")));
    assert!(shown["nodes"].as_array().unwrap().iter().any(|node| node["name"] == "processor.mail"), "{shown:#}");
    let picture = serving.get("/v1/topology.svg").await.expect(200);
    assert!(picture.text.starts_with("<svg") && picture.text.contains("processor.mail"), "{picture:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_found_and_traced() {
    let declared = Declared::new("life-cycle: { events: all }\ntypes: { mail: {}, import: {} }").await;
    let serving = Serving::start(&declared).await;
    for (event_type, id, delay) in [("mail", "a", "1h"), ("mail", "b", "2h"), ("import", "c", "3h")] {
        let event = json!({ "type": event_type, "id": id, "reference": format!("r-{id}"), "delay": delay });
        serving.publish(&event).await.expect(201);
    }
    let ids = async |query: &str| {
        let found = serving.get(&format!("/v1/events?{query}")).await.expect(200).json();
        let ids = found["events"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap().to_owned());
        (ids.collect::<String>(), found["more"] == true)
    };
    assert_eq!(ids("").await, ("abc".to_owned(), false));
    assert_eq!(ids("limit=2").await, ("ab".to_owned(), true));
    assert_eq!(ids("type=mail&state=waiting&due_before=90m").await, ("a".to_owned(), false));
    assert_eq!(ids("reference_prefix=r-&reference=r-c").await, ("c".to_owned(), false));
    assert_eq!(ids("state=retry").await, (String::new(), false));
    for (query, status) in [("state=handled", 400), ("limit=0", 400), ("name=a", 400), ("type=mial", 404)] {
        serving.get(&format!("/v1/events?{query}")).await.expect(status);
    }

    let is_told = async || {
        let traced = serving.get("/v1/trace?id=a&since=1h").await.expect(200).json();
        (!traced["records"].as_array().unwrap().is_empty()).then_some(traced)
    };
    let traced = eventually("the publish is recorded", is_told).await;
    assert_eq!((&traced["records"][0]["id"], &traced["events"]), (&json!("a"), &json!("all")));
    assert_eq!((&traced["now"][0]["reference"], &traced["now"][0]["state"]), (&json!("r-a"), &json!("waiting")));
    let other = serving.get("/v1/trace?reference=r-b").await.expect(200).json();
    assert!(other["records"].as_array().unwrap().iter().all(|record| record["id"] == "b"), "{other:#}");
    serving.get("/v1/trace").await.expect(422);
    serving.get("/v1/trace?id=a&since=soon").await.expect(400);
}

const NIGHTLY: &str = "types: { mail: {} }\nschedules: { nightly: { type: mail, cron: \"0 3 * * *\", timezone: UTC } }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_shown_run_now_and_made_up_for() {
    let declared = Declared::new(NIGHTLY).await;
    let hatchery = declared.connect().await;
    Schedules(hatchery.events()).apply().await.unwrap();
    let serving = Serving::start(&declared).await;
    let list = serving.get("/v1/schedules").await.expect(200).json();
    let nightly = &list["schedules"][0];
    assert_eq!((&nightly["name"], &nightly["state"]), (&json!("nightly"), &json!("armed")));
    assert_eq!(nightly["next"].as_array().unwrap().len(), 3);
    let list = serving.get("/v1/schedules?count=30").await.expect(200).json();
    assert_eq!(list["schedules"][0]["next"].as_array().unwrap().len(), 30);
    serving.get("/v1/schedules?count=101").await.expect(400);
    let shown = serving.get("/v1/schedules/nightly?count=30").await.expect(200).json();
    assert_eq!(shown["next"].as_array().unwrap().len(), 30);

    let mut body = json!({ "from": "2026-06-01T00:00:00Z", "to": "2026-06-03T00:00:00Z" });
    let dry = serving.post("/v1/schedules/nightly/backfill", &body).await.expect(200).json();
    assert_eq!((&dry["dry_run"], &dry["ids"][0]), (&json!(true), &json!("nightly!2026-06-01T03:00:00Z")));
    assert_eq!((dry["instants"].as_array().unwrap().len(), &dry["more"]), (2, &json!(false)));
    serving.get("/v1/events/mail?id=nightly!2026-06-01T03:00:00Z").await.expect(404);
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let ran = serving.post("/v1/schedules/nightly/run-now", &json!({})).await.expect(200).json();
    assert!(ran["id"].as_str().unwrap().starts_with("nightly!"), "{ran}");
    assert_eq!(worker.runs.reach(1).await.len(), 1);
    body["dry_run"] = false.into();
    // Sent again with its id, it is the same event.
    let of = json!({ "id": ran["id"] });
    assert_eq!(serving.post("/v1/schedules/nightly/run-now", &of).await.expect(200).json()["id"], ran["id"]);
    let other = serving.post("/v1/schedules/nightly/run-now", &json!({ "id": "weekly!1" })).await.expect(422);
    assert!(other.text.contains("begins with `nightly!`"), "{other:?}");
    serving.post("/v1/schedules/nightly/backfill", &body).await.expect(200);
    assert_eq!(worker.runs.reach(3).await.len(), 3);
    worker.stop().await;
}

#[rstest]
#[case::unknown("nghtly", json!({ "from": "1h ago" }), 404, "did you mean `nightly`?")]
#[case::no_begin("nightly", json!({}), 400, "missing field `from`")]
#[case::future("nightly", json!({ "from": "1h ago", "to": "1h" }), 422, "is not past")]
#[case::order("nightly", json!({ "from": "1h ago", "to": "2h ago" }), 422, "is not before")]
#[case::limit("nightly", json!({ "from": "1h ago", "limit": 1_001 }), 400, "`limit` is 1 to 1000")]
#[tokio::test]
async fn a_bad_backfill_is_refused(#[case] name: &str, #[case] body: Value, #[case] status: u16, #[case] why: &str) {
    let declared = Declared::new(NIGHTLY).await;
    let serving = Serving::start(&declared).await;
    let refused = serving.post(&format!("/v1/schedules/{name}/backfill"), &body).await.expect(status);
    assert!(refused.text.contains(why), "{refused:?}");
}

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
