//! Parses YAML into a tree in which every key and value has its place. No other file uses the YAML crate.

use std::{fmt, ops::Range};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    DuplicateKeyPolicy, Error, Location, MessageFormatter, NonFiniteFloatPolicy, Options, Spanned,
    UserMessageFormatter, granit_parser::ErrorKind, localizer::ExternalMessageSource,
};

use super::error::{Draft, Refusal, floor, quote};

/// The most bytes of a file. A topology of a thousand types has about half of it.
pub(super) const MOST_BYTES: usize = 1 << 20;
/// The deepest nesting. A topology needs 5 levels.
const DEPTH: usize = 16;
/// The most values of a file, also counting those behind aliases. A type with every key has about 40.
const MOST_VALUES: usize = 50_000;

/// A value and its place in the file.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) span: Range<usize>,
}

/// A value as YAML reads it.
#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Whole(u64),
    /// A number that is negative, has a fraction, or does not fit into 64 bits.
    Number,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Word, Node)>),
}

/// A key of a map, always as text, even if it would be a number or a boolean as a value.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

/// Parses a text of exactly one YAML document.
pub(super) fn parse(text: &str) -> Result<Node, (Refusal, Draft)> {
    if text.len() > MOST_BYTES {
        let message = format!("the file has more than {MOST_BYTES} bytes, the most that a topology has");
        return Err((Refusal::Size, Draft::new(0..0, message, "give the path of a topology.yaml")));
    }
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| explain(&error, text))
}

/// Whether YAML reads this as text without quotes.
#[cfg(any(test, feature = "internals"))]
pub(super) fn is_text(plain: &str) -> bool {
    parse(plain).is_ok_and(|node| matches!(node.value, Value::Text(text) if text == plain))
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH,
            flow_nesting_limit: DEPTH,
            max_nodes: MOST_VALUES,
            // A hundred types may share one anchor. The nodes behind the aliases are counted below.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MOST_VALUES,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn explain(error: &Error, text: &str) -> (Refusal, Draft) {
    let at = error.location().map_or(0..0, |location| place(location, text));
    let limit = || {
        (
            Refusal::Limit,
            "the file is nested deeper, or has more values, than a topology may have".to_owned(),
            format!("write less: {DEPTH} levels and {MOST_VALUES} values are the most, those of aliases included"),
        )
    };
    let (refusal, message, help) = match error.without_snippet() {
        Error::AliasError { error, .. } => return explain(error, text),
        Error::DuplicateMappingKey { key, .. } => (
            Refusal::Syntax,
            format!("the key {} is there twice", quote(key.as_deref().unwrap_or("?"))),
            "remove one of the two".to_owned(),
        ),
        Error::MultipleDocuments { .. } => (
            Refusal::Syntax,
            "a second document begins here".to_owned(),
            "write one topology into one file, and no `---` behind it".to_owned(),
        ),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => limit(),
        Error::ExternalMessage { source, .. } if too_deep(source) => limit(),
        Error::RecursiveReferencesRequireWeakTypes { .. } => (
            Refusal::Syntax,
            "this alias stands within what it names".to_owned(),
            "write out what it stands for".to_owned(),
        ),
        Error::UnknownAnchor { .. } => (
            Refusal::Syntax,
            "this alias has no anchor before it".to_owned(),
            "write the anchor, `&name`, above; or put a text that begins with `*` in quotes".to_owned(),
        ),
        Error::UnsupportedTag { tag, .. } => {
            (Refusal::Syntax, format!("the tag {} means nothing here", quote(tag)), "remove the tag".to_owned())
        }
        // Only keys have to be text.
        Error::NullIntoString { .. } | Error::Unexpected { .. } => {
            (Refusal::Syntax, "a key is a word, and this is none".to_owned(), "write a word before the `:`".to_owned())
        }
        other => {
            let message =
                UserMessageFormatter.format_message(other).trim_end_matches('.').replace(char::is_control, " ");
            (Refusal::Syntax, format!("this is not YAML: {message}"), hint(text, at.start))
        }
    };
    (refusal, Draft::new(at, message, help))
}

/// The YAML scanner's own limit for nested brackets.
fn too_deep(source: &ExternalMessageSource) -> bool {
    matches!(source, ExternalMessageSource::Parser(error) if matches!(error.kind(), ErrorKind::RecursionLimitExceeded))
}

/// Guesses the most common cause of a syntax error at this place.
fn hint(text: &str, at: usize) -> String {
    let start = text[..floor(text, at)].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    let indentation = &line[..line.len() - line.trim_start().len()];
    if indentation.contains('\t') {
        "write spaces instead of tabs before a key".to_owned()
    } else {
        "write `key: value`, the keys of a level below each other; look above for an open quote or bracket".to_owned()
    }
}

/// Returns the byte of an error, for which the scanner gives line and column only.
fn place(location: Location, text: &str) -> Range<usize> {
    if location.span().byte_offset().is_some() {
        return bytes(location);
    }
    let nth = |number: u64| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
    let line = text.split_inclusive('\n').nth(nth(location.line())).unwrap_or_default();
    let start = text.split_inclusive('\n').take(nth(location.line())).map(str::len).sum::<usize>();
    let column = line.char_indices().nth(nth(location.column())).map_or(line.trim_end().len(), |(at, _)| at);
    start + column..start + column
}

/// Returns the range of bytes of a place. A text that was parsed from memory always has one.
fn bytes(location: Location) -> Range<usize> {
    let byte = |at: Option<u64>| usize::try_from(at.unwrap_or_default()).unwrap_or_default();
    let start = byte(location.span().byte_offset());
    start..start.saturating_add(byte(location.span().byte_len()))
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The place of the definition and not of the alias, because the definition is the text to change.
        Spanned::<Value>::deserialize(deserializer).map(|s| Self { value: s.value, span: bytes(s.defined) })
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::<String>::deserialize(deserializer).map(|s| Self { text: s.value, span: bytes(s.defined) })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Whole(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or(Value::Number, Value::Whole))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Number)
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Value::Map(map))
    }
}

/// Describes a value for a message.
pub(super) const fn describe(node: &Node) -> &'static str {
    match node.value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Whole(_) | Value::Number => "a number",
        Value::Text(_) => "a text",
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
    }
}
