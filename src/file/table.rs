//! What a table of keys can say; the tables themselves are in [`super::keys`].

use std::time::Duration;

/// A map in the file and the keys that it takes.
#[derive(Debug)]
pub(super) struct Level {
    /// What a message calls it.
    pub(super) name: &'static str,
    pub(super) keys: &'static [Key],
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) absent: Absent,
    /// One sentence for people.
    pub(super) about: &'static str,
}

/// What holds when the key is not there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Absent {
    /// The file is refused.
    Required,
    /// The same as if this were written, in YAML.
    Value(&'static str),
    /// It depends on other keys; this says how.
    Depends(&'static str),
}

/// What kind of value a key takes.
#[derive(Debug)]
pub(super) enum Kind {
    /// The number 1.
    Version,
    /// One word, as exchanges and queues are named after it.
    Word,
    /// One word, or a list of them.
    Names,
    /// A list of exchanges' and queues' names.
    Objects,
    /// A text that a Redis key can begin with.
    Prefix,
    /// A whole number.
    Whole(u64, u64),
    /// A number of bytes from 1, like `64KiB`.
    Bytes(u64),
    /// A duration in whole milliseconds.
    Duration(Duration, Duration),
    /// A part of something, from 0 to 1.
    Share,
    /// A list of TTLs, which may be empty or not.
    Ttls { may_be_empty: bool },
    /// `on` or `off`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `off`, or a number of bytes from 1.
    Size(u64),
    /// A map.
    Section(&'static Level),
    /// A map, or a word that stands for one.
    Short(&'static Level, &'static [Short]),
    /// A map from the names of types to what they say.
    Types(&'static Level),
    /// A key of a later version, refused by its name.
    NotBuilt,
}

/// A word that stands for a whole map, with the values that it stands for.
#[derive(Debug)]
pub(super) struct Short {
    pub(super) word: &'static str,
    pub(super) means: &'static [(&'static str, &'static str)],
}

/// A row of a later version.
pub(super) const fn not_built(name: &'static str, about: &'static str) -> Key {
    Key { name, kind: Kind::NotBuilt, absent: Absent::Depends("not built yet"), about }
}
