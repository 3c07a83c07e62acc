//! Checks a map key by key against its table, and each value against the kind that its key takes.

use std::ops::Range;

use super::{
    amount::{bytes, disk, duration, errors, parse_bytes, say, share, size, ttls, whole},
    error::quote,
    keys::RULE_TYPE,
    levels::LEVELS,
    schedules,
    section::{Checked, Entry, Item, Name, Named, Reader, Section},
    sources,
    table::{Absent, Key, Kind, Level, Short},
    yaml::{self, Node, Value, describe},
};
use crate::domain::{ttl, words::Word};

impl Reader<'_> {
    /// Reads the map in this node. An empty value counts as an empty map.
    pub(super) fn section(&mut self, level: &'static Level, node: &Node) -> Section {
        let mut section = Section::default();
        let Value::Map(entries) = &node.value else {
            if !matches!(node.value, Value::Null) {
                let message = format!("{} is a map of keys, and this is {}", level.name, describe(node));
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
            let item = read(self, key, node, &word.span);
            let span = if node.span.is_empty() { word.span.clone() } else { node.span.clone() };
            section.entries.insert(key.name, Entry { item, span, origin: self.origin });
        }
        section
    }

    /// Reports the keys that the map must have and has not.
    pub(super) fn required(&mut self, level: &'static Level, section: &Section, at: &Range<usize>) {
        for key in level.keys.iter().filter(|key| matches!(key.absent, Absent::Required) && !section.says(key.name)) {
            self.refuse(at, format!("`{}` is missing", key.name), example(key));
        }
    }
}

/// A search for the key of a level that this text was meant to be.
type Find = fn(&Level, &str) -> Option<&'static str>;

/// Returns the message and the help for a key that does not exist at this level.
fn unknown(level: &Level, text: &str) -> (String, String) {
    let message = format!("{} has no key {}", level.name, quote(text));
    let plain = text.to_lowercase().replace(['_', ' '], "-");
    let here = |find: Find| Some(format!("write `{}`", find(level, &plain)?));
    let elsewhere = |find: Find| {
        LEVELS.iter().find_map(|level| Some(format!("write `{}` in {}", find(level, &plain)?, level.name)))
    };
    let misplaced = || {
        let other = LEVELS.iter().find(|level| key_names(level).any(|name| name == plain))?;
        Some(format!("write it in {}, where `{plain}` belongs", other.name))
    };
    let help = here(misspelled)
        .or_else(misplaced)
        .or_else(|| here(resembling))
        .or_else(|| elsewhere(one_letter_off))
        .or_else(|| elsewhere(resembling));
    (message, help.unwrap_or_else(|| format!("the keys here are {}", known(level))))
}

/// Returns the key of this level from which the text differs by a few letters.
fn misspelled(level: &Level, text: &str) -> Option<&'static str> {
    let near = key_names(level).map(|name| (strsim::damerau_levenshtein(name, text), name)).min();
    near.filter(|(distance, name)| *distance <= name.len().div_ceil(3)).map(|(_, name)| name)
}

/// Returns the key of this level from which the text differs by one letter.
fn one_letter_off(level: &Level, text: &str) -> Option<&'static str> {
    key_names(level).find(|name| strsim::damerau_levenshtein(name, text) == 1)
}

/// Returns the key of this level that has all words of the text, or whose words are all in the text, or that is at
/// least similar: `limit` is `crash-limit`, `prefetch-count` is `prefetch`, and `retries` is `retry`.
fn resembling(level: &Level, text: &str) -> Option<&'static str> {
    let has = |whole: &str, part: &str| part.split('-').all(|word| whole.split('-').any(|other| other == word));
    key_names(level).find(|name| has(name, text) || has(text, name)).or_else(|| {
        let similar = key_names(level).map(|name| (strsim::jaro_winkler(name, text), name));
        similar.filter(|(similarity, _)| *similarity >= 0.85).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
    })
}

/// Returns the keys that a file may have at this level.
fn key_names(level: &Level) -> impl Iterator<Item = &'static str> {
    level.keys.iter().map(|key| key.name)
}

/// The most keys that a help names. More would hide the message.
const NAMED: usize = 6;

