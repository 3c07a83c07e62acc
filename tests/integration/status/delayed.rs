//! Events that a policy of RabbitMQ 4.3 holds back after a consumer has returned them.

use hatchery::NewEvent;
use serde_json::json;

use super::{finding, kinds, line, seen};
use crate::support::{
    broker::{eventually, text},
    declared::{Declared, publish_all},
    process::Place,
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits for the broker's statistics; scripts/test --all runs it"]
async fn status_counts_events_that_a_delayed_retry_holds_back_and_names_the_policy() {
    const EVENTS: u32 = 3;
    let declared = Declared::new("types: { mail: { register: off } }").await;
    let overview = declared.host.overview();
    // Earlier ones refuse the policy.
    if ["3.", "4.0.", "4.1.", "4.2."].iter().any(|before| text(&overview, "rabbitmq_version").starts_with(before)) {
        return;
    }
    let (place, hatchery, amqp) = (Place::new(&declared), declared.connect().await, declared.amqp().await);
    let delay = json!({ "delayed-retry-type": "all", "delayed-retry-min": 3_600_000 });
    let policy = json!({ "pattern": "^t\\.processor\\.", "definition": delay, "apply-to": "queues", "priority": 200 });
    declared.host.put("policies", "delay", &policy);
    publish_all(&hatchery, (0..EVENTS).map(|n| NewEvent::new("mail", n.to_string())).collect()).await;
    let queue = declared.processing("mail");
    amqp.requeue_first(&queue, 3).await;
    assert_eq!(amqp.ready(&queue).await, 0);
    let answer = eventually("the events that are held back count as due", async || {
        let (_, answer) = seen(&place).await;
        // A Redis that has just started may have workers.
        (line(&answer, "mail")["due"] == EVENTS && kinds(&answer).contains("no-consumer")).then_some(answer)
    })
    .await;
    let shadowed = finding(&answer, "shadowed");
    assert_eq!(
        (&shadowed["policy"], &shadowed["keys"]),
        (&json!("delay"), &json!(["delayed-retry-type"])),
        "{answer:#}"
    );
    assert_eq!(finding(&answer, "no-consumer")["queues"][0]["messages"], EVENTS, "{answer:#}");
}
