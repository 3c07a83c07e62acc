//! The answers to clients when not all is well: slow clients, wrong paths, a broker that is unreachable, silent or blocked,
//! and a server that stops.

use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
};

use super::client::{Serving, mail, read_to};
use crate::support::{
    broker::eventually,
    declared::Declared,
    private,
    process::Place,
    redis::{self, free_port},
    relay::Relay,
};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_broker_is_unreachable_every_publish_gets_503_and_its_id_and_the_server_is_not_ready() {
    let declared = Declared::new("types: { mail: {} }\nschedules: { nightly: { type: mail, every: 1d } }").await;
    let (place, relay) = (Place::new(&declared), Relay::to(&declared.host.amqp()).await);
    let metrics = format!("127.0.0.1:{}", free_port());
    let serving = Serving::with(&place, &relay.url, &["--metrics", &metrics]).await;
    let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().unwrap();
    let probe =
        async |path: &str| client.get(format!("http://{metrics}/{path}")).send().await.unwrap().status().as_u16();
    eventually("it is ready", async || (probe("readyz").await == 200).then_some(())).await;
    serving.publish(&mail("before")).await.expect(201);

    relay.close();
    eventually("it is not ready", async || (probe("readyz").await == 503).then_some(())).await;
    let answer = serving.publish(&mail("a")).await.expect(503);
    let problem = answer.json();
    assert!(answer.retry_after && problem["id"] == "a", "{answer:?}");
    assert!(problem["detail"].as_str().unwrap().starts_with("not published: the broker at "), "{problem}");
    serving.batch("{\"type\":\"mail\"}\n".to_owned()).await.expect(503);
    // Whoever repeats the request with this id runs one event.
    let ran = serving.post("/v1/schedules/nightly/run-now", &json!({})).await.expect(503).json();
    assert!(ran["id"].as_str().is_some_and(|id| id.starts_with("nightly!")), "{ran}");
    assert_eq!((probe("readyz").await, probe("livez").await), (503, 200));

    relay.open();
    let again = async || (serving.publish(&mail("a")).await.status == 201).then_some(());
    eventually("the server publishes again", again).await;
    assert_eq!((probe("readyz").await, probe("metrics").await), (200, 200));
    assert_eq!(declared.amqp().await.ready(&declared.processing("mail")).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "waits for a confirm that does not come for 10 s; scripts/test --all runs it"]
async fn an_event_without_a_confirm_gets_503_and_its_id() {
    let declared = Declared::new("types: { mail: {} }").await;
    let (place, relay) = (Place::new(&declared), Relay::to(&declared.host.amqp()).await);
    let serving = Serving::with(&place, &relay.url, &[]).await;
    serving.publish(&mail("before")).await.expect(201);
    relay.silence();
    let answer = serving.publish(&mail("a")).await.expect(503);
    assert!(answer.retry_after && answer.json()["id"] == "a", "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "blocks a broker of its own; scripts/test --all runs it"]
async fn while_the_broker_blocks_a_publish_gets_503_before_it_is_sent() {
    let mut broker = private::broker().await;
    let declared = Declared::on(broker.host(), "types: { mail: {} }", redis::url()).await;
    let serving = Serving::start(&declared).await;
    broker.block().await;
    let mut sent = 0;
    // The broker says that it blocks a connection when something is published on it.
    eventually("a publish is not confirmed", async || {
        let is_confirmed = serving.publish(&mail("first")).await.status == 201;
        sent += u32::from(is_confirmed);
        (!is_confirmed).then_some(())
    })
    .await;
    let answer = serving.publish(&mail("second")).await.expect(503);
    let problem = answer.json();
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("not published: ") && detail.contains("takes no messages for now"), "{problem}");
    assert!(answer.retry_after && problem["id"] == "second", "{answer:?}");
    serving.batch("{\"type\":\"mail\"}\n".to_owned()).await.expect(503);

    broker.unblock().await;
    let again = async || (serving.publish(&mail("after")).await.status == 201).then_some(());
    eventually("the server publishes again", again).await;
    let ready = declared.amqp().await.ready(&declared.processing("mail")).await;
    // What had no confirm waits in the client until the broker takes it.
    assert!((sent + 1..=sent + 2).contains(&ready), "the second one was sent: {ready}, {sent} before");
}