fn known(level: &Level) -> String {
    let all: Vec<&str> = key_names(level).collect();
    match all.len().saturating_sub(NAMED) {
        0 => all.join(", "),
        more => format!("{} and {more} more: docs/reference/topology-yaml.md has them", all[..NAMED].join(", ")),
    }
}

/// Returns the value of a key, or `None` after it has reported a finding.
pub(super) fn read(reader: &mut Reader<'_>, key: &Key, node: &Node, at: &Range<usize>) -> Option<Item> {
    let item = match (&key.kind, &node.value) {
        (Kind::Section(level), _) => Ok(Item::Section(reader.section(level, node))),
        (Kind::Short(level, forms), _) => return short(reader, key, level, forms, node, at),
        (Kind::Types(level), Value::Null) => Ok(types(reader, level, &[], at)),
        (Kind::Types(level), Value::Map(entries)) => Ok(types(reader, level, entries, at)),
        (Kind::Schedules(level) | Kind::Sources(level), Value::Map(entries)) => {
            Ok(Item::Types(named(reader, level, entries)))
        }
        (Kind::Json, _) => schedules::payload(reader, node).map(Item::Json),
        (Kind::Schedules(_) | Kind::Sources(_), Value::Null) => Ok(Item::Types(Vec::new())),
        (Kind::Rules(_), Value::List(list)) => {
            let span = if node.span.is_empty() { at } else { &node.span };
            return sources::rules(reader, list, span).map(Item::Rules);
        }
        (Kind::Conditions, Value::Map(_)) => return sources::conditions(reader, node).map(Item::Conditions),
        (Kind::Ttls { may_be_empty: true }, Value::Null) => Ok(Item::Ttls(Vec::new())),
        (_, Value::Null) => Err((format!("`{}` has no value", key.name), example(key) + or_remove(key))),
        (Kind::Ttls { may_be_empty }, Value::List(list)) => return ttls(reader, key, *may_be_empty, list, node),
        (Kind::Names | Kind::Objects, Value::List(list)) => return names(reader, key, list),
        (Kind::Names, Value::Text(_)) => return names(reader, key, std::slice::from_ref(node)),
        (Kind::Version, Value::Whole(1)) => Ok(Item::Whole(1)),
        (Kind::Word, Value::Text(text)) => name(text).map(Item::Text),
        (Kind::Prefix, Value::Text(text)) => prefix(text).map(Item::Text),
        (Kind::Object, Value::Text(text)) => object(text).map(Item::Text),
        (Kind::Pointer, Value::Text(text)) => sources::pointer(text).map(Item::Pointer),
        (Kind::Reference, _) => sources::reference(reader, node).map(Item::Reference),
        (Kind::Cron, Value::Text(text)) => Ok(Item::Text(text.clone())),
        (Kind::ReferenceText, Value::Text(text)) => schedules::reference(text).map(Item::Text),
        (Kind::Zone, Value::Text(text)) => sources::zone(text).map(Item::Zone),
        (Kind::Whole(least, most), Value::Whole(number)) => whole(key, *least, *most, *number),
        (Kind::Bytes(most), Value::Whole(number)) => bytes(key, *most, Some(*number)),
        (Kind::Bytes(most), Value::Text(text)) => bytes(key, *most, parse_bytes(text)),
        (Kind::Duration(least, most), _) if scalar(node) => {
            duration(reader, key.name, (*least, *most), node).map(Item::Duration)
        }
        (Kind::DurationOr(other, ..), _) if word(reader, node) == *other => Ok(Item::Word(other)),
        (Kind::DurationOr(_, least, most), _) if scalar(node) => {
            duration(reader, key.name, (*least, *most), node).map(Item::Duration)
        }
        (Kind::Errors(most), _) if scalar(node) => errors(reader, key, *most, node),
        (Kind::Share, _) if scalar(node) => share(reader, key.name, node),
        (Kind::Switch, _) if scalar(node) => switch(reader, key, node),
        (Kind::Pause, _) if scalar(node) => pause(reader, key, node),
        (Kind::Choice(choices), _) if scalar(node) => choice(reader, key, choices, node),
        (Kind::Size(_), _) if word(reader, node) == "off" => Ok(Item::Whole(0)),
        (Kind::Size(most), Value::Whole(number)) => size(key, *most, Some(*number)),
        (Kind::Size(most), Value::Text(text)) => size(key, *most, parse_bytes(text)),
        (Kind::Disk(least, most), Value::Whole(number)) => disk(key, *least, *most, Some(*number)),
        (Kind::Disk(least, most), Value::Text(text)) => disk(key, *least, *most, parse_bytes(text)),
        _ => Err(mismatch(reader, key, node)),
    };
    let span = if node.span.is_empty() { at } else { &node.span };
    item.map_err(|(message, help)| reader.refuse(span, message, help)).ok()
}

