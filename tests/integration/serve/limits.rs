//! Slow clients, and paths that there are not.

use reqwest::Method;
use tokio::io::AsyncWriteExt as _;

use super::client::{Serving, mail, read_to};
use crate::support::declared::Declared;

#[tokio::test]
async fn clients_that_do_not_send_their_bodies_keep_no_memory_from_others() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let mut slow = Vec::new();
    for _ in 0..32 {
        // Their bodies may become as long as the longest.
        let mut stream = serving.open("application/json", "transfer-encoding: chunked").await;
        stream.get_mut().write_all(b"1\r\n{\r\n").await.unwrap();
        slow.push(stream);
    }
    serving.publish(&mail("quick")).await.expect(201);
}

#[tokio::test]
#[ignore = "waits for the limit of 30 s; scripts/test --all runs it"]
async fn a_slow_body_is_ended_while_others_are_served() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut stream = serving.open("application/json", "content-length: 1000").await;
        stream.get_mut().write_all(b"{").await.unwrap();
        slow.push(stream);
    }
    for n in 0..10 {
        serving.publish(&mail(&format!("{n}"))).await.expect(201);
    }
    for stream in &mut slow {
        let answer = read_to(stream, "the body takes longer than 30 s").await;
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    serving.publish(&mail("after")).await.expect(201);
}

#[tokio::test]
async fn an_unknown_path_and_method_are_problems_too() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().unwrap();
    let url = |path: &str| format!("http://127.0.0.1:{}{path}", serving.port);
    for (method, path, status) in
        [(Method::GET, "/nothing", 404), (Method::GET, "/v1/../etc/passwd", 404), (Method::DELETE, "/v1/events", 405)]
    {
        let answer = client.request(method, url(path)).send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["content-type"]),
            (status, &"application/problem+json".parse().unwrap())
        );
    }
}
