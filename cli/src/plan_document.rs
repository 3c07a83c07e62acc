//! Writes a plan, or one of its changes, as JSON.

use std::collections::BTreeMap;

use hatchery::{
    file::Lines,
    internals::compile::{Argument, Binding, Exchange, Policy, Queue},
};
use hatchery_admin::{
    Asked, LeftoverTypes,
    live::Observed,
    plan::{Action, Address, Change, Counts, Difference, Kind, MessageCount, Need, Object, Plan},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    besides::{Armed, Besides, PlannedPause},
    leftover_types::{self, LeftType},
};

/// The version of the JSON format.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// A plan.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document {
    #[serde(flatten)]
    head: Head,
    /// The differences between the file and the broker.
    changes: Vec<ChangeView>,
}

/// A plan as a whole, without its changes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Head {
    /// The version of this format.
    format_version: u32,
    /// The topology's file.
    file: String,
    /// The name of the topology.
    owner: String,
    /// The version of RabbitMQ; `null` if the broker does not tell it.
    broker: Option<String>,
    /// When the broker was read; `null` if the broker does not tell it.
    observed_at: Option<String>,
    /// Whether there is nothing to do.
    in_sync: bool,
    /// Whether an apply would be refused.
    blocked: bool,
    /// The number of changes by action.
    counts: Counts,
    /// A digest that is equal for plans with equal changes.
    digest: String,
    /// Types that are no longer in the file and still have events.
    left_types: Vec<LeftType>,
    /// The schedules of the file, and those that have left it; `null` if Redis does not tell or was not asked.
    schedules: Option<Vec<Armed>>,
    /// The pauses of the file that begin and end; `null` if the broker does not tell.
    pauses: Option<Vec<PlannedPause>>,
}

/// A difference between the file and the broker.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ChangeView {
    /// The action of the plan on the object.
    action: Action,
    /// The kind of the object.
    kind: Kind,
    /// The name of the object; for a binding `source -> target (key)`.
    name: String,
    /// The object that this binding is created, migrated or removed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    part_of: Option<Address>,
    /// The properties that differ, if the object exists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<Difference>,
    /// The reason, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The flag that the action needs, besides running `apply`.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<Need>,
    /// The number of messages in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<MessageCount>,
    /// The object that is declared, or the leftover binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<ObjectView>,
    /// The line of the file that asks for the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
}

/// The kind of an object, and all else beside its name.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ObjectView {
    /// An exchange or a queue.
    Declared {
        /// Its arguments.
        #[schemars(with = "BTreeMap<String, Value>")]
        arguments: BTreeMap<String, Argument>,
    },
    /// A binding.
    Binding {
        /// The exchange that messages come from.
        source: String,
        /// The exchange or queue that they go to.
        target: String,
        /// The routing key.
        key: String,
    },
    /// A policy.
    Policy {
        /// The names that it applies to, as a regular expression.
        pattern: String,
        /// The settings.
        #[schemars(with = "BTreeMap<String, Value>")]
        definition: BTreeMap<String, Argument>,
    },
}

/// Returns the whole plan as one JSON document.
pub(crate) fn document(
    plan: &Plan,
    observed: &Observed,
    source: &Source,
    left: &LeftoverTypes,
    besides: &Besides,
    asked: Asked,
) -> Document {
    Document {
        head: head(plan, observed, &source.file, left, besides, asked),
        changes: plan.changes.iter().map(|change| with_line(change, plan, source)).collect(),
    }
}

/// The file that a topology was read from.
pub(crate) struct Source {
    /// The file's name.
    pub(crate) file: String,
    pub(crate) lines: Lines,
}

impl Source {
    pub(crate) fn new(file: String, text: &str) -> Self {
        Self { file, lines: Lines::of(text) }
    }

    /// Returns the line of the file that asks for the changed object, if one does.
    fn line(&self, owner: &str, change: &Change) -> Option<usize> {
        if matches!(change.action, Action::Leftover | Action::Shadowing | Action::Ignored) {
            return None;
        }
        let name = match &change.object {
            Some(Object::Binding(binding)) => binding.target.name(),
            _ => &change.address.name,
        };
        let words: Vec<&str> = name.strip_prefix(owner)?.trim_start_matches('.').split('.').collect();
        let paths: Vec<Vec<&str>> = match words.as_slice() {
            ["retry", of, _] => vec![vec!["types", of, "retry"], vec!["defaults", "retry"], vec!["types", of]],
            ["processor" | "dead-letter", of] => vec![vec!["types", of]],
            ["hatchery", _] => vec![vec!["hatcheries"]],
            ["ladder", ..] => vec![vec!["ladder"]],
            _ => Vec::new(),
        };
        paths.iter().find_map(|path| self.lines.line(path)).or_else(|| self.lines.line(&["name"]))
    }
}

pub(crate) fn with_line(change: &Change, plan: &Plan, source: &Source) -> ChangeView {
    ChangeView { line: source.line(&plan.owner, change), ..view(change) }
}

/// Returns the part of the document that describes the plan as a whole, without its changes.
pub(crate) fn head(
    plan: &Plan,
    observed: &Observed,
    file: &str,
    left: &LeftoverTypes,
    besides: &Besides,
    asked: Asked,
) -> Head {
    Head {
        format_version: FORMAT_VERSION,
        file: file.to_owned(),
        owner: plan.owner.clone(),
        broker: observed.version.clone(),
        observed_at: observed.at.map(|at| at.to_string()),
        in_sync: asked.nothing_to_do(plan) && !besides.is_change(),
        blocked: plan.is_blocked(asked.migrate) || left.is_blocked(asked.prune),
        counts: plan.counts(),
        digest: digest(plan),
        left_types: leftover_types::view(left),
        schedules: besides.schedules.clone(),
        pauses: besides.pauses.clone(),
    }
}

/// Returns one change as JSON.
pub(crate) fn view(change: &Change) -> ChangeView {
    ChangeView {
        action: change.action,
        kind: change.address.kind,
        name: change.address.name.clone(),
        part_of: change.part_of.clone(),
        differences: change.differences.clone(),
        reason: change.reason.clone(),
        needs: change.needs,
        held: change.held,
        object: change.object.clone().map(ObjectView::from),
        line: None,
    }
}

impl From<Object> for ObjectView {
    fn from(object: Object) -> Self {
        match object {
            Object::Exchange(Exchange { arguments, .. }) | Object::Queue(Queue { arguments, .. }) => {
                Self::Declared { arguments }
            }
            Object::Binding(Binding { source, target, key }) => {
                Self::Binding { source, target: target.name().to_owned(), key }
            }
            Object::Policy(Policy { pattern, definition, .. }) => Self::Policy { pattern, definition },
        }
    }
}

/// Returns a digest that is equal for plans with equal [changes](Plan::compared).
pub(crate) fn digest(plan: &Plan) -> String {
    let changes = plan.compared().map(|change| {
        // A `Value` has its keys in alphabetical order, so the digest does not depend on the order of the fields.
        serde_json::to_value(view(&change)).map(|view| view.to_string()).unwrap_or_default()
    });
    hex(changes.collect::<Vec<_>>().join("\n").as_bytes())
}

/// Returns the digest of these bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}
