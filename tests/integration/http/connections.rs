//! Connections to a service, its URL, and the password in it.

use std::collections::BTreeSet;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::NewEvent;
use rstest::rstest;

use super::service::{Service, refusing, says, worker};
use crate::support::{
    broker::{PASSWORD, eventually},
    declared::{Declared, publish},
    process::Place,
};

#[tokio::test]
async fn requests_reuse_their_connections() {
    const EVENTS: usize = 300;
    const CONCURRENCY: usize = 4;
    let declared = Declared::new("types: { job: { prefetch: 20, concurrency: 4 } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let service = Service::start(|_| says(200, "noted")).await;
    let events = (0..EVENTS).map(|n| NewEvent::new("job", n.to_string())).collect();
    assert!(hatchery.publisher().publish_batch(events).await.iter().all(Result::is_ok));
    let worker = worker(&place, &service.url());
    let asked = service.reach(EVENTS).await;
    assert_eq!(worker.stop().await["done"], EVENTS);
    let payloads: BTreeSet<_> = asked.iter().map(|asked| &asked.body).collect();
    assert_eq!((asked.len(), payloads.len()), (EVENTS, EVENTS), "not every event was sent exactly once");
    let connections: BTreeSet<_> = asked.iter().map(|asked| asked.peer).collect();
    // A connection that is returned to the pool a moment late is replaced by a new one.
    assert!(connections.len() <= 3 * CONCURRENCY, "{} connections", connections.len());
}

#[tokio::test]
async fn a_password_in_a_url_is_sent_and_never_shown() {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 1 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let service = Service::start(|_| says(204, "")).await;
    let secret = |address| format!("http://ann:{PASSWORD}%40@{address}/job?token={PASSWORD}");

    let reached = worker(&place, &secret(service.address));
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let asked = service.reach(1).await.remove(0);
    let expected = format!("Basic {}", BASE64_STANDARD.encode(format!("ann:{PASSWORD}@")));
    assert_eq!(asked.header("authorization"), expected);
    assert_eq!(asked.uri, format!("/job?token={PASSWORD}"));
    reached.stop().await;

    // An error about an unreachable service shows no password either.
    let (address, _socket) = refusing();
    let refused = worker(&place, &secret(address));
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let why = format!("no answer from http://{address}: ");
    eventually("the worker says why it waits", async || {
        place.lines("log").iter().any(|line| line.contains(&why)).then_some(())
    })
    .await;
    refused.stop().await;
    let log = place.lines("log").join("\n");
    assert!(!log.contains(PASSWORD), "{log}");
}

#[tokio::test]
async fn a_services_url_is_read_from_a_file() {
    let declared = Declared::new("types: { job: {} }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let service = Service::start(|_| says(204, "")).await;
    place.write("url", &format!("{}\n", service.url()));
    let worker = worker(&place, "@url");
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    service.reach(1).await;
    worker.stop().await;
}

#[rstest]
#[case::no_url("not a url")]
#[case::no_host("http://")]
#[case::other_scheme("ftp://u:s3cret-hunter2@host/")]
#[case::no_port("http://u:s3cret-hunter2@host:99999/")]
#[case::no_scheme("localhost:8080/job?token=s3cret-hunter2")]
#[tokio::test]
async fn an_invalid_url_is_a_usage_error_and_shows_no_password(#[case] url: &str) {
    let declared = Declared::new("types: { job: {} }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let ended = place.run(&mut place.command(&["work", "--type", "job", "--http", url])).await.expect(2);
    assert!(ended.stderr.starts_with("error: --http: not the URL of a service: "), "{ended:?}");
    assert!(!ended.stderr.contains(PASSWORD), "{ended:?}");
    let message = declared.amqp().await.take(&declared.processing("job")).await;
    assert!(!message.redelivered, "the event was delivered to a worker without a service");
}
