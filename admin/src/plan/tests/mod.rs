//! Tests of plans for a small topology whose broker was changed by hand.

mod changes;
mod diff;
mod interpreter;
mod migration;
mod pruning;
mod streams;

use std::time::Duration;

use hatchery::internals::{
    compile::{Argument, Binding, Desired, Exchange, OWNER, Policy, Queue, Target},
    delay::Ladder,
    names,
};

use super::*;
use crate::live::{Arguments, LiveBinding, LiveExchange, LivePolicy, LiveQueue, Observed};

/// Exchange `billing.retry`, queue `billing.retry.mail.1m` with a TTL, one binding, one policy on `billing.processor.*`.
fn desired() -> Desired {
    let text = |text: &str| Argument::Text(text.to_owned());
    let arguments = |more: &[(&str, Argument)]| {
        more.iter().cloned().chain([(OWNER, text("billing"))]).map(|(name, value)| (name.to_owned(), value)).collect()
    };
    Desired {
        owner: "billing".into(),
        exchanges: vec![Exchange {
            name: "billing.retry".into(),
            arguments: arguments(&[("alternate-exchange", text("billing.unrouted"))]),
        }],
        queues: vec![
            Queue {
                name: "billing.retry.mail.1m".into(),
                arguments: arguments(&[
                    ("x-queue-type", text("quorum")),
                    ("x-message-ttl", Argument::Number(60_000)),
                    ("x-overflow", text("reject-publish")),
                ]),
            },
            Queue { name: "billing.processor.mail".into(), arguments: arguments(&[("x-queue-type", text("quorum"))]) },
        ],
        bindings: vec![Binding {
            source: "billing.retry".into(),
            target: Target::Queue("billing.retry.mail.1m".into()),
            key: "mail.1m".into(),
        }],
        policies: vec![Policy {
            name: "billing.tunables".into(),
            pattern: "^billing\\.processor\\.".into(),
            definition: [("delivery-limit".to_owned(), Argument::Number(100))].into(),
        }],
        ack_timeout: Duration::from_mins(30),
        ladder: Ladder::new("1s".parse().expect("a TTL"), "1m".parse().expect("a TTL")).expect("a ladder"),
        former_owners: Vec::new(),
        adopted: [].into(),
        renames: Vec::new(),
    }
}

/// The broker after `apply`.
fn applied() -> Observed {
    let desired = desired();
    let live = |arguments: &std::collections::BTreeMap<String, Argument>| -> Arguments {
        arguments.iter().map(|(name, value)| (name.clone(), value.into())).collect()
    };
    Observed {
        at: None,
        version: Some("4.3.6".into()),
        cluster_name: None,
        exchanges: vec![LiveExchange {
            name: "billing.retry".into(),
            kind: Some("topic".into()),
            durable: Some(true),
            auto_delete: Some(false),
            internal: Some(false),
            arguments: live(&desired.exchanges[0].arguments),
        }],
        queues: desired
            .queues
            .iter()
            .map(|queue| LiveQueue {
                name: queue.name.clone(),
                kind: Some("quorum".into()),
                durable: Some(true),
                auto_delete: Some(false),
                arguments: live(&queue.arguments),
                ..LiveQueue::default()
            })
            .collect(),
        bindings: vec![
            binding("", "billing.retry.mail.1m", "billing.retry.mail.1m"),
            binding("billing.retry", "billing.retry.mail.1m", "mail.1m"),
        ],
        policies: vec![LivePolicy {
            name: "billing.tunables".into(),
            pattern: "^billing\\.processor\\.".into(),
            apply_to: Policy::APPLY_TO.into(),
            priority: Policy::PRIORITY,
            definition: live(&desired.policies[0].definition),
        }],
        operator_policies: Vec::new(),
    }
}

fn binding(source: &str, destination: &str, key: &str) -> LiveBinding {
    LiveBinding {
        source: source.into(),
        destination: destination.into(),
        destination_type: "queue".into(),
        routing_key: key.into(),
        arguments: Arguments::new(),
    }
}

fn queue(name: &str, owner: Option<&str>, more: &[(&str, serde_json::Value)]) -> LiveQueue {
    let owner = owner.map(|owner| (OWNER.to_owned(), owner.into()));
    let more = more.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    LiveQueue { name: name.into(), arguments: more.chain(owner).collect(), ..LiveQueue::default() }
}

fn stranger(pattern: &str, priority: i64, definition: &[(&str, i64)]) -> LivePolicy {
    let definition = definition.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    LivePolicy { name: "house".into(), pattern: pattern.into(), apply_to: "all".into(), priority, definition }
}

/// Formats each change as `sign address: differences: reason: <- part of`.
fn lines(observed: &Observed) -> Vec<String> {
    let line = |change: &Change| {
        let head = format!("{} {}", change.action.sign(), change.address);
        let differences = change.differences.iter().map(ToString::to_string);
        let held = change.held.map(|held| format!("({held})"));
        let about = [change.reason.clone(), held].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let needs = change.needs.map(|needs| format!("needs {needs:?}"));
        let whole = change.part_of.iter().map(|whole| format!("<- {whole}"));
        let about = (!about.is_empty()).then_some(about).into_iter().chain(needs);
        [head].into_iter().chain(differences).chain(about).chain(whole).collect::<Vec<_>>().join(": ")
    };
    plan(&desired(), observed).changes.iter().map(line).collect()
}
