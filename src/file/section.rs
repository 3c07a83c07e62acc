//! The checked values of a map, and the reader that collects the findings.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use super::{error::Draft, yaml::Node};
use crate::domain::{
    breaker::Errors,
    source::{Condition, Pointer, ReferenceFrom},
};

/// A value, or the message and the help of a finding.
pub(super) type Checked<T> = Result<T, (String, String)>;

/// The checked entries of a map.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    pub(super) entries: BTreeMap<&'static str, Entry>,
    /// The file has a short form, one word, in place of the map.
    pub(super) short: bool,
}

/// The entry of one key.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// `None` if the value was refused.
    pub(super) item: Option<Item>,
    /// The place of the value in the file.
    pub(super) span: Range<usize>,
    pub(super) origin: Origin,
}

/// Where the value of a key comes from, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// The map itself.
    Own,
    /// The section `defaults`.
    Defaults,
    /// The default in the table of keys.
    Table,
}

/// A checked value.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Text(String),
    Word(&'static str),
    Whole(u64),
    Switch(bool),
    Duration(Duration),
    Errors(Errors),
    Ttls(Vec<Timer>),
    Names(Vec<Name>),
    Section(Section),
    Types(Vec<Named>),
    Rules(Rules),
    Conditions(Vec<Condition>),
    Pointer(Pointer),
    Reference(ReferenceFrom),
    Zone(jiff::tz::TimeZone),
    Json(serde_json::Value),
}

/// A duration in a list.
#[derive(Clone, Debug)]
pub(super) struct Timer {
    pub(super) duration: Duration,
    pub(super) span: Range<usize>,
}

/// A name in a list.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

/// The name of a type or a source, and its section.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    /// The place of the name.
    pub(super) span: Range<usize>,
    pub(super) section: Section,
}

/// The rules of a source.
#[derive(Clone, Debug)]
pub(super) struct Rules(pub(super) Vec<Section>);

/// Reads maps and collects the findings.
#[derive(Debug)]
pub(super) struct Reader<'t> {
    pub(super) text: &'t str,
    pub(super) origin: Origin,
    pub(super) findings: Vec<Draft>,
}

impl Reader<'_> {
    pub(super) fn refuse(&mut self, span: &Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.findings.push(Draft::new(span.clone(), message, help));
    }

    /// Returns the text of this node in the file.
    pub(super) fn source(&self, node: &Node) -> &str {
        self.text.get(node.span.clone()).unwrap_or_default()
    }
}

impl Section {
    /// Returns the section that a short form stands for.
    pub(super) fn of_words(words: &[(&'static str, &'static str)], span: &Range<usize>, origin: Origin) -> Self {
        let entry = |word| Entry { item: Some(Item::Word(word)), span: span.clone(), origin };
        Self { entries: words.iter().map(|(key, word)| (*key, entry(*word))).collect(), short: true }
    }

    /// Returns the same section with `defaults` as the origin of its values.
    pub(super) fn into_defaults(mut self) -> Self {
        for entry in self.entries.values_mut() {
            entry.origin = entry.origin.max(Origin::Defaults);
            if let Some(Item::Section(section)) = &mut entry.item {
                *section = std::mem::take(section).into_defaults();
            }
        }
        self
    }

    /// Returns this section with its absent keys taken from `base`, also inside nested sections. A short form sets all its
    /// keys, and takes none.
    pub(super) fn over(mut self, base: &Self) -> Self {
        if self.short {
            return self;
        }
        for (key, below) in &base.entries {
            match self.entries.get_mut(key) {
                None => {
                    self.entries.insert(key, below.clone());
                }
                Some(Entry { item: Some(Item::Section(above)), .. }) => {
                    if let Some(Item::Section(below)) = &below.item {
                        *above = std::mem::take(above).over(below);
                    }
                }
                Some(_) => {}
            }
        }
        self
    }

    /// Whether the key is set, also to a value that was refused.
    pub(super) fn says(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether the key has a value that was refused.
    pub(super) fn is_refused(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.item.is_none())
    }

    /// Whether the map itself sets the key, not `defaults` or the table.
    pub(super) fn is_own(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.origin == Origin::Own)
    }

    /// Returns the place to report when these keys conflict: that of the key with the strongest origin, the first of equals.
    pub(super) fn blame(&self, keys: &[&str]) -> Option<(Origin, Range<usize>)> {
        let found = keys.iter().filter_map(|key| self.entries.get(key));
        found.min_by_key(|entry| entry.origin).map(|entry| (entry.origin, entry.span.clone()))
    }
}
