//! The request that a service gets for an event, and the meaning of its status codes, headers and bodies.

use std::{collections::BTreeSet, time::Duration};

use axum::http::HeaderName;
use hatchery::NewEvent;
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use rstest::rstest;

use super::service::{Asked, Service, refusing, says, says_with, worker};
use crate::support::{
    amqp::shown,
    broker::eventually,
    declared::{Declared, publish},
    process::Place,
};

#[rstest]
#[case::bad_request(400, "no such employee\nat line 7", "dead-letter: 400 Bad Request: no such employee")]
#[case::conflict(409, "", "dead-letter: 409 Conflict")]
#[case::gone(410, "", "dead-letter: 410 Gone")]
#[case::too_large(413, "", "dead-letter: 413 Payload Too Large")]
#[case::media_type(415, "", "dead-letter: 415 Unsupported Media Type")]
#[case::unprocessable(422, "", "dead-letter: 422 Unprocessable Entity")]
#[case::answer(200, "{\n \"dead-letter\": {\"reason\": \"left\"}\n}\n", "dead-letter: left")]
#[case::not_found(404, "no route", "error=\"404 Not Found: no route\"")]
#[case::timeout(408, "", "error=\"408 Request Timeout\"")]
#[case::limit(429, "", "error=\"429 Too Many Requests\"")]
#[case::unauthorized(401, "", "error=\"401 Unauthorized\"")]
#[case::broken(500, "oops", "error=\"500 Internal Server Error: oops\"")]
#[case::broken_answer(200, "{\"requeue\": {\"at\": \"soon\"}}", "error=\"the answer cannot be understood: ")]
#[case::an_answer_counts_only_with_a_success(502, "{\"discard\": {}}", "error=\"502 Bad Gateway: {\"discard\": {}}\"")]
#[tokio::test]
async fn a_services_refusal_is_the_reason_of_its_dead_letter(
    #[case] status: u16,
    #[case] body: &'static str,
    #[case] reason: &str,
) {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 2 } } }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let place = Place::new(&declared);
    let service = Service::start(move |_| says(status, body)).await;
    let worker = worker(&place, &service.url());
    let amqp = declared.amqp().await;
    let letter = amqp.take(&declared.dead_letters("job")).await;
    let said = shown(&letter, "reason").unwrap();
    assert!(said.contains(reason), "{said}");
    // An event that will never work is sent once; a failure is repeated until no attempts are left.
    let never = said.starts_with("dead-letter: ");
    assert_eq!(service.asked().len(), if never { 1 } else { 2 }, "{said}");
    assert_eq!(shown(&letter, "attempts").as_deref(), Some(if never { "0" } else { "2" }));
    let summary = worker.stop().await;
    assert_eq!((&summary["dead_lettered"], &summary["done"]), (&1.into(), &0.into()));
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[rstest]
#[case::ok(200, "", "done", 1)]
#[case::accepted(202, "thank you", "done", 1)]
#[case::other_json(201, "{\"id\": 7}", "done", 1)]
#[case::discard(200, "{\"discard\": {\"reason\": \"left\"}}", "discarded", 1)]
#[case::retry(200, "{\"retry\": {\"after\": \"100ms\"}}", "retried", 2)]
#[case::requeue(200, "{\"requeue\": {\"after\": \"100ms\", \"reason\": \"again\"}}", "requeued", 2)]
#[case::failure(503, "", "retried", 2)]
#[tokio::test]
async fn a_services_answer_decides_what_follows(
    #[case] status: u16,
    #[case] body: &'static str,
    #[case] counted: &str,
    #[case] runs: usize,
) {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 2 } } }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let place = Place::new(&declared);
    let first = |reason: &str, attempts| attempts == 0 && reason != "again";
    let service = Service::start(move |asked| {
        if first(asked.header("event-reason"), asked.attempts()) { says(status, body) } else { says(204, "") }
    })
    .await;
    let worker = worker(&place, &service.url());
    service.reach(runs).await;
    let summary = worker.stop().await;
    assert_eq!(summary[counted], 1, "{summary}");
    let ended = summary["done"].as_u64().unwrap() + summary["discarded"].as_u64().unwrap();
    assert_eq!((ended, service.asked().len()), (1, runs), "{summary}");
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[rstest]
#[case::seconds(|_| "2".to_owned())]
#[case::date(|then: Timestamp| then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())]
#[tokio::test]
async fn a_retry_waits_as_long_as_retry_after_says(#[case] retry_after: fn(Timestamp) -> String) {
    // The ladder's horizon is beyond the delay that the service asks for.
    let ladder = "ladder: { resolution: 50ms, horizon: 1m }\n";
    let types = "types: { job: { retry: { delays: [50ms], max-attempts: 2 } } }";
    let declared = Declared::new(&format!("{ladder}{types}")).await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let place = Place::new(&declared);
    let service = Service::start(move |asked| match asked.attempts() {
        // The date is cut to whole seconds, so it is still at least two seconds ahead.
        0 => says_with(503, "retry-after", &retry_after(asked.at + Duration::from_millis(2_999))),
        _ => says(204, ""),
    })
    .await;
    let worker = worker(&place, &service.url());
    let asked = service.reach(2).await;
    let waited = asked[1].at.duration_since(asked[0].at);
    assert!(waited.as_millis() >= 2_000, "{waited}");
    let nbf: Timestamp = asked[1].header("event-nbf").parse().unwrap();
    assert!(asked[1].at >= nbf && nbf.duration_since(asked[0].at).as_millis() >= 2_000, "{nbf}");
    assert_eq!(worker.stop().await["retried"], 1);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 1 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let elsewhere = Service::start(|_| says(204, "")).await;
    let to = elsewhere.url() + "?token=s3cret";
    for status in [301, 302, 303, 307, 308] {
        let to = to.clone();
        let service = Service::start(move |_| says_with(status, "location", &to)).await;
        let worker = worker(&place, &service.url());
        publish(&hatchery, NewEvent::new("job", "{}")).await;
        let letter = declared.amqp().await.take(&declared.dead_letters("job")).await;
        let reason = shown(&letter, "reason").unwrap();
        let leads = format!("and this one leads to http://{}\"", elsewhere.address);
        assert!(reason.contains(&status.to_string()) && reason.ends_with(&leads), "{reason}");
        worker.stop().await;
    }
    assert!(elsewhere.asked().is_empty());
}

