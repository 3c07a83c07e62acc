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
use futures_util::{StreamExt as _, stream};
use hatchery::NewEvent;
use rstest::rstest;

use super::service::{Service, says, worker};
use crate::support::{
    amqp::shown,
    broker::eventually,
    declared::{Declared, publish},
    process::Place,
};

/// A body without end: this much, again and again, after a pause each time.
fn endless(chunk: &'static [u8], pause: Duration, sent: Arc<AtomicUsize>) -> Body {
    Body::from_stream(stream::unfold((), move |()| {
        let sent = Arc::clone(&sent);
        async move {
            tokio::time::sleep(pause).await;
            sent.fetch_add(chunk.len(), Ordering::Relaxed);
            Some((Ok::<_, Infallible>(Bytes::from_static(chunk)), ()))
        }
    }))
}

#[tokio::test]
async fn the_time_limit_ends_a_request_and_its_answer() {
    let limits = "handler-timeout: 500ms, retry: { delays: [50ms], max-attempts: 1 }";
    let declared = Declared::new(&format!("types: {{ job: {{ {limits} }} }}")).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    // Drop by drop, so that only the whole takes too long.
    let service = Service::start(|_| says(200, endless(b".", Duration::from_millis(50), Arc::default()))).await;
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
    let sent = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&sent);
    let service =
        Service::start(move |_| says(status, endless(&[b'a'; 16_384], Duration::ZERO, Arc::clone(&count)))).await;
    let worker = worker(&place, &service.url());
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    service.reach(1).await;
    // The connection is closed, and so the rest is not even made.
    let mut before = 0;
    let stands = async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = sent.load(Ordering::Relaxed);
        let stands = now > 0 && now == before;
        before = now;
        stands.then_some(now)
    };
    let sent = eventually("nothing more is sent", stands).await;
    assert!((64 * 1024..64 << 20).contains(&sent), "{sent} bytes");
    let summary = worker.stop().await;
    assert_eq!(summary[counted], 1, "{summary}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_failure_and_not_done() {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 2 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let service = Service::start(|asked| match asked.attempts() {
        0 => {
            let begins = stream::iter([Ok(Bytes::from_static(b"{\"disc"))]);
            let dies = stream::once(async {
                // What was said before is on its way by then.
                tokio::time::sleep(Duration::from_millis(100)).await;
                Err(std::io::Error::other("the service has died"))
            });
            says(200, Body::from_stream(begins.chain(dies)))
        }
        _ => says(204, ""),
    })
    .await;
    let worker = worker(&place, &service.url());
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let again = service.reach(2).await.remove(1);
    assert!(again.header("event-reason").contains("200 OK: the answer broke off: "), "{again:?}");
    assert_eq!(worker.stop().await["done"], 1);
}
