//! Events are found and changed, the stream tells of what changes, and tokens are taken back.

use std::time::{Duration, Instant};

use hatchery::Outcome;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

use super::{
    client::{Serving, mail, read_to},
    rights::{hash, tokens},
};
use crate::support::{
    broker::{PATIENCE, eventually},
    declared::Declared,
    process::Place,
    workers::Working,
};

/// Opens the stream.
async fn listen(serving: &Serving, token: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", serving.port)).await.unwrap();
    let head = format!("GET /v1/changes HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    BufReader::new(stream)
}

async fn until_end(stream: &mut BufReader<TcpStream>) {
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("the stream ends").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_listens_hears_of_changes_until_its_token_is_taken_back() {
    let declared = Declared::new("types: { mail: {} }").await;
    let place = Place::new(&declared);
    let file = place.write("tokens", &tokens());
    let serving = Serving::with(&place, &declared.host.amqp(), &["--tokens", file.to_str().unwrap()]).await;
    let (mut one, mut other) = (listen(&serving, "reads").await, listen(&serving, "all").await);
    for stream in [&mut one, &mut other] {
        let head = read_to(stream, "event: status").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    }
    let publish = |request: reqwest::RequestBuilder| request.bearer_auth("all").json(&mail("a"));
    serving.send(reqwest::Method::POST, "/v1/events", publish).await.expect(201);
    read_to(&mut one, "\"due\":1").await;

    let mut batch =
        serving.open("application/x-ndjson", "transfer-encoding: chunked\r\nauthorization: Bearer mails").await;
    let line = "{\"type\":\"mail\"}\n";
    let line = format!("{:x}\r\n{line}\r\n", line.len());
    batch.get_mut().write_all(line.as_bytes()).await.unwrap();
    read_to(&mut batch, "{\"line\":1,\"id\"").await;

    // A bad file changes nothing, nor does one that is not yet written to its end.
    place.write("tokens", "reads s3cret read");
    let is_told = async || {
        let said = place.lines("log").into_iter().find(|line| line.contains("the file of tokens cannot be read"))?;
        Some(said)
    };
    let said = eventually("the log tells of the bad file", is_told).await;
    assert!(!said.contains("s3cret"), "{said}");
    place.write("tokens", &format!("mails {} publish", hash("mails")));
    let is_told = async || place.lines("log").into_iter().find(|line| line.contains("the last line is cut off"));
    eventually("the log tells of the last line", is_told).await;
    let get = |token: &'static str| move |request: reqwest::RequestBuilder| request.bearer_auth(token);
    serving.send(reqwest::Method::GET, "/v1/breakers", get("reads")).await.expect(200);

    place.write("tokens", &format!("all {} read\n", hash("all")));
    let is_gone = async || {
        let answer = serving.send(reqwest::Method::GET, "/v1/breakers", get("reads")).await;
        (answer.status == 401).then_some(())
    };
    eventually("the token is taken back", is_gone).await;
    serving.send(reqwest::Method::GET, "/v1/breakers", get("all")).await.expect(200);
    batch.get_mut().write_all(line.as_bytes()).await.unwrap();
    read_to(&mut batch, "{\"line\":2,\"error\":\"the token is taken back").await;
    until_end(&mut one).await;
    // The rights of the other one have changed.
    until_end(&mut other).await;
    // The last token too.
    place.write("tokens", "");
    let is_gone = async || {
        let answer = serving.send(reqwest::Method::GET, "/v1/breakers", get("all")).await;
        (answer.status == 401).then_some(())
    };
    eventually("the last token is taken back", is_gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_has_a_bounded_number_of_listeners_and_a_stop_ends_them() {
    let declared = Declared::new("types: { mail: {} }").await;
    let place = Place::new(&declared);
    let file = place.write("tokens", &tokens());
    let serving = Serving::with(&place, &declared.host.amqp(), &["--tokens", file.to_str().unwrap()]).await;
    let mut listeners = Vec::new();
    for _ in 0..32 {
        let mut stream = listen(&serving, "reads").await;
        let head = read_to(&mut stream, "HTTP/1.1").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        listeners.push(stream);
    }
    let get = |token: &'static str| move |request: reqwest::RequestBuilder| request.bearer_auth(token);
    let refused = serving.send(reqwest::Method::GET, "/v1/changes", get("reads")).await.expect(429);
    assert!(refused.retry_after && refused.text.contains("this token has 32 listeners"), "{refused:?}");
    let mut of_another = listen(&serving, "all").await;
    assert!(read_to(&mut of_another, "HTTP/1.1").await.starts_with("HTTP/1.1 200"));
    drop(listeners);
    serving.process.signal(rustix::process::Signal::TERM);
    until_end(&mut of_another).await;
    let began = Instant::now();
    serving.process.ended().await.expect(0);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

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
