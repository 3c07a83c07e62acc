//! What a table of keys can say; the tables themselves are in [`super::keys`].

use std::{marker::PhantomData, time::Duration};

use super::section::{Name, Named, Section, Timer};

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

/// The name of a key, and the type of its value. The rows of the tables are made of fields, and [`Section::get`] takes a
/// field, so the compiler finds a name that no table has and a value of another type.
///
/// [`Section::get`]: super::section::Section::get
pub(super) struct Field<T: ?Sized> {
    pub(super) name: &'static str,
    value: PhantomData<fn(&T)>,
}

/// The words of a choice, and their values in the same order.
pub(super) trait Words: Copy + PartialEq + 'static {
    const WORDS: &'static [&'static str];
    const VALUES: &'static [Self];

    /// The word that stands for this value.
    fn word(self) -> &'static str {
        let place = Self::VALUES.iter().position(|value| *value == self);
        place.and_then(|place| Self::WORDS.get(place)).copied().unwrap_or_default()
    }
}

pub(super) const fn field<T: ?Sized>(name: &'static str) -> Field<T> {
    Field { name, value: PhantomData }
}

impl<T: ?Sized> Field<T> {
    const fn row(&self, kind: Kind, absent: Absent, about: &'static str) -> Key {
        Key { name: self.name, kind, absent, about }
    }
}

/// A constructor for each kind of row, at the type that its value has.
macro_rules! rows {
    ($($type:ty { $($row:ident($($argument:ident: $of:ty),*) $kind:expr;)+ })+) => {
        $(impl Field<$type> {
            $(pub(super) const fn $row(&self, $($argument: $of,)* absent: Absent, about: &'static str) -> Key {
                self.row($kind, absent, about)
            })+
        })+
    };
}

rows! {
    u64 {
        version() Kind::Version;
        whole(least: u64, most: u64) Kind::Whole(least, most);
        bytes(most: u64) Kind::Bytes(most);
        size(most: u64) Kind::Size(most);
        share() Kind::Share;
    }
    str {
        word() Kind::Word;
        prefix() Kind::Prefix;
    }
    bool {
        switch() Kind::Switch;
    }
    Duration {
        duration(least: Duration, most: Duration) Kind::Duration(least, most);
    }
    [Timer] {
        ttls(may_be_empty: bool) Kind::Ttls { may_be_empty };
    }
    [Name] {
        names() Kind::Names;
        objects() Kind::Objects;
    }
    Section {
        section(level: &'static Level) Kind::Section(level);
        short(level: &'static Level, forms: &'static [Short]) Kind::Short(level, forms);
    }
    [Named] {
        types(level: &'static Level) Kind::Types(level);
    }
}

impl<T: Words> Field<T> {
    pub(super) const fn choice(&self, absent: Absent, about: &'static str) -> Key {
        self.row(Kind::Choice(T::WORDS), absent, about)
    }
}

/// A row of a later version.
pub(super) const fn not_built(name: &'static str, about: &'static str) -> Key {
    Key { name, kind: Kind::NotBuilt, absent: Absent::Depends("not built yet"), about }
}
