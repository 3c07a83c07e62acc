//! Writes a plan, or one of its changes, as JSON.

use hatchery::{
    file::Lines,
    internals::compile::{Binding, Exchange, Policy, Queue},
};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    asked::Asked,
    observed::Observed,
    plan::{Action, Change, Object, Plan},
};

/// The version of the JSON format.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Returns the whole plan as one JSON document.
pub(crate) fn document(plan: &Plan, observed: &Observed, source: &Source, asked: Asked) -> Value {
    let mut document = head(plan, observed, &source.file, asked);
    document["changes"] = plan.changes.iter().map(|change| with_line(change, plan, source)).collect();
    document
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

pub(crate) fn with_line(change: &Change, plan: &Plan, source: &Source) -> Value {
    let mut view = view(change);
    if let Some(line) = source.line(&plan.owner, change) {
        view["line"] = line.into();
    }
    view
}

/// Returns the part of the document that describes the plan as a whole, without its changes.
pub(crate) fn head(plan: &Plan, observed: &Observed, file: &str, asked: Asked) -> Value {
    json!({
        "format_version": FORMAT_VERSION,
        "file": file,
        "owner": plan.owner,
        "broker": observed.version,
        "observed_at": observed.at.map(|at| at.to_string()),
        "in_sync": asked.nothing_to_do(plan),
        "blocked": plan.is_blocked(asked.migrate),
        "counts": plan.counts(),
        "digest": digest(plan),
    })
}

/// Returns one change as JSON.
pub(crate) fn view(change: &Change) -> Value {
    let mut view = json!({
        "action": change.action,
        "kind": change.address.kind,
        "name": change.address.name,
    });
    let mut add = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            view[key] = value;
        }
    };
    add("part_of", change.part_of.as_ref().map(|whole| json!(whole)));
    add("differences", (!change.differences.is_empty()).then(|| json!(change.differences)));
    add("reason", change.reason.as_ref().map(|reason| json!(reason)));
    add("needs", change.needs.map(|needs| json!(needs)));
    add("held", change.held.map(|held| json!(held)));
    add("object", change.object.as_ref().map(object));
    view
}

fn object(object: &Object) -> Value {
    match object {
        Object::Exchange(Exchange { arguments, .. }) | Object::Queue(Queue { arguments, .. }) => {
            json!({ "arguments": arguments })
        }
        Object::Binding(Binding { source, target, key }) => {
            json!({ "source": source, "target": target.name(), "key": key })
        }
        Object::Policy(Policy { pattern, definition, .. }) => json!({ "pattern": pattern, "definition": definition }),
    }
}

/// Returns a digest that is equal for plans with equal changes. The messages that a queue holds do not count, nor do
/// objects of other owners.
pub(crate) fn digest(plan: &Plan) -> String {
    let changes = plan.changes.iter().filter(|change| change.action != Action::Ignored).map(|change| {
        let mut view = view(change);
        view.as_object_mut().map(|view| view.remove("held"));
        view.to_string()
    });
    hex(changes.collect::<Vec<_>>().join("\n").as_bytes())
}

/// Returns the digest of these bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}