const fn scalar(node: &Node) -> bool {
    !matches!(node.value, Value::List(_) | Value::Map(_))
}

/// The end of a help text for a key that is not required.
const fn or_remove(key: &Key) -> &'static str {
    if matches!(key.absent, Absent::Required) { "" } else { ", or remove it" }
}

/// Describes the values that a key takes, for the help of a finding.
pub(super) fn example(key: &Key) -> String {
    let value = match (&key.kind, key.absent) {
        (Kind::Version, _) => "1",
        (Kind::Word, _) if key.name == RULE_TYPE.name => "mail",
        (Kind::Word, _) => "billing",
        (Kind::Types(_), _) => "{ mail: {} }",
        (Kind::Sources(_), _) => "{ hr: { queue: hr-changes, events: [ { type: mail } ] } }",
        (Kind::Rules(_), _) => "[ { type: mail } ]",
        (Kind::Conditions, _) => "{ /kind: terminated }",
        (Kind::Pointer, Absent::Depends(_)) | (Kind::Reference, _) => "/employee/number",
        (Kind::Schedules(_), _) => "{ nightly: { type: mail, cron: \"0 3 * * *\" } }",
        (Kind::Cron, _) => "\"0 3 * * *\"",
        (Kind::ReferenceText, _) => "all",
        (Kind::Object, _) => "hr-changes",
        (Kind::Zone, _) => "Europe/Berlin",
        (Kind::Ttls { may_be_empty: true }, _) => "[5s, 1m, 1h]",
        (Kind::Short(_, forms), _) => forms.get(1).map_or("{}", |form| form.word),
        (Kind::Switch, _) => "on",
        (Kind::Pause, _) => "\"the provider migrates\"",
        (Kind::Names, _) => "invoicing",
        (Kind::Objects, _) => "[billing.processor.mail]",
        (Kind::Duration(..), Absent::Depends(_)) => "2s",
        // Whoever writes the key most likely wants to switch it on, so the help does not begin with `off`.
        (Kind::Size(_), _) => "4KiB",
        (Kind::Share, _) => "20%",
        (_, Absent::Value(text)) => text,
        (_, _) => "…",
    };
    format!("write `{}: {value}`", key.name)
}

