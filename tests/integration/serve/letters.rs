//! Dead letters: listed, shown, replayed and discarded.

use hatchery::Outcome;
use rstest::rstest;
use serde_json::{Value, json};

use super::client::Serving;
use crate::support::{broker::eventually, declared::Declared, workers::Working};

/// Publishes events, and waits until they are dead letters.
async fn dead(declared: &Declared, serving: &Serving, ids: &[&str], why: &'static str) {
    let hatchery = declared.connect().await;
    let before = declared.amqp().await.ready(&declared.dead_letters("mail")).await;
    let worker = Working::start(&hatchery, "mail", move |_| Outcome::DeadLetter { reason: why.into() });
    for id in ids {
        let event = json!({ "type": "mail", "id": id, "reference": format!("r-{id}"), "payload": { "to": id } });
        serving.publish(&event).await.expect(201);
    }
    let all = before + u32::try_from(ids.len()).unwrap();
    let is_dead = async || (declared.amqp().await.ready(&declared.dead_letters("mail")).await == all).then_some(());
    eventually("the events are dead letters", is_dead).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_are_listed_by_reason_and_one_by_one() {
    let declared = Declared::new("types: { mail: {}, import: {} }").await;
    let serving = Serving::start(&declared).await;
    dead(&declared, &serving, &["a", "b"], "HTTP 503").await;
    dead(&declared, &serving, &["c"], "no such address").await;

    let found = serving.get("/v1/dead-letters").await.expect(200).json();
    let groups: Vec<_> = found["groups"].as_array().unwrap().iter().map(|group| &group["count"]).collect();
    assert_eq!((&found["found"], &found["obsolete"], groups), (&json!(3), &json!(0), vec![&json!(2), &json!(1)]));
    let ids = |found: &Value| -> Vec<String> {
        let letters = found["letters"].as_array().unwrap();
        let mut ids: Vec<String> = letters.iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect();
        // Events of a type run side by side.
        ids.sort();
        ids
    };
    assert_eq!(ids(&found), ["a", "b", "c"]);
    let one = serving.get("/v1/dead-letters?type=mail&reason=ADDRESS&since=1h+ago").await.expect(200).json();
    assert_eq!((ids(&one), &one["letters"][0]["payload"]), (vec!["c".to_owned()], &json!("{\"to\":\"c\"}")));
    let cut = serving.get("/v1/dead-letters?limit=1").await.expect(200).json();
    assert_eq!((ids(&cut).len(), &cut["more"], &cut["found"]), (1, &json!(true), &json!(3)));
    let none = serving.get("/v1/dead-letters?type=import").await.expect(200).json();
    assert_eq!((&none["found"], &none["letters"]), (&json!(0), &json!([])));

    let shown = serving.get("/v1/dead-letters/mail/a?payload_limit=3").await.expect(200).json();
    let letter = &shown["letters"][0];
    assert_eq!((&letter["reference"], &letter["payload"]), (&json!("r-a"), &json!("{\"t")));
    assert_eq!((&letter["payload_cut"], &letter["failure"]), (&json!(true), &json!("HTTP 503")));
    serving.get("/v1/dead-letters/import/a").await.expect(404);
    serving.get("/v1/dead-letters/mial/a").await.expect(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_changes_nothing_and_a_replay_runs_the_events_again() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    dead(&declared, &serving, &["a", "b", "c"], "HTTP 503").await;
    let left = async || declared.amqp().await.ready(&declared.dead_letters("mail")).await;

    for body in [json!({ "type": "mail" }), json!({ "dry_run": true })] {
        let dry = serving.post("/v1/dead-letters/replay", &body).await.expect(200).json();
        assert_eq!((&dry["dry_run"], &dry["letters"]["would_be_done"]), (&json!(true), &json!(3)));
        assert_eq!((&dry["groups"][0]["count"], left().await), (&json!(3), 3));
    }
    let one = json!({ "id": "b", "dry_run": false });
    let done = serving.post("/v1/dead-letters/replay", &one).await.expect(200).json();
    assert_eq!((&done["dry_run"], &done["letters"]["done"]), (&json!(false), &json!(1)));
    assert_eq!((&done["letters"]["not_selected"], &done["warnings"]), (&json!(2), &json!([])));
    assert_eq!(left().await, 2);
    let limited = json!({ "limit": 1, "dry_run": false });
    let done = serving.post("/v1/dead-letters/replay", &limited).await.expect(200).json();
    assert_eq!((&done["letters"]["done"], left().await), (&json!(1), 1));

    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let runs = worker.runs.reach(2).await;
    assert_eq!(runs.len(), 2);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_discard_answers_with_the_letters() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    dead(&declared, &serving, &["a", "b"], "HTTP 503").await;
    let left = async || declared.amqp().await.ready(&declared.dead_letters("mail")).await;
    let dry = serving.post("/v1/dead-letters/discard", &json!({ "reference": "r-a" })).await.expect(200).json();
    assert_eq!((&dry["letters"]["would_be_done"], left().await), (&json!(1), 2));
    let body = json!({ "reference": "r-a", "dry_run": false });
    let done = serving.post("/v1/dead-letters/discard", &body).await.expect(200).json();
    assert_eq!((&done["letters"]["done"], left().await), (&json!(1), 1));
    let saved = &done["saved"];
    assert_eq!((saved.as_array().unwrap().len(), &saved[0]["payload"]), (1, &json!({ "to": "a" })));
    // The lines are those of a batch.
    let answer = serving.batch(format!("{}\n", saved[0])).await.expect(200).lines();
    assert!(answer[0]["error"].is_null(), "{answer:?}");
}

#[rstest]
#[case::field("replay", json!({ "resaon": "x" }), 400, "unknown field `resaon`")]
#[case::of_a_discard("replay", json!({ "obsolete": true }), 400, "`obsolete` does not belong here")]
#[case::of_a_replay("discard", json!({ "delay": "1h" }), 400, "`delay` does not belong here")]
#[case::limit("discard", json!({ "limit": 0 }), 400, "`limit` is 1 to 10000")]
#[case::unknown_type("replay", json!({ "type": "mial" }), 404, "there is no type `mial`")]
#[case::no_time("replay", json!({ "since": "yesterday" }), 400, "not a time")]
#[tokio::test]
async fn a_bad_choice_of_letters_is_refused(
    #[case] verb: &str,
    #[case] body: Value,
    #[case] status: u16,
    #[case] why: &str,
) {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let refused = serving.post(&format!("/v1/dead-letters/{verb}"), &body).await.expect(status);
    assert!(refused.text.contains(why), "{refused:?}");
}
