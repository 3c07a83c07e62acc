//! The types of which the tables of keys are built. The tables themselves are in [`super::levels`].

use std::time::Duration;

/// A map in the file and the keys that it takes.
#[derive(Debug)]
pub struct Level {
    /// The name of the map in messages.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// One key: a row of the table.
#[derive(Debug)]
pub struct Key {
    /// The key.
    pub name: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// The meaning of an absent key.
    pub absent: Absent,
    /// The description that editors and the reference show.
    #[cfg_attr(not(feature = "internals"), expect(dead_code, reason = "only the reference shows it"))]
    pub about: &'static str,
    /// The key in use, as the reference shows it: YAML of the map that a person writes, which is the file, a type, a schedule or a
    /// source.
    #[cfg_attr(not(feature = "internals"), expect(dead_code, reason = "only the reference shows it"))]
    pub example: &'static str,
}

/// The meaning of an absent key.
#[derive(Clone, Copy, Debug)]
pub enum Absent {
    /// The file is refused.
    Required,
    /// The key has this value, written in YAML.
    Value(&'static str),
    /// The value depends on other keys, as this sentence says.
    #[cfg_attr(not(feature = "internals"), expect(dead_code, reason = "only the reference shows it"))]
    Depends(&'static str),
}

/// The kind of value that a key takes.
#[derive(Debug)]
pub enum Kind {
    /// The number 1.
    Version,
    /// One word that becomes part of the names of exchanges and queues.
    Word,
    /// One word, or a list of them.
    Names,
    /// A list of names of exchanges and queues.
    Objects,
    /// The prefix of Redis keys.
    Prefix,
    /// A whole number.
    Whole(u64, u64),
    /// A number of bytes from 1, like `64KiB`.
    Bytes(u64),
    /// A duration in whole milliseconds.
    Duration(Duration, Duration),
    /// A duration in whole milliseconds, or this word.
    DurationOr(&'static str, Duration, Duration),
    /// A whole number from 1, or a part, like `50%`.
    Errors(u64),
    /// A fraction from 0 to 1.
    Share,
    /// A list of TTLs.
    Ttls {
        /// Whether the list may be empty.
        may_be_empty: bool,
    },
    /// `on` or `off`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `off`, or a number of bytes from 1.
    Size(u64),
    /// A number of bytes on disk, like `1GiB`.
    Disk(u64, u64),
    /// A map.
    Section(&'static Level),
    /// A map, or a short form: one word in its place.
    Short(&'static Level, &'static [Short]),
    /// A map from the names of types to their settings.
    Types(&'static Level),
    /// A map from the names of sources to their settings.
    Sources(&'static Level),
    /// A map from the names of schedules to their settings.
    Schedules(&'static Level),
    /// `on`, `off`, or a reason, which means `on`.
    Pause,
    /// A cron expression.
    Cron,
    /// A reference.
    ReferenceText,
    /// Any value, as JSON.
    Json,
    /// A list of rules.
    #[cfg_attr(not(feature = "internals"), expect(dead_code, reason = "only the reference shows it"))]
    Rules(&'static Level),
    /// A map from JSON Pointers to constants.
    Conditions,
    /// A JSON Pointer.
    Pointer,
    /// A JSON Pointer, or a constant.
    Reference,
    /// The name of one queue.
    Object,
    /// The name of a time zone.
    Zone,
}

/// A short form: one word in place of a map, with the values that it means.
#[derive(Debug)]
pub struct Short {
    /// The word.
    pub word: &'static str,
    /// The keys of the map and their values.
    pub means: &'static [(&'static str, &'static str)],
}
