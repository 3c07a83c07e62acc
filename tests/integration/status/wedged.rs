//! A hatchery whose target is full holds due events that cannot leave.

use std::collections::BTreeSet;

use hatchery::NewEvent;
use serde_json::json;

use super::{finding, kinds, seen};
use crate::support::{
    broker::eventually,
    declared::{Declared, publish_all},
    process::Place,
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits until a timer is wedged; scripts/test --all runs it"]
async fn status_names_a_hatchery_that_a_full_queue_has_wedged() {
    let declared = Declared::new("hatcheries: [500ms]\ntypes: { mail: {} }\n").await;
    declared.own_register().await;
    let (place, hatchery) = (Place::new(&declared), declared.connect().await);
    let policy = json!({ "pattern": "^t\\.processor\\.", "definition": { "max-length": 1 }, "apply-to": "queues", "priority": 200 });
    declared.host.put("policies", "short", &policy);
    let delay = std::time::Duration::from_millis(500);
    publish_all(&hatchery, (0..120).map(|n| NewEvent::new("mail", n.to_string()).delay(delay)).collect()).await;
    let wedged = eventually("the hatchery is named", async || {
        let (code, answer) = seen(&place).await;
        kinds(&answer).contains("wedged").then_some((code, answer))
    });
    let (code, answer) = wedged.await;
    assert_eq!(code, Some(4));
    assert!(kinds(&answer).is_superset(&BTreeSet::from(["shadowed", "wedged"])), "{answer:#}");
    let stuck = &finding(&answer, "wedged")["queues"][0];
    assert_eq!(stuck["queue"], "t.hatchery.500ms", "{answer:#}");
    assert!(stuck["messages"].as_u64().unwrap() >= 32, "{answer:#}");
}
