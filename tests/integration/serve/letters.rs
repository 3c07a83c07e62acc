//! Dead letters: listed, shown, replayed and discarded.

use futures_util::future::join_all;
use hatchery::Outcome;
use lapin::BasicProperties;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use super::client::Serving;
use crate::support::{
    amqp::Amqp, broker::eventually, declared::Declared, process::Place, redis::free_port, workers::Working,
};

/// Publishes events, and waits until they are dead letters.
pub(super) async fn dead(declared: &Declared, serving: &Serving, ids: &[&str], why: &'static str) {
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
    serving.get("/v1/dead-letters?limit=1001").await.expect(400);
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
        assert_eq!((&dry["groups"][0]["count"], &dry["more"], left().await), (&json!(3), &json!(false), 3));
    }
    let dry = serving.post("/v1/dead-letters/replay", &json!({ "limit": 2 })).await.expect(200).json();
    assert_eq!((&dry["letters"]["would_be_done"], &dry["more"]), (&json!(2), &json!(true)));
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
async fn a_discard_removes_only_letters_that_the_client_has() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    dead(&declared, &serving, &["a", "b"], "HTTP 503").await;
    let left = async || declared.amqp().await.ready(&declared.dead_letters("mail")).await;
    let dry = serving.post("/v1/dead-letters/discard", &json!({})).await.expect(200).json();
    assert_eq!((&dry["letters"]["would_be_done"], &dry["more"], left().await), (&json!(2), &json!(false), 2));
    let lines: Vec<&str> = dry["lines"].as_array().unwrap().iter().map(|of| of["line"].as_str().unwrap()).collect();
    let digests: Vec<&Value> = dry["lines"].as_array().unwrap().iter().map(|of| &of["digest"]).collect();
    // Came after the dry run.
    dead(&declared, &serving, &["c"], "HTTP 503").await;

    let one = serving.post("/v1/dead-letters/discard", &json!({ "limit": 1 })).await.expect(200).json();
    assert_eq!((one["lines"].as_array().unwrap().len(), &one["more"]), (1, &json!(true)));

    let unnamed = serving.post("/v1/dead-letters/discard", &json!({ "dry_run": false })).await.expect(422);
    assert!(unnamed.text.contains("a discard takes the `digests`"), "{unnamed:?}");
    let body = json!({ "reference": "r-c", "digests": digests, "dry_run": false });
    let none = serving.post("/v1/dead-letters/discard", &body).await.expect(200).json();
    assert_eq!((&none["letters"]["done"], left().await), (&json!(0), 3));
    let body = json!({ "digests": digests, "dry_run": false });
    let done = serving.post("/v1/dead-letters/discard", &body).await.expect(200).json();
    assert_eq!((&done["letters"]["done"], &done["letters"]["not_selected"]), (&json!(2), &json!(1)));
    let rest = serving.get("/v1/dead-letters").await.expect(200).json();
    assert_eq!((&rest["found"], &rest["letters"][0]["id"]), (&json!(1), &json!("c")));

    // The lines are those of a batch.
    let answer = serving.batch(lines.join("\n") + "\n").await.expect(200).lines();
    assert!(answer.len() == 2 && answer.iter().all(|line| line["error"].is_null()), "{answer:?}");
}

/// Puts letters into the queue of the type `mail`.
async fn put(declared: &Declared, count: usize) -> Amqp {
    let amqp = declared.amqp().await;
    amqp.publish_in_order("t.dead-letter", "mail.dead-letter", (0..count).map(|n| format!("n{n:05}"))).await;
    amqp
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_discard_removes_no_more_of_equal_letters_than_the_client_names() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    put(&declared, 1).await;
    let amqp = put(&declared, 1).await;
    let dry = serving.post("/v1/dead-letters/discard", &json!({})).await.expect(200).json();
    let [one, other] = [0, 1].map(|n| &dry["lines"][n]["digest"]);
    assert!(one.is_string() && one == other, "{dry}");
    let body = json!({ "digests": [one], "dry_run": false });
    let done = serving.post("/v1/dead-letters/discard", &body).await.expect(200).json();
    let left = amqp.ready(&declared.dead_letters("mail")).await;
    assert_eq!((&done["letters"]["done"], left), (&json!(1), 1), "{done}");
}

