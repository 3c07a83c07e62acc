//! Services that are slow, or say too much.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::{Body, Bytes};
use futures_util::stream;
use hatchery::{CancellationToken, NewEvent};
use rstest::rstest;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::service::{Service, says, says_with, worker};
use crate::support::{
    amqp::shown,
    broker::{PATIENCE, eventually},
    declared::{Declared, publish},
    process::Place,
};

/// What is known of a body that is sent.
#[derive(Clone, Default)]
struct Sent {
    bytes: Arc<AtomicUsize>,
    /// Nobody wants more of it.
    over: CancellationToken,
}

/// A body without end: this much, again and again, after a pause each time.
fn endless(chunk: &'static [u8], pause: Duration, sent: Sent) -> Body {
    let state = (sent.bytes, sent.over.drop_guard());
    Body::from_stream(stream::unfold(state, move |(bytes, over)| async move {
        tokio::time::sleep(pause).await;
        bytes.fetch_add(chunk.len(), Ordering::Relaxed);
        Some((Ok::<_, Infallible>(Bytes::from_static(chunk)), (bytes, over)))
    }))
}

#[tokio::test]
async fn the_time_limit_ends_a_request_and_its_answer() {
    let limits = "handler-timeout: 500ms, retry: { delays: [50ms], max-attempts: 1 }";
    let declared = Declared::new(&format!("types: {{ job: {{ {limits} }} }}")).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    // Drop by drop, so that only the whole takes too long.
    let service = Service::start(|_| says(200, endless(b".", Duration::from_millis(50), Sent::default()))).await;
    let worker = worker(&place, &service.url());
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let letter = declared.amqp().await.take(&declared.dead_letters("job")).await;
    let reason = shown(&letter, "reason").unwrap();
    assert!(reason.ends_with("error=\"no answer within handler-timeout (500ms)\""), "{reason}");
    assert_eq!(service.asked().len(), 1);
    worker.stop().await;
}

#[rstest]
#[case::success(200, "done")]
#[case::failure(400, "dead_lettered")]
#[tokio::test]
async fn of_an_answer_without_end_no_more_is_read_than_counts(#[case] status: u16, #[case] counted: &str) {
    let declared = Declared::new("types: { job: {} }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let sent = Sent::default();
    let sending = sent.clone();
    let service =
        Service::start(move |_| says(status, endless(&[b'a'; 16_384], Duration::ZERO, sending.clone()))).await;
    let worker = worker(&place, &service.url());
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    // The connection is closed, and so the rest is not even made.
    eventually("nothing more is sent", async || sent.over.is_cancelled().then_some(())).await;
    let sent = sent.bytes.load(Ordering::Relaxed);
    assert!((64 * 1024..64 << 20).contains(&sent), "{sent} bytes");
    let summary = worker.stop().await;
    assert_eq!(summary[counted], 1, "{summary}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_failure_and_not_done() {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 2 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let worker = worker(&place, &format!("http://{}/job", listener.local_addr().unwrap()));
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let (mut asking, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.expect("it asks").unwrap();
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n{}") {
        asked.push(asking.read_u8().await.unwrap());
    }
    asking.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"disc").await.unwrap();
    drop(asking);
    let service = Service::on(listener, |_| says(204, ""));
    let again = service.reach(1).await.remove(0);
    assert_eq!(again.attempts(), 1);
    assert!(again.header("event-reason").contains("200 OK: the answer broke off: "), "{again:?}");
    assert_eq!(worker.stop().await["done"], 1);
}

#[tokio::test]
async fn want_of_open_files_spends_no_attempt_and_buries_nothing() {
    let limits = "handler-timeout: 1s, retry: { delays: [50ms], max-attempts: 1 }";
    let declared = Declared::new(&format!("types: {{ job: {{ {limits} }} }}")).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let service = Service::start(|_| says(200, "")).await;
    let worker = worker(&place, &service.url());
    let lines = |what: &str| place.lines("log").iter().filter(|line| line.contains(what)).count();
    eventually("it consumes", async || (lines("consuming t.processor.job") == 1).then_some(())).await;
    // It has no connection to the service yet.
    let before = worker.limit_files(Some(3));
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    eventually("it is tried again and again", async || (lines("no room for a handler") >= 4).then_some(())).await;
    worker.limit_files(before);
    let asked = service.reach(1).await;
    assert_eq!(asked[0].headers["event-attempts"], "0");
    let summary = worker.stop().await;
    assert_eq!((&summary["done"], &summary["dead_lettered"]), (&1.into(), &0.into()), "{summary}");
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

/// The ladder of the tests reaches 1.55 s. What fails for now must come back within the horizon, whoever asks for more.
#[tokio::test]
async fn a_retry_comes_back_within_the_horizon_however_late_the_service_wants_it() {
    let declared = Declared::new("types: { job: {} }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("job", "{}").id("one")).await;
    let place = Place::new(&declared);
    let service = Service::start(|asked| match asked.attempts() {
        0 => says_with(503, "retry-after", "99999999999"),
        1 => says(200, "{\"retry\": {\"after\": \"3000d\"}}"),
        _ => says(200, ""),
    })
    .await;
    let worker = worker(&place, &service.url());
    service.reach(3).await;
    assert_eq!(worker.stop().await["done"], 1);
    let cut = |line: &&String| line.contains("WARN") && line.contains("horizon") && line.contains("id=one");
    assert_eq!(place.lines("log").iter().filter(cut).count(), 2, "{:?}", place.lines("log"));
}
