//! What `status` finds in Redis.

use std::collections::BTreeSet;

use hatchery::internals::{
    ports::Register as _,
    redis::RedisRegister,
    register::{DedupSlot, Owner, Record, Subject},
};
use jiff::{SignedDuration, Timestamp};

use super::{finding, kinds, seen};
use crate::support::{declared::Declared, process::Place};

fn register(declared: &Declared) -> RedisRegister {
    let topology = &declared.topology;
    RedisRegister::new(&declared.redis_url, &declared.host.name, &topology.name, &topology.redis).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_message_is_gone_is_overdue() {
    let declared = Declared::new("types: { mail: {} }\n").await;
    declared.own_register().await;
    // The register has an event of two hours ago and one of a moment ago, and the broker has neither.
    let (event_type, spec) = declared.topology.types.first_key_value().unwrap();
    let record = |id: &str, hours: i64| Record {
        subject: Subject { event_type: event_type.clone(), reference: None, id: id.to_owned() },
        slot: DedupSlot::Event(id.to_owned()),
        version: 0,
        due: Timestamp::now() - SignedDuration::from_hours(hours),
        reason: None,
        kept: None,
        terms: spec.terms(&declared.topology.redis),
    };
    register(&declared).record(&[record("new", 0), record("old", 2)]).await.unwrap();
    let (code, answer) = seen(&Place::new(&declared)).await;
    assert_eq!((code, kinds(&answer)), (Some(4), BTreeSet::from(["overdue"])), "{answer:#}");
    let overdue = finding(&answer, "overdue");
    assert_eq!((&overdue["id"], &overdue["types"]), (&"old".into(), &1.into()), "{overdue:#}");
    assert_eq!(overdue["command"], "topology events show --type mail --id old");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_register_of_another_broker_is_reported() {
    let declared = Declared::new("types: { mail: {} }\n").await;
    let owner = Owner { topology: Some("t".to_owned()), cluster_name: Some("elsewhere".to_owned()) };
    register(&declared).set_owner(&owner).await.unwrap();
    let (code, answer) = seen(&Place::new(&declared)).await;
    assert_eq!((code, kinds(&answer)), (Some(4), BTreeSet::from(["redis-taken"])), "{answer:#}");
    assert_eq!(finding(&answer, "redis-taken")["by"], "elsewhere");
}
