//! Writes a compiled topology as RabbitMQ's definitions, the JSON that RabbitMQ's own tools import.

use std::collections::BTreeMap;

use hatchery::internals::compile::{self, Argument, Desired, Target};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// RabbitMQ's definitions of a topology.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Definitions<'a> {
    exchanges: Vec<Placed<'a, Exchange<'a>>>,
    queues: Vec<Placed<'a, Queue<'a>>>,
    bindings: Vec<Placed<'a, Binding<'a>>>,
    policies: Vec<Placed<'a, Policy<'a>>>,
}

/// An object and where it is.
#[derive(Serialize, JsonSchema)]
struct Placed<'a, T> {
    /// The virtual host. Without one, the object goes to the virtual host that it is imported into.
    #[serde(skip_serializing_if = "Option::is_none")]
    vhost: Option<&'a str>,
    #[serde(flatten)]
    object: T,
}

/// An exchange.
#[derive(Serialize, JsonSchema)]
struct Exchange<'a> {
    name: &'a str,
    r#type: &'static str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    #[schemars(with = "BTreeMap<String, Value>")]
    arguments: &'a BTreeMap<String, Argument>,
}

/// A queue.
#[derive(Serialize, JsonSchema)]
struct Queue<'a> {
    name: &'a str,
    durable: bool,
    auto_delete: bool,
    #[schemars(with = "BTreeMap<String, Value>")]
    arguments: &'a BTreeMap<String, Argument>,
}

/// A binding.
#[derive(Serialize, JsonSchema)]
struct Binding<'a> {
    source: &'a str,
    destination: &'a str,
    destination_type: &'static str,
    routing_key: &'a str,
    arguments: BTreeMap<String, Value>,
}

/// A policy.
#[derive(Serialize, JsonSchema)]
struct Policy<'a> {
    name: &'a str,
    pattern: &'a str,
    #[serde(rename = "apply-to")]
    apply_to: &'static str,
    priority: i64,
    #[schemars(with = "BTreeMap<String, Value>")]
    definition: &'a BTreeMap<String, Argument>,
}

/// Returns the definitions of a topology. Each object names this virtual host; without one, the objects go to the
/// virtual host that they are imported into.
///
/// The definitions have no `vhosts`: importing the name of a virtual host creates it, but also empties the description
/// and the tags of an existing one (measured).
#[must_use]
pub(crate) fn definitions<'a>(desired: &'a Desired, vhost: Option<&'a str>) -> Definitions<'a> {
    let exchanges = desired.exchanges.iter().map(|exchange| Exchange {
        name: &exchange.name,
        r#type: "topic",
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: &exchange.arguments,
    });
    let queues = desired.queues.iter().map(|queue| Queue {
        name: &queue.name,
        durable: true,
        auto_delete: false,
        arguments: &queue.arguments,
    });
    let bindings = desired.bindings.iter().map(|binding| Binding {
        source: &binding.source,
        destination: binding.target.name(),
        destination_type: match binding.target {
            Target::Exchange(_) => "exchange",
            Target::Queue(_) => "queue",
        },
        routing_key: &binding.key,
        arguments: BTreeMap::new(),
    });
    let policies = desired.policies.iter().map(|policy| Policy {
        name: &policy.name,
        pattern: &policy.pattern,
        apply_to: compile::Policy::APPLY_TO,
        priority: compile::Policy::PRIORITY,
        definition: &policy.definition,
    });
    Definitions {
        exchanges: exchanges.map(|object| Placed { vhost, object }).collect(),
        queues: queues.map(|object| Placed { vhost, object }).collect(),
        bindings: bindings.map(|object| Placed { vhost, object }).collect(),
        policies: policies.map(|object| Placed { vhost, object }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use hatchery::internals::compile::compile;
    use serde_json::json;

    use super::*;

    fn desired() -> Desired {
        let text = "version: 1\nname: t\nladder: { resolution: 1s, horizon: 1s }\ntypes: { mail: }";
        compile(&hatchery::file::read(text, "topology.yaml").expect("valid")).expect("safe")
    }

    #[test]
    fn the_definitions_hold_every_compiled_object() {
        let desired = desired();
        let found = serde_json::to_value(definitions(&desired, None)).expect("JSON");
        let count = |kind: &str| found[kind].as_array().map(Vec::len);
        assert_eq!(count("exchanges"), Some(desired.exchanges.len()));
        assert_eq!(count("queues"), Some(desired.queues.len()));
        assert_eq!(count("bindings"), Some(desired.bindings.len()));
        assert_eq!(count("policies"), Some(desired.policies.len()));
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
        let desired = desired();
        let all = |vhost: Option<&str>| -> Vec<Value> {
            let definitions = serde_json::to_value(definitions(&desired, vhost)).expect("JSON");
            let lists = definitions.as_object().into_iter().flatten();
            lists.flat_map(|(_, list)| list.as_array().cloned().unwrap_or_default()).collect()
        };
        assert!(all(Some("/")).iter().all(|object| object["vhost"] == "/"));
        assert!(all(None).iter().all(|object| object.get("vhost").is_none()));
    }
}
