//! The broker is unreachable, silent or blocked.

use serde_json::json;

use super::client::{Serving, mail};
use crate::support::{
    broker::eventually,
    declared::Declared,
    private,
    process::Place,
    redis::{self, free_port},
    relay::Relay,
};

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
