//! Services that are slow, send too much, or break off.

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

/// The state of a body that a service sends.
#[derive(Clone, Default)]
struct Sent {
    bytes: Arc<AtomicUsize>,
    /// Cancelled when the client has closed the connection.
    over: CancellationToken,
}

/// Returns a body without end, which repeats this chunk after a pause each time.
fn endless(chunk: &'static [u8], pause: Duration, sent: Sent) -> Body {
    let state = (sent.bytes, sent.over.drop_guard());
    Body::from_stream(stream::unfold(state, move |(bytes, over)| async move {
        tokio::time::sleep(pause).await;
        bytes.fetch_add(chunk.len(), Ordering::Relaxed);
        Some((Ok::<_, Infallible>(Bytes::from_static(chunk)), (bytes, over)))
    }))
}

#[tokio::test]
async fn a_handler_timeout_ends_a_request_whose_answer_is_slow() {
    let limits = "handler-timeout: 500ms, retry: { delays: [50ms], max-attempts: 1 }";
    let declared = Declared::new(&format!("types: {{ job: {{ {limits} }} }}")).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    // Each chunk comes soon; only the whole answer takes too long.
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
async fn an_endless_answer_is_cut_and_its_status_counts(#[case] status: u16, #[case] counted: &str) {
    let declared = Declared::new("types: { job: {} }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let sent = Sent::default();
    let sending = sent.clone();
    let service =
        Service::start(move |_| says(status, endless(&[b'a'; 16_384], Duration::ZERO, sending.clone()))).await;
    let worker = worker(&place, &service.url());
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    // The worker closes the connection, so the service stops making the body.
    eventually("the worker closes the connection", async || sent.over.is_cancelled().then_some(())).await;
    let sent = sent.bytes.load(Ordering::Relaxed);
    assert!((64 * 1024..64 << 20).contains(&sent), "{sent} bytes");
    let summary = worker.stop().await;
    assert_eq!(summary[counted], 1, "{summary}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_failure() {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 2 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let worker = worker(&place, &format!("http://{}/job", listener.local_addr().unwrap()));
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let (mut asking, _) =
        tokio::time::timeout(PATIENCE, listener.accept()).await.expect("the worker sends no request").unwrap();
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
async fn a_request_that_lacks_open_files_waits_without_spending_an_attempt() {
    let limits = "handler-timeout: 1s, retry: { delays: [50ms], max-attempts: 1 }";
    let declared = Declared::new(&format!("types: {{ job: {{ {limits} }} }}")).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let service = Service::start(|_| says(200, "")).await;
    let worker = worker(&place, &service.url());
    let lines = |what: &str| place.lines("log").iter().filter(|line| line.contains(what)).count();
    eventually("the worker consumes", async || (lines("consuming t.processor.job") == 1).then_some(())).await;
    // The worker has no connection to the service yet.
    let before = worker.limit_files(Some(3));
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    eventually("the worker has tried to start the handler four times", async || {
        (lines("unavailable") >= 4).then_some(())
    })
    .await;
    worker.limit_files(before);
    let asked = service.reach(1).await;
    assert_eq!(asked[0].headers["event-attempts"], "0");
    let summary = worker.stop().await;
    assert_eq!((&summary["done"], &summary["dead_lettered"]), (&1.into(), &0.into()), "{summary}");
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

/// The ladder of the tests reaches 1.55 s. A failed event must come back within that horizon, however long a delay the
/// service asks for.
#[tokio::test]
async fn a_services_delay_beyond_the_horizon_is_cut_to_the_horizon() {
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
