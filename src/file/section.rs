//! A map of the file, checked key by key against its table.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use super::{
    error::{Draft, quote},
    keys::LEVELS,
    table::{Absent, Key, Kind, Level},
    value,
    yaml::{self, Node, Value},
};

/// What a map says, key by key.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    entries: BTreeMap<&'static str, Entry>,
    /// It was written as a word that stands for all of it.
    pub(super) short: bool,
}

/// What a key says.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Nothing where it was refused.
    item: Option<Item>,
    /// Where its value is written.
    span: Range<usize>,
    origin: Origin,
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

    /// The map in this node; an empty value is an empty map.
    pub(super) fn section(&mut self, level: &'static Level, node: &Node) -> Section {
        let mut section = Section::default();
        let Value::Map(entries) = &node.value else {
            if !matches!(node.value, Value::Null) {
                let message = format!("{} is a map of keys, and this is {}", level.name, value::describe(node));
                self.refuse(&node.span, message, format!("write `key: value`; the keys are {}", known(level)));
            }
            return section;
        };
        for (word, node) in entries {
            let Some(key) = level.keys.iter().find(|key| key.name == word.text) else {
                let (message, help) = unknown(level, &word.text);
                self.refuse(&word.span, message, help);
                continue;
            };
            if matches!(key.kind, Kind::NotBuilt) {
                self.refuse(&word.span, format!("`{}` is not built yet", key.name), format!("remove `{}`", key.name));
                continue;
            }
            let item = value::read(self, key, node, &word.span);
            let span = if node.span.is_empty() { word.span.clone() } else { node.span.clone() };
            section.entries.insert(key.name, Entry { item, span, origin: self.origin });
        }
        section
    }
}

/// The message and the help for a key that no table has at this level.
fn unknown(level: &Level, text: &str) -> (String, String) {
    let message = format!("{} has no key {}", level.name, quote(text));
    let plain = text.to_lowercase().replace(['_', ' '], "-");
    let near = level
        .keys
        .iter()
        .filter(|key| !matches!(key.kind, Kind::NotBuilt))
        .map(|key| (strsim::damerau_levenshtein(key.name, &plain), key.name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().div_ceil(3));
    let elsewhere = || LEVELS.iter().find(|level| level.keys.iter().any(|key| key.name == plain));
    let help = match (near, elsewhere()) {
        (Some((_, name)), _) => format!("write `{name}`"),
        (None, Some(other)) => format!("write it in {}, where `{plain}` belongs", other.name),
        (None, None) => format!("the keys here are {}", known(level)),
    };
    (message, help)
}

fn known(level: &Level) -> String {
    let names: Vec<&str> =
        level.keys.iter().filter(|key| !matches!(key.kind, Kind::NotBuilt)).map(|key| key.name).collect();
    names.join(", ")
}

impl Section {
    /// What holds where the file says nothing.
    pub(super) fn of_table(level: &'static Level) -> Self {
        let mut section = Self::default();
        for key in level.keys {
            if let Some(item) = default(key) {
                section.entries.insert(key.name, Entry { item: Some(item), span: 0..0, origin: Origin::Table });
            }
        }
        section
    }

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

    fn item(&self, key: &str) -> Option<&Item> {
        self.entries.get(key)?.item.as_ref()
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

/// A getter a kind: nothing when the key is absent or was refused.
macro_rules! getters {
    ($($get:ident: $variant:ident -> $type:ty, $of:expr;)*) => {
        impl Section {
            $(pub(super) fn $get(&self, key: &str) -> Option<$type> {
                let Item::$variant(value) = self.item(key)? else { return None };
                #[allow(clippy::redundant_closure_call, reason = "the way from a reference to the value differs")]
                Some($of(value))
            })*
        }
    };
}

getters! {
    text: Text -> &str, |text| text;
    word: Word -> &'static str, |word: &&'static str| *word;
    whole: Whole -> u64, |number: &u64| *number;
    switch: Switch -> bool, |on: &bool| *on;
    duration: Duration -> Duration, |duration: &Duration| *duration;
    ttls: Ttls -> &[Timer], |timers| timers;
    names: Names -> &[Name], |names| names;
    section: Section -> &Section, |section| section;
    types: Types -> &[Named], |types| types;
}

/// The value that a key has where the file says nothing; a test reads every default of the tables.
pub(super) fn default(key: &'static Key) -> Option<Item> {
    match (key.absent, &key.kind) {
        (Absent::Value(_), Kind::Section(level)) => Some(Item::Section(Section::of_table(level))),
        (Absent::Value(text), _) => {
            let node = yaml::parse(text).ok()?;
            value::read(&mut Reader { text, origin: Origin::Table, findings: Vec::new() }, key, &node, &(0..0))
        }
        (Absent::Required | Absent::Depends(_), _) => None,
    }
}