/// Reports a value of the wrong kind.
fn mismatch(reader: &Reader<'_>, key: &Key, node: &Node) -> (String, String) {
    let shown = quote(reader.source(node));
    let takes = match key.kind {
        Kind::Version | Kind::Whole(..) => "a whole number",
        Kind::Word | Kind::Prefix | Kind::ReferenceText => "a text",
        Kind::Cron => "a cron expression in quotes",
        Kind::Json => "any value",
        Kind::Object => "the name of a queue",
        Kind::Pointer | Kind::Reference => "a JSON Pointer",
        Kind::Zone => "the name of a time zone",
        Kind::Rules(_) => "a list of rules",
        Kind::Bytes(_) | Kind::Disk(..) => "a number of bytes",
        Kind::Size(_) => "`off` or a number of bytes",
        Kind::Duration(..) => "a duration",
        Kind::DurationOr(..) => "a duration or a word",
        Kind::Errors(_) => "a number or a part, like 50%",
        Kind::Share => "a part, like 0.2 or 20%",
        Kind::Ttls { .. } => "a list of durations",
        Kind::Names => "a name, or a list of names",
        Kind::Objects => "a list of names",
        Kind::Switch => "`on` or `off`",
        Kind::Pause => "`on`, `off` or a reason",
        Kind::Choice(_) => "a word",
        Kind::Section(_)
        | Kind::Short(..)
        | Kind::Types(_)
        | Kind::Schedules(_)
        | Kind::Sources(_)
        | Kind::Conditions => "a map",
    };
    let help = match (&key.kind, &node.value) {
        (Kind::Version, Value::Whole(_)) => {
            return (format!("version {shown} is unknown"), "write `version: 1`, the only one so far".to_owned());
        }
        (Kind::Version | Kind::Whole(..), Value::Number) => {
            return (format!("`{}` takes a whole number from 1, and {shown} is none", key.name), example(key));
        }
        (Kind::Word | Kind::Prefix | Kind::ReferenceText, Value::Bool(_) | Value::Whole(_) | Value::Number) => {
            format!("write it in quotes: `{}: \"{}\"`", key.name, shown.trim_matches('`'))
        }
        (Kind::Version | Kind::Whole(..), Value::Text(text)) => match text.parse::<u64>() {
            Ok(number) => format!("write it without quotes: `{}: {number}`", key.name),
            Err(_) => example(key),
        },
        (Kind::Ttls { .. }, Value::Text(text)) => match ttl::parse_duration(text) {
            Ok(duration) => format!("write a list: `{}: [{}]`", key.name, say(duration)),
            Err(_) => example(key),
        },
        (Kind::Size(_), _) => example(key) + " or `off`",
        _ => example(key),
    };
    let what = describe(node);
    let message = match node.value {
        Value::List(_) | Value::Map(_) => format!("`{}` takes {takes}, and this is {what}", key.name),
        _ => format!("`{}` takes {takes}, and {shown} is {what} in YAML", key.name),
    };
    (message, help)
}

fn name(text: &str) -> Checked<String> {
    if text.parse::<Word>().is_ok() {
        return Ok(text.to_owned());
    }
    let dot = if text.contains('.') { " (a dot would split the routing key)" } else { "" };
    let message = match text.len() {
        0 => "a name is empty".to_owned(),
        65.. => format!("{} is longer than 64 characters", quote(text)),
        _ => format!("{} is not one word of letters, digits, `_` or `-`{dot}", quote(text)),
    };
    let mut plain: String = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    plain.truncate(64);
    let plain = plain.trim_matches('-');
    let help = if plain.is_empty() { "write a word like `billing`".to_owned() } else { format!("write `{plain}`") };
    Err((message, help))
}

/// Reads a list of words. With [`Kind::Objects`], each may be any name that RabbitMQ does not reserve.
fn names(reader: &mut Reader<'_>, key: &Key, list: &[Node]) -> Option<Item> {
    let before = reader.findings.len();
    let mut names: Vec<Name> = Vec::new();
    for node in list {
        let checked = match &node.value {
            Value::Text(text) if matches!(key.kind, Kind::Objects) => object(text),
            Value::Text(text) => name(text),
            _ => Err(mismatch(reader, key, node)),
        };
        let twice = |text: &String| names.iter().any(|name| name.text == *text);
        match checked {
            Ok(text) if twice(&text) => {
                reader.refuse(&node.span, format!("{} is there twice", quote(&text)), "remove one of the two");
            }
            Ok(text) => names.push(Name { text, span: node.span.clone() }),
            Err((message, help)) => reader.refuse(&node.span, message, help),
        }
    }
    (reader.findings.len() == before).then_some(Item::Names(names))
}

fn object(text: &str) -> Checked<String> {
    let why = if text.is_empty() {
        "is empty, and that is the broker's default exchange".to_owned()
    } else if text.len() > 255 {
        format!("has {} bytes, and names have at most 255", text.len())
    } else if text.starts_with("amq.") {
        "begins with `amq.`, which is the broker's own".to_owned()
    } else {
        return Ok(text.to_owned());
    };
    Err((format!("the name {why}"), "write the name of an exchange or queue of yours".to_owned()))
}

