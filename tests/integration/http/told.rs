//! The request that a service gets for an event.

use axum::http::HeaderName;
use hatchery::NewEvent;
use percent_encoding::percent_decode_str;

use super::service::{Asked, Service, says, worker};
use crate::support::{
    declared::{Declared, publish},
    process::Place,
};

/// Returns the headers about the event, decoded. Those whose values vary are checked and left out.
fn fields(asked: &Asked) -> Vec<String> {
    let ours = |name: &str| name.starts_with("event-") || matches!(name, "content-type" | "traceparent");
    let varies = ["event-created-at", "event-fence", "event-version"];
    for name in varies {
        let value = asked.header(name);
        assert!(value.is_empty() || value.starts_with(|first: char| first.is_ascii_digit()), "{name}: {value}");
    }
    let names = asked.headers.keys().map(HeaderName::as_str).filter(|name| ours(name) && !varies.contains(name));
    let decoded = |name: &str| percent_decode_str(asked.header(name)).decode_utf8().unwrap().into_owned();
    let mut fields: Vec<String> = names.map(|name| format!("{name}={}", decoded(name))).collect();
    fields.sort();
    fields
}

#[tokio::test]
async fn a_request_has_the_events_payload_and_properties_and_nothing_else() {
    let declared = Declared::new("types: { job: { coalesce: latest } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let payload: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let full = NewEvent::new("job", payload.clone())
        .id("100% full")
        .reference("Ünï 'quoted' +1\u{1f600}")
        .at("2020-06-01T09:00:00.5Z".parse().unwrap())
        .correlation_id(" c d ")
        .traceparent("00-1-2-01")
        .content_type("application/octet-stream")
        .reason("message: queue=hr id=7");
    publish(&hatchery, full).await;
    let service = Service::start(|_| says(204, "")).await;
    let worker = worker(&place, &format!("http://{}/hooks/job?a=b%20c#part", service.address));
    service.reach(1).await;
    publish(&hatchery, NewEvent::new("job", "").id("bare")).await;
    let asked = service.reach(2).await;

    let (full, bare) = (&asked[0], &asked[1]);
    assert_eq!((full.method.as_str(), full.uri.as_str()), ("POST", "/hooks/job?a=b%20c"));
    assert!(full.body == payload, "{} bytes", full.body.len());
    assert_eq!(full.header("content-length"), payload.len().to_string());
    assert_eq!(
        fields(full),
        [
            "content-type=application/octet-stream",
            "event-attempts=0",
            "event-correlation-id= c d ",
            "event-id=100% full",
            "event-nbf=2020-06-01T09:00:00.500Z",
            "event-reason=message: queue=hr id=7",
            "event-reference=Ünï 'quoted' +1\u{1f600}",
            "event-type=job",
            "traceparent=00-1-2-01",
        ]
    );
    assert!(["event-created-at", "event-fence", "event-version"].iter().all(|name| !full.header(name).is_empty()));
    assert_eq!(full.header("event-reference"), "%C3%9Cn%C3%AF 'quoted' %2B1%F0%9F%98%80");

    assert_eq!(fields(bare), ["content-type=application/json", "event-attempts=0", "event-id=bare", "event-type=job"]);
    assert!(bare.body.is_empty());
    assert_eq!((bare.header("authorization"), bare.header("event-version")), ("", ""));
    assert!(bare.header("user-agent").starts_with("hatchery/"), "{bare:?}");
    assert_eq!(worker.stop().await["done"], 2);
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}
