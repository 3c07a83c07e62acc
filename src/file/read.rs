//! Reads a text into a topology, or into a list of all its mistakes.

use super::{
    assemble, check,
    error::{self, Draft, FileError, Refusal},
    keys::TOP,
    section::{Origin, Reader, Section},
    table::Absent,
    value,
    yaml::{self, Node, Value},
};
use crate::domain::spec::Topology;

/// The topology that this text describes; the path is for the messages.
///
/// # Errors
/// When it describes none, with everything that is wrong; what is not even YAML stands alone.
///
/// ```
/// // Part of the program: nothing has to be shipped with it.
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
    for key in TOP.keys.iter().filter(|key| matches!(key.absent, Absent::Required) && !top.says(key.name)) {
        reader.refuse(&start, format!("`{}` is missing", key.name), value::example(key));
    }
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

/// The first key, of a file that is a map and of this version: else there is no point in reading on.
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