fn prefix(text: &str) -> Checked<String> {
    const LONGEST: usize = 64;
    let why = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > LONGEST {
        format!("has {} bytes; at most {LONGEST} stand before every key", text.len())
    } else if text.contains(['{', '}']) {
        "has a brace, and braces decide about the hash slot of a key".to_owned()
    } else if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        "has white space or a control character".to_owned()
    } else {
        return Ok(text.to_owned());
    };
    Err((format!("the prefix {why}"), "write a short text like `prefix: hatchery`".to_owned()))
}

/// Reads a pause: its reason, which is empty for `on`.
fn pause(reader: &Reader<'_>, key: &Key, node: &Node) -> Checked<Item> {
    match (word(reader, node).as_str(), &node.value) {
        ("on", _) => Ok(Item::Text(String::new())),
        ("off", _) => Ok(Item::Word("off")),
        (_, Value::Text(text)) if !text.trim().is_empty() => Ok(Item::Text(text.trim().to_owned())),
        _ => Err(mismatch(reader, key, node)),
    }
}

/// Reads a word. Every spelling of a boolean becomes `on` or `off`.
fn word(reader: &Reader<'_>, node: &Node) -> String {
    match &node.value {
        Value::Bool(true) => "on".to_owned(),
        Value::Bool(false) => "off".to_owned(),
        Value::Text(text) => match text.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" => "on".to_owned(),
            "off" | "false" | "no" => "off".to_owned(),
            _ => text.clone(),
        },
        _ => reader.source(node).to_owned(),
    }
}

fn switch(reader: &Reader<'_>, key: &Key, node: &Node) -> Checked<Item> {
    match word(reader, node).as_str() {
        "on" => Ok(Item::Switch(true)),
        "off" => Ok(Item::Switch(false)),
        other => {
            Err((format!("`{}` has no value {}", key.name, quote(other)), format!("write `{}: on` or `off`", key.name)))
        }
    }
}

fn choice(reader: &Reader<'_>, key: &Key, choices: &[&'static str], node: &Node) -> Checked<Item> {
    let found = word(reader, node);
    // A value such as `on` must not be answered with the advice to write `off`.
    let meant: Vec<&str> = choices.iter().copied().filter(|choice| !(found == "on" && *choice == "off")).collect();
    let help = format!("write `{}: {}`{}", key.name, meant.join("` or `"), or_remove(key));
    match choices.iter().find(|choice| **choice == found) {
        Some(word) => Ok(Item::Word(word)),
        None => Err((format!("`{}` has no value {}", key.name, quote(&found)), help)),
    }
}

fn short(
    reader: &mut Reader<'_>,
    key: &Key,
    level: &'static Level,
    forms: &'static [Short],
    node: &Node,
    at: &Range<usize>,
) -> Option<Item> {
    if let Value::Map(_) = node.value {
        return Some(Item::Section(reader.section(level, node)));
    }
    let found = word(reader, node);
    let span = if node.span.is_empty() { at } else { &node.span };
    if let Some(form) = forms.iter().find(|form| form.word == found) {
        return Some(Item::Section(Section::of_words(form.means, span, reader.origin)));
    }
    let words: Vec<&str> = forms.iter().map(|form| form.word).collect();
    let one_of = if words.len() > 1 { "one of " } else { "" };
    let message = format!("`{}` takes a map, or {one_of}`{}`", key.name, words.join("`, `"));
    reader.refuse(span, message, example(key) + " or `off`");
    None
}

fn types(reader: &mut Reader<'_>, level: &'static Level, entries: &[(yaml::Word, Node)], at: &Range<usize>) -> Item {
    if entries.is_empty() {
        reader.refuse(at, "there is no type", "write at least one, like `types: { mail: {} }`");
    }
    Item::Types(named(reader, level, entries))
}

/// Reads a map from names to sections.
fn named(reader: &mut Reader<'_>, level: &'static Level, entries: &[(yaml::Word, Node)]) -> Vec<Named> {
    let mut all = Vec::new();
    for (word, node) in entries {
        if let Err((message, help)) = name(&word.text) {
            reader.refuse(&word.span, message, help);
        }
        let section = reader.section(level, node);
        reader.required(level, &section, &word.span);
        all.push(Named { name: word.text.clone(), span: word.span.clone(), section });
    }
    all
}
