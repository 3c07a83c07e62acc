//! Batches by `POST /v1/events`.

use std::fmt::Write as _;

use hatchery::Outcome;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::client::Serving;
use crate::support::{broker::PATIENCE, declared::Declared, workers::Working};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_line_is_refused_and_the_others_run() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let batch = "{\"type\":\"mail\",\"id\":\"a\"}\nno event\n{\"type\":\"mial\"}\n\n{\"type\":\"mail\",\"id\":\"b\"}\n";
    let answer = serving.batch(batch.to_owned()).await.expect(200);
    let mut lines = answer.lines();
    lines.sort_by_key(|line| line["line"].as_u64());
    assert_eq!(lines[0].to_string(), r#"{"id":"a","line":1}"#);
    assert_eq!(lines[1].to_string(), r#"{"error":"not a JSON object","line":2}"#);
    let (error, id) = (lines[2]["error"].as_str().unwrap(), lines[2]["id"].as_str());
    assert!(error.contains("is it `mail`?") && id.is_some_and(|id| id.len() == 36), "{answer:?}");
    assert_eq!(lines[3].to_string(), r#"{"id":"b","line":5}"#);
    assert_eq!(lines.len(), 4);

    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let mut ids: Vec<String> = worker.runs.reach(2).await.into_iter().map(|seen| seen.event.id).collect();
    ids.sort();
    assert_eq!(ids, ["a", "b"]);
    worker.stop().await;
}

#[tokio::test]
async fn a_line_whose_event_is_known_has_its_state() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let event = |id: &str| format!("{{\"type\":\"mail\",\"id\":\"{id}\",\"delay\":\"1h\"}}\n");
    serving.batch(event("a") + &event("b")).await.expect(200);
    let again = event("a") + "{\"cancel\":{\"type\":\"mail\",\"id\":\"b\"}}\n" + &event("b") + &event("c");
    let mut lines = serving.batch(again).await.expect(200).lines();
    lines.sort_by_key(|line| line["line"].as_u64());
    let states: Vec<_> = lines.iter().map(|line| line["state"].as_str()).collect();
    assert_eq!(states, [Some("waiting"), None, Some("cancelled"), None], "{lines:?}");
}

#[tokio::test]
async fn a_line_that_cancels_reaches_the_lines_before_it() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let batch = "{\"type\":\"mail\",\"id\":\"a\",\"delay\":\"1h\"}\n{\"cancel\":{\"type\":\"mail\",\"id\":\"a\"}}\n";
    let lines = serving.batch(batch.to_owned()).await.expect(200).lines();
    assert_eq!(lines[1].to_string(), r#"{"ids":["a"],"line":2,"results":{"cancelled":1}}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_read_to_its_end_although_nobody_reads_the_answers_and_ends_after_10_000_lines() {
    let declared = Declared::new("types: { mail: { register: off } }").await;
    let serving = Serving::start(&declared).await;
    // Its answers are longer than the buffers of a connection.
    let batch = (0..10_001).fold(String::new(), |mut batch, n| {
        let _ = writeln!(batch, "{{\"type\":\"mail\",\"id\":\"{}-{n}\"}}", "x".repeat(200));
        batch
    });
    let mut stream = serving
        .open("application/x-ndjson", &format!("content-length: {}\r\nconnection: close", batch.len()))
        .await
        .into_inner();
    timeout(PATIENCE, stream.write_all(batch.as_bytes())).await.expect("it is read").unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("the answer ends").unwrap();
    assert_eq!(answer.matches("\"id\"").count(), 10_000, "{}", &answer[..1_000]);
    let last =
        "{\"line\":10001,\"error\":\"a batch may have 10000 lines: this line and those after it are not published\"}";
    assert!(answer.contains(last), "{}", &answer[answer.len() - 1_000..]);
    assert_eq!(declared.amqp().await.ready(&declared.processing("mail")).await, 10_000);
}
