//! Compares the compiled file with the observed broker.

use std::collections::{BTreeMap, BTreeSet};

use hatchery::internals::compile::{Desired, Policy};
use serde_json::Value;

use super::{
    Action, Address, Change, Difference, Kind, Need, Object, Plan, ack_timeout, bindings,
    compare::{self, difference},
    leftover, migrate, prune,
    shadow::Shadows,
    view::{QueueState, View},
};
use crate::{live::Observed, names};

/// Compares the compiled file with the observed broker.
#[must_use]
pub fn plan(desired: &Desired, observed: &Observed) -> Plan {
    let view = View::new(desired, observed);
    let shadows = Shadows::new(desired, observed);
    // The policies come first, so that no worker consumes a queue before its policy applies.
    let mut changes: Vec<Change> = desired.policies.iter().filter_map(|own| of_policy(own, observed)).collect();
    for exchange in &desired.exchanges {
        let address = Address::new(Kind::Exchange, &exchange.name);
        changes.extend(match view.exchange(&exchange.name) {
            None => Some(Change::write(Action::Create, address, Object::Exchange(exchange.clone()))),
            // `migrate` handles one that differs.
            Some(live) => {
                view.foreign(&live.name, &live.arguments).map(|(whose, needs)| foreign(address, &whose, needs))
            }
        });
    }
    let (mut shadowing, mut told, mut impatience) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    for queue in &desired.queues {
        let address = Address::new(Kind::Queue, &queue.name);
        let kind = compare::type_of(&queue.arguments);
        let over = shadows.on(&queue.name, kind, view.queue(&queue.name));
        for shadow in &over {
            match &shadow.harm {
                // No event is lost by what a stream keeps.
                Some(harm) if queue.is_stream() => {
                    told.insert(shadow.policy().0.to_owned());
                    let is_of_switches = queue.name == names::control(&desired.owner);
                    let then = if is_of_switches {
                        "if it takes the last message away, no worker starts an event"
                    } else {
                        "the stream keeps what that policy says"
                    };
                    let why = format!("{harm}: {then}");
                    changes.push(Change::note(Action::Shadowing, address.clone(), why));
                }
                Some(harm) => {
                    told.insert(shadow.policy().0.to_owned());
                    changes.push(Change::note(Action::Blocked, address.clone(), harm.clone()));
                }
                None if shadow.unknown.is_empty()
                    && shadow.consumer_timeout().is_some_and(|timeout| timeout < desired.ack_timeout) =>
                {
                    told.insert(shadow.policy().0.to_owned());
                }
                None => drop(shadowing.insert(shadow.policy().0.to_owned(), shadow.policy().1)),
            }
        }
        impatience.extend(ack_timeout::change(&view, queue, &over));
        match view.state(queue) {
            QueueState::Missing if view.stand_in(&queue.name).is_none() => {
                changes.push(Change::write(Action::Create, address, Object::Queue(queue.clone())));
            }
            QueueState::Foreign(whose, needs) => changes.push(foreign(address, &whose, needs)),
            // `migrate` handles these.
            QueueState::Missing | QueueState::Wrong(_) | QueueState::Right => {}
        }
    }
    let mut migration = Vec::new();
    for due in migrate::all(&view, &shadows) {
        changes.push(due.change);
        migration.extend(due.next);
    }
    changes.extend(
        shadowing
            .into_iter()
            // A policy that affects a single queue is reported with that queue.
            .filter(|(policy, _)| !told.contains(policy))
            .map(|(policy, why)| Change::note(Action::Shadowing, Address::new(Kind::Policy, &policy), why)),
    );
    changes.extend(impatience);
    changes.extend(leftover::changes(&view));
    changes.extend(bindings::changes(&view, &changes));
    // The changes that are written stay in front, in their order: policies, exchanges, queues, bindings.
    changes.sort_by_key(|change| change.action.max(Action::Change));
    let pruning = prune::steps(&view, &changes);
    Plan { owner: desired.owner.clone(), changes, migration, pruning }
}

/// Returns the change of an owned policy, if it is missing or drifted. It is owned by its name, because a policy carries no label.
fn of_policy(own: &Policy, observed: &Observed) -> Option<Change> {
    let address = Address::new(Kind::Policy, &own.name);
    let object = Object::Policy(own.clone());
    let Some(live) = observed.policies.iter().find(|live| live.name == own.name) else {
        return Some(Change::write(Action::Create, address, object));
    };
    let keys: BTreeSet<&String> = own.definition.keys().chain(live.definition.keys()).collect();
    let differences: Vec<Difference> = [
        difference("pattern", Some(&live.pattern.as_str().into()), Some(own.pattern.as_str().into())),
        difference("apply-to", Some(&live.apply_to.as_str().into()), Some(Policy::APPLY_TO.into())),
        difference("priority", Some(&live.priority.into()), Some(Policy::PRIORITY.into())),
    ]
    .into_iter()
    .chain(
        keys.into_iter().map(|key| difference(key, live.definition.get(key), own.definition.get(key).map(Value::from))),
    )
    .flatten()
    .collect();
    (!differences.is_empty()).then(|| Change { differences, ..Change::write(Action::Change, address, object) })
}

fn foreign(address: Address, whose: &str, needs: Option<Need>) -> Change {
    Change { needs, ..Change::note(Action::Blocked, address, format!("blocked: {whose}")) }
}
