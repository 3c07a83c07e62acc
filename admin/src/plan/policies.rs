//! Compares the owned policies with those on the broker: missing, drifted, or as they should be.

use std::collections::BTreeSet;

use hatchery::internals::compile::Policy;
use serde_json::Value;

use super::{Action, Address, Change, Difference, Kind, Object, compare::difference};
use crate::live::Observed;

/// Returns the change of an owned policy. It is owned by its name, because a policy carries no label.
pub(super) fn change(own: &Policy, observed: &Observed) -> Option<Change> {
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