/// One attempt is all that an event has, so each that was counted as failed would be dead.
#[rstest]
#[case::claimed("job: { retry: { delays: [50ms], max-attempts: 1 } }")]
#[case::unregistered("job: { register: off, retry: { delays: [50ms], max-attempts: 1 } }")]
#[case::in_order("job: { on-failure: block, retry: { delays: [50ms] } }")]
#[tokio::test]
async fn events_whose_service_is_away_wait_spend_no_attempt_and_run_once_when_it_is_back(#[case] event_type: &str) {
    const EVENTS: usize = 20;
    let declared = Declared::new(&format!("types: {{ {event_type} }}")).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let (address, socket) = refusing();
    let worker = worker(&place, &format!("http://{address}/"));
    for n in 0..EVENTS {
        publish(&hatchery, NewEvent::new("job", n.to_string())).await;
    }
    let lines = |what: &str| place.lines("log").into_iter().filter(|line| line.contains(what)).collect::<Vec<_>>();
    eventually("the worker has tried four times", async || (lines("is still unavailable").len() >= 3).then_some(()))
        .await;
    let service = Service::on(socket.listen(64).unwrap(), |_| says(204, ""));
    let asked = service.reach(EVENTS).await;
    let summary = worker.stop().await;
    assert_eq!(
        (&summary["done"], &summary["retried"], &summary["dead_lettered"]),
        (&EVENTS.into(), &0.into(), &0.into())
    );
    let payloads: Vec<usize> =
        asked.iter().map(|asked| str::from_utf8(&asked.body).unwrap().parse().unwrap()).collect();
    let sorted = payloads.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!((payloads.len(), sorted.len()), (EVENTS, EVENTS), "an event ran twice: {payloads:?}");
    assert!(asked.iter().all(|asked| asked.attempts() == 0), "{asked:?}");
    assert!(!event_type.contains("block") || payloads.is_sorted(), "{payloads:?}");
    let said = lines("the handler is unavailable");
    assert!(
        said.len() == 1 && said[0].contains(&format!("no answer from http://{address}: Connection refused")),
        "{said:?}"
    );
    assert_eq!(lines("the handler is available again").len(), 1);
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

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
