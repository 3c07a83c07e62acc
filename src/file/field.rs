//! Typed names of keys. The tables of keys and the lookups in a section use the same constants.

use std::{marker::PhantomData, time::Duration};

use super::{
    section::{Item, Name, Named, Rules, Section, Timer},
    table::{Absent, Key, Kind, Level, Short},
};
use crate::domain::{
    breaker::Errors,
    source::{Condition, Pointer, ReferenceFrom},
};

/// The name of a key with the type of its value.
///
/// The rows of the tables are built from fields and [`Section::get`] takes a field. The compiler therefore finds a misspelled
/// name and a value of the wrong type.
pub(super) struct Field<T: ?Sized> {
    pub(super) name: &'static str,
    value: PhantomData<fn(&T)>,
}

/// An enum that the file writes as one of several words: the words, and their values in the same order.
pub(super) trait Words: Copy + PartialEq + 'static {
    const WORDS: &'static [&'static str];
    const VALUES: &'static [Self];

    /// Returns the word of this value.
    fn word(self) -> &'static str {
        let place = Self::VALUES.iter().position(|value| *value == self);
        place.and_then(|place| Self::WORDS.get(place)).copied().unwrap_or_default()
    }
}

pub(super) const fn field<T: ?Sized>(name: &'static str) -> Field<T> {
    Field { name, value: PhantomData }
}

impl<T: ?Sized> Field<T> {
    const fn row(&self, kind: Kind, absent: Absent, about: &'static str, example: &'static str) -> Key {
        Key { name: self.name, kind, absent, about, example }
    }
}

/// Adds a constructor for one kind of row to the fields whose values have its type.
macro_rules! rows {
    ($($type:ty { $($row:ident($($argument:ident: $of:ty),*) $kind:expr;)+ })+) => {
        $(impl Field<$type> {
            $(pub(super) const fn $row(
                &self,
                $($argument: $of,)*
                absent: Absent,
                about: &'static str,
                example: &'static str,
            ) -> Key {
                self.row($kind, absent, about, example)
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
        disk(least: u64, most: u64) Kind::Disk(least, most);
        share() Kind::Share;
    }
    str {
        word() Kind::Word;
        prefix() Kind::Prefix;
        object() Kind::Object;
        cron() Kind::Cron;
        reference_text() Kind::ReferenceText;
        pause() Kind::Pause;
    }
    bool {
        switch() Kind::Switch;
    }
    Duration {
        duration(least: Duration, most: Duration) Kind::Duration(least, most);
        duration_or(word: &'static str, least: Duration, most: Duration) Kind::DurationOr(word, least, most);
    }
    Errors {
        errors(most: u64) Kind::Errors(most);
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
        sources(level: &'static Level) Kind::Sources(level);
        schedules(level: &'static Level) Kind::Schedules(level);
    }
    Rules {
        rules(level: &'static Level) Kind::Rules(level);
    }
    [Condition] {
        conditions() Kind::Conditions;
    }
    Pointer {
        pointer() Kind::Pointer;
    }
    ReferenceFrom {
        reference() Kind::Reference;
    }
    jiff::tz::TimeZone {
        zone() Kind::Zone;
    }
    serde_json::Value {
        json() Kind::Json;
    }
}

impl<T: Words> Field<T> {
    pub(super) const fn choice(&self, absent: Absent, about: &'static str, example: &'static str) -> Key {
        self.row(Kind::Choice(T::WORDS), absent, about, example)
    }
}

/// A type that a value in a section may have.
pub(super) trait Stored {
    /// Returns the item's value if it has this type.
    fn of(item: &Item) -> Option<&Self>;
}

macro_rules! stored {
    ($($type:ty: $variant:ident;)*) => {$(
        impl Stored for $type {
            fn of(item: &Item) -> Option<&Self> {
                if let Item::$variant(value) = item { Some(value) } else { None }
            }
        }
    )*};
}

stored! {
    str: Text;
    u64: Whole;
    bool: Switch;
    Duration: Duration;
    Errors: Errors;
    [Timer]: Ttls;
    [Name]: Names;
    Section: Section;
    [Named]: Types;
    Rules: Rules;
    [Condition]: Conditions;
    Pointer: Pointer;
    ReferenceFrom: Reference;
    jiff::tz::TimeZone: Zone;
    serde_json::Value: Json;
}

impl<T: Words> Stored for T {
    fn of(item: &Item) -> Option<&Self> {
        let Item::Word(word) = item else { return None };
        T::VALUES.get(T::WORDS.iter().position(|known| known == word)?)
    }
}

impl Section {
    /// Returns the value of a key, or `None` if the key is absent or its value was refused.
    pub(super) fn get<T: Stored + ?Sized>(&self, field: &Field<T>) -> Option<&T> {
        T::of(self.entries.get(field.name)?.item.as_ref()?)
    }
}