async fn listed(place: &Place<'_>) -> u64 {
    let mut command = place.command(&["dead-letter", "list", "--wait", "10s", "-o", "json"]);
    let ended = place.run(command.env("RABBITMQ_MANAGEMENT_URL", place.declared.host.management())).await.expect(0);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    found["found"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_whose_client_goes_away_keeps_no_letters() {
    let declared = Declared::new("types: { mail: {} }").await;
    let (serving, place) = (Serving::start(&declared).await, Place::new(&declared));
    let amqp = put(&declared, 5_000).await;
    let queue = declared.dead_letters("mail");
    for _ in 0..3 {
        let mut client = TcpStream::connect(("127.0.0.1", serving.port)).await.unwrap();
        client.write_all(b"GET /v1/dead-letters HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        eventually("the server looks", async || (amqp.consumers(&queue).await > 0).then_some(())).await;
        drop(client);
        assert_eq!(listed(&place).await, 5_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_looks_of_a_server_see_all_letters() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    put(&declared, 500).await;
    for _ in 0..5 {
        let looks = [(); 3].map(|()| serving.get("/v1/dead-letters?limit=1"));
        for answer in join_all(looks).await {
            let found = answer.expect(200).json();
            assert_eq!((&found["found"], &found["warnings"]), (&json!(500), &json!([])));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_replay_whose_client_goes_away_ends() {
    let declared = Declared::new("types: { mail: {} }").await;
    let (serving, place) = (Serving::start(&declared).await, Place::new(&declared));
    let amqp = put(&declared, 30).await;
    let body = r#"{"rate":1,"limit":30,"dry_run":false}"#;
    let mut client = TcpStream::connect(("127.0.0.1", serving.port)).await.unwrap();
    let head = "POST /v1/dead-letters/replay HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    client.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
    let looks = async || (amqp.consumers(&declared.dead_letters("mail")).await > 0).then_some(());
    eventually("the replay begins", looks).await;
    drop(client);
    // A replay that went on would take its turn between two of these looks, and five letters in it.
    let left = listed(&place).await;
    for _ in 0..10 {
        assert_eq!(listed(&place).await, left);
    }
    assert!(left > 20, "{left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_leaves_the_letters_that_the_replay_leaves() {
    let declared =
        Declared::new("types: { mail: {} }\nsources: { till: { declare: on, events: [ { type: mail } ] } }").await;
    let serving = Serving::start(&declared).await;
    let queue = declared.names().source_dead_letters(&"till".parse().unwrap());
    for _ in 0..2 {
        declared.amqp().await.publish("", &queue, BasicProperties::default(), b"{}").await;
    }
    // The queue of a source makes no delay.
    let later = json!({ "delay": "1h" });
    let dry = serving.post("/v1/dead-letters/replay", &later).await.expect(200).json();
    assert_eq!((&dry["letters"]["would_be_done"], &dry["letters"]["unreadable"]), (&json!(0), &json!(2)));
    let later = json!({ "delay": "1h", "dry_run": false });
    let done = serving.post("/v1/dead-letters/replay", &later).await.expect(200).json();
    assert_eq!((&done["letters"]["done"], &done["letters"]["unreadable"]), (&json!(0), &json!(2)));
    let place = Place::new(&declared);
    let mut command = place.command(&["dead-letter", "replay", "--delay", "1h", "-o", "json"]);
    let ended = place.run(command.env("RABBITMQ_MANAGEMENT_URL", declared.host.management())).await.expect(0);
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap()["letters"]["would_be_done"], 0);
}

/// A policy with a delivery limit might delete the letters that are looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_management_api_no_letter_is_looked_at() {
    let declared = Declared::new("types: { mail: {} }").await;
    let away = format!("http://127.0.0.1:{}", free_port());
    let serving = Serving::managed(&Place::new(&declared), &declared.host.amqp(), &away, &[]).await;
    for answer in [
        serving.get("/v1/dead-letters").await,
        serving.get("/v1/dead-letters/mail/a").await,
        serving.post("/v1/dead-letters/replay", &json!({})).await,
        serving.post("/v1/dead-letters/discard", &json!({})).await,
    ] {
        let answer = answer.expect(503);
        assert!(answer.text.contains("nothing was read: whether a policy limits deliveries"), "{answer:?}");
    }
}

#[rstest]
#[case::an_array("discard", json!([]), 400, "not a JSON object")]
#[case::field("replay", json!({ "resaon": "x" }), 400, "unknown field `resaon`")]
#[case::of_a_discard("replay", json!({ "obsolete": true }), 422, "`obsolete` does not belong here")]
#[case::of_a_replay("discard", json!({ "delay": "1h" }), 422, "`delay` does not belong here")]
#[case::digests_of_a_replay("replay", json!({ "digests": [] }), 422, "`digests` does not belong here")]
#[case::no_digest("discard", json!({ "digests": ["ab"] }), 422, "a digest is a SHA-256 in 64 hexadecimal digits")]
#[case::slow("replay", json!({ "rate": 1, "limit": 241 }), 422, "set a lower `limit`")]
#[case::limit("discard", json!({ "limit": 0 }), 400, "`limit` is 1 to 10000")]
#[case::fraction("discard", json!({ "limit": 1.5 }), 400, "`1.5`")]
#[case::no_rate("replay", json!({ "rate": 0 }), 400, "out of range")]
#[case::whole("replay", json!({ "rate": 1.0, "limit": 241.0 }), 422, "set a lower `limit`")]
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
