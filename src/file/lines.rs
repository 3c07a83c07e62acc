//! Finds the line of a key, for commands that point into the file.

use std::collections::BTreeMap;

use super::yaml::{self, Node, Value};

/// The line of each key of a file, counted from 1.
///
/// ```
/// let lines = hatchery::file::Lines::of("version: 1\nname: billing\ntypes:\n  mail: {}\n");
/// assert_eq!(lines.line(&["types", "mail"]), Some(4));
/// assert_eq!(lines.line(&["ladder"]), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Lines(BTreeMap<Vec<String>, usize>);

impl Lines {
    /// Reads the lines of the keys. A text that is not YAML has none.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut lines = Self::default();
        if let Ok(root) = yaml::parse(text) {
            lines.add(text, &root, &mut Vec::new());
        }
        lines
    }

    /// Returns the line of the key with this path.
    #[must_use]
    pub fn line(&self, path: &[&str]) -> Option<usize> {
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        self.0.get(&path).copied()
    }

    fn add(&mut self, text: &str, node: &Node, path: &mut Vec<String>) {
        let Value::Map(entries) = &node.value else { return };
        for (word, node) in entries {
            path.push(word.text.clone());
            let before = text.get(..word.span.start).unwrap_or_default();
            self.0.insert(path.clone(), 1 + before.matches('\n').count());
            self.add(text, node, path);
            path.pop();
        }
    }
}
