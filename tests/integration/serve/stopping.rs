//! A stop lets requests under way end.

use rustix::process::Signal;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
};

use super::client::{Serving, read_to};
use crate::support::{broker::eventually, declared::Declared, process::Place};

#[tokio::test]
async fn a_stop_answers_what_is_under_way_and_takes_no_more() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let (begin, rest) = (br#"{"type": "mail", "#, br#""id": "late"}"#);
    let mut one = serving.open("application/json", &format!("content-length: {}", begin.len() + rest.len())).await;
    one.get_mut().write_all(begin).await.unwrap();
    let mut batch = serving.open("application/x-ndjson", "transfer-encoding: chunked").await;
    let line = b"{\"type\":\"mail\",\"id\":\"in-time\"}\n";
    batch.get_mut().write_all(format!("{:x}\r\n", line.len()).as_bytes()).await.unwrap();
    batch.get_mut().write_all(line).await.unwrap();
    batch.get_mut().write_all(b"\r\n").await.unwrap();
    read_to(&mut batch, "{\"line\":1,\"id\":\"in-time\"}").await;

    serving.process.signal(Signal::TERM);
    read_to(&mut batch, "{\"line\":2,\"error\":\"the server stops: this line and those after it are not published\"}")
        .await;
    let refused = async || TcpStream::connect(("127.0.0.1", serving.port)).await.is_err().then_some(());
    eventually("the server accepts no connection", refused).await;
    one.get_mut().write_all(rest).await.unwrap();
    let answer = read_to(&mut one, "{\"id\":\"late\"}").await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    serving.process.ended().await.expect(0);
    assert_eq!(declared.amqp().await.ready(&declared.processing("mail")).await, 2);
}

#[tokio::test]
async fn a_stop_ends_a_look_that_is_under_way() {
    let declared = Declared::new("types: { mail: {} }").await;
    let place = Place::new(&declared);
    // It takes connections and never answers.
    let management = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://guest:guest@{}", management.local_addr().unwrap());
    let serving = Serving::managed(&place, &declared.host.amqp(), &url, &["--metrics", "127.0.0.1:0"]).await;
    let _asked = management.accept().await.unwrap();
    serving.process.signal(Signal::TERM);
    serving.process.ended().await.expect(0);
    let log = place.lines("log");
    assert!(!log.iter().any(|line| line.contains("panicked")), "{log:#?}");
}
