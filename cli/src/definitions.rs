//! Writes a compiled topology as RabbitMQ's definitions, the JSON that RabbitMQ's own tools import.

use hatchery::internals::compile::{Desired, Target};
use serde_json::{Value, json};

use crate::plan::{APPLY_TO, PRIORITY};

/// Returns the definitions of a topology. Each object names this virtual host; without one, the objects go to the
/// virtual host that they are imported into.
///
/// The definitions have no `vhosts`: importing the name of a virtual host creates it, but also empties the description
/// and the tags of an existing one (measured).
#[must_use]
pub(crate) fn definitions(desired: &Desired, vhost: Option<&str>) -> Value {
    let placed = |mut object: Value| {
        if let Some(vhost) = vhost {
            object["vhost"] = vhost.into();
        }
        object
    };
    let exchanges = desired.exchanges.iter().map(|exchange| {
        json!({
            "name": exchange.name,
            "type": "topic",
            "durable": true,
            "auto_delete": false,
            "internal": false,
            "arguments": exchange.arguments,
        })
    });
    let queues = desired.queues.iter().map(
        |queue| json!({ "name": queue.name, "durable": true, "auto_delete": false, "arguments": queue.arguments }),
    );
    let bindings = desired.bindings.iter().map(|binding| {
        let kind = match binding.target {
            Target::Exchange(_) => "exchange",
            Target::Queue(_) => "queue",
        };
        json!({
            "source": binding.source,
            "destination": binding.target.name(),
            "destination_type": kind,
            "routing_key": binding.key,
            "arguments": {},
        })
    });
    let policies = desired.policies.iter().map(|policy| {
        json!({
            "name": policy.name,
            "pattern": policy.pattern,
            "apply-to": APPLY_TO,
            "priority": PRIORITY,
            "definition": policy.definition,
        })
    });
    json!({
        "exchanges": exchanges.map(placed).collect::<Vec<_>>(),
        "queues": queues.map(placed).collect::<Vec<_>>(),
        "bindings": bindings.map(placed).collect::<Vec<_>>(),
        "policies": policies.map(placed).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use hatchery::internals::compile::compile;

    use super::*;

    fn desired() -> Desired {
        let text = "version: 1\nname: t\nladder: { resolution: 1s, horizon: 1s }\ntypes: { mail: }";
        compile(&hatchery::file::read(text, "topology.yaml").expect("valid")).expect("safe")
    }

    #[test]
    fn the_definitions_hold_every_compiled_object() {
        let desired = desired();
        let found = definitions(&desired, None);
        let count = |kind: &str| found[kind].as_array().map(Vec::len);
        assert_eq!(count("exchanges"), Some(desired.exchanges.len()));
        assert_eq!(count("queues"), Some(desired.queues.len()));
        assert_eq!(count("bindings"), Some(desired.bindings.len()));
        assert_eq!(count("policies"), Some(1));
        let queue =
            found["queues"].as_array().and_then(|queues| queues.iter().find(|q| q["name"] == "t.retry.mail.10s"));
        let expected = json!({
            "name": "t.retry.mail.10s", "durable": true, "auto_delete": false,
            "arguments": {
                "x-queue-type": "quorum", "x-message-ttl": 10_000, "x-overflow": "reject-publish",
                "x-dead-letter-exchange": "t.processor", "x-dead-letter-strategy": "at-least-once",
                "x-hatchery-owner": "t", "x-queue-leader-locator": "balanced", "x-delivery-limit": 1_000_000_000,
            },
        });
        assert_eq!(queue, Some(&expected));
    }

    #[test]
    fn either_all_objects_name_the_virtual_host_or_none_does() {
        let all = |definitions: &Value| -> Vec<Value> {
            let lists = definitions.as_object().into_iter().flatten();
            lists.flat_map(|(_, list)| list.as_array().cloned().unwrap_or_default()).collect()
        };
        assert!(all(&definitions(&desired(), Some("/"))).iter().all(|object| object["vhost"] == "/"));
        assert!(all(&definitions(&desired(), None)).iter().all(|object| object.get("vhost").is_none()));
    }
}
