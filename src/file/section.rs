//! The checked values of a map, and the reader that collects what is wrong with it.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use super::{error::Draft, yaml::Node};

/// A value, or what is wrong and what to write instead.
pub(super) type Checked<T> = Result<T, (String, String)>;

/// What a map says, key by key.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    pub(super) entries: BTreeMap<&'static str, Entry>,
    /// It was written as a word that stands for all of it.
    pub(super) short: bool,
}

/// What a key says.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Nothing where it was refused.
    pub(super) item: Option<Item>,
    /// Where its value is written.
    pub(super) span: Range<usize>,
    pub(super) origin: Origin,
}

/// Whose word it is, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// The map's own.
    Own,
    /// That of `defaults`.
    Defaults,
    /// The table's.
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
    Ttls(Vec<Timer>),
    Names(Vec<Name>),
    Section(Section),
    Types(Vec<Named>),
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

/// A type and what it says.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) section: Section,
}

/// Reads maps, and collects all that is wrong with them.
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

    /// What is written there.
    pub(super) fn source(&self, node: &Node) -> &str {
        self.text.get(node.span.clone()).unwrap_or_default()
    }
}

impl Section {
    /// A map of words, as a short form stands for it.
    pub(super) fn of_words(words: &[(&'static str, &'static str)], span: &Range<usize>, origin: Origin) -> Self {
        let entry = |word| Entry { item: Some(Item::Word(word)), span: span.clone(), origin };
        Self { entries: words.iter().map(|(key, word)| (*key, entry(*word))).collect(), short: true }
    }

    /// The same, said by `defaults` for every type.
    pub(super) fn into_defaults(mut self) -> Self {
        for entry in self.entries.values_mut() {
            entry.origin = entry.origin.max(Origin::Defaults);
            if let Some(Item::Section(section)) = &mut entry.item {
                *section = std::mem::take(section).into_defaults();
            }
        }
        self
    }

    /// This map, and key by key that one where this says nothing.
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

    /// Whether it says something, right or wrong.
    pub(super) fn says(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether it says so itself, and not `defaults` or the table for it.
    pub(super) fn is_own(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.origin == Origin::Own)
    }

    /// The place of the strongest of these keys, the first of equals: the one to blame when they do not fit together.
    pub(super) fn blame(&self, keys: &[&str]) -> Option<(Origin, Range<usize>)> {
        let found = keys.iter().filter_map(|key| self.entries.get(key));
        found.min_by_key(|entry| entry.origin).map(|entry| (entry.origin, entry.span.clone()))
    }
}
