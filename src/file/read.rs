//! Turns the text of `topology.yaml` into a topology, or into the list of its mistakes.

use super::{
    assemble, check,
    error::{self, Draft, FileError, Refusal},
    levels::TOP,
    section::{Origin, Reader, Section},
    yaml::{self, Node, Value},
};
use crate::domain::spec::Topology;

/// Reads a topology from a text. The path appears in messages only.
///
/// # Errors
/// If the text is not a valid topology. The error lists every mistake; for a text that is not YAML, only that one.
///
/// ```
/// // Compiled into the program, so that no file has to be shipped with it.
/// const TOPOLOGY: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/topology.yaml"));
///
/// let topology = hatchery::file::read(TOPOLOGY, "topology.yaml")?;
/// assert_eq!(topology.name.as_str(), "billing");
/// # Ok::<(), hatchery::FileError>(())
/// ```
pub fn read(text: &str, path: &str) -> Result<Topology, FileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = yaml::parse(text).map_err(|(refusal, draft)| FileError::new(refusal, path, text, vec![draft]))?;
    topology(text, &root).map_err(|findings| FileError::new(Refusal::Content, path, text, findings))
}

fn topology(text: &str, root: &Node) -> Result<Topology, Vec<Draft>> {
    let start = starts(text, root)?;
    let mut reader = Reader { text, origin: Origin::Own, findings: Vec::new() };
    let top = reader.section(&TOP, root);
    reader.required(&TOP, &top, &start);
    let top = top.over(&Section::of_table(&TOP));
    check::all(&mut reader, &top);
    match assemble::topology(&top) {
        Some(topology) if reader.findings.is_empty() => Ok(topology),
        _ => {
            debug_assert!(!reader.findings.is_empty(), "a value is missing, and no finding says why");
            Err(reader.findings)
        }
    }
}

/// Checks that the file is a map with a supported `version`. Without these, further findings would only mislead.
fn starts(text: &str, root: &Node) -> Result<std::ops::Range<usize>, Vec<Draft>> {
    let help = "write `version: 1`, `name: billing` and `types: { mail: {} }`, a line each";
    let entries = match &root.value {
        Value::Map(entries) => entries,
        Value::Null => return Err(vec![Draft::new(0..0, "the file is empty", help)]),
        _ => {
            let message = format!("a topology is a map of keys, and this is {}", yaml::describe(root));
            return Err(vec![Draft::new(root.span.clone(), message, help)]);
        }
    };
    let version = entries.iter().find(|(key, _)| key.text == "version");
    if let Some((_, node @ Node { value: Value::Whole(2..), .. })) = version {
        let found = error::quote(text.get(node.span.clone()).unwrap_or_default());
        let message = format!("this hatchery reads version 1 of the file, and this is version {found}");
        return Err(vec![Draft::new(
            node.span.clone(),
            message,
            "use a hatchery that knows it, or write `version: 1`",
        )]);
    }
    Ok(entries.first().map_or(0..0, |(key, _)| key.span.clone()))
}
