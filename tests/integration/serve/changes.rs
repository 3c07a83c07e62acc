//! The stream of what changes, and tokens that are taken back.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

use super::{
    client::{Serving, mail, read_to},
    rights::{hash, tokens},
};
use crate::support::{broker::PATIENCE, broker::eventually, declared::Declared, process::Place};

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
