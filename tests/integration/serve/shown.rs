//! The topology with its counts, and schedules.

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
