//! The default values of the keys, as typed values.

use super::{
    section::{Entry, Item, Origin, Reader, Section},
    table::{Absent, Key, Kind, Level},
    value, yaml,
};

impl Section {
    /// The settings of a type that sets no key.
    pub(super) fn of_table(level: &'static Level) -> Self {
        let mut section = Self::default();
        for key in level.keys {
            if let Some(item) = default(key) {
                section.entries.insert(key.name, Entry { item: Some(item), span: 0..0, origin: Origin::Table });
            }
        }
        section
    }
}

/// Parses the default of a key from its table. A test parses every default, so this cannot fail.
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
