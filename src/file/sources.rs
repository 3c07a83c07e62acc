//! Reads the key `sources`: its values, the checks of its keys against each other, and the settings that it makes.

use std::{collections::BTreeMap, ops::Range};

use super::{
    error::quote,
    keys::{
        DECLARE, EVENTS, ID, NAME, NBF, ORDERED, PAUSED, PAYLOAD, PREFETCH, QUEUE, REFERENCE, RULE_TYPE, SOURCES,
        TIMEZONE, TYPES, UNMATCHED, WHEN,
    },
    levels::{RULE_LEVEL, SOURCE_LEVEL},
    schedules::known_type,
    section::{Checked, Named, Reader, Rules, Section},
    yaml::{Node, Value, describe},
};
use crate::domain::{
    names,
    source::{Condition, Constant, Intake, Pointer, ReferenceFrom, Rule, SourceSpec},
    words::{Reference, Word, nearest},
};

/// The longest name of a source: its dead-letter queue is named after `source-<name>`, and that is one word.
pub(super) const LONGEST_NAME: usize = 57;

pub(super) fn pointer(text: &str) -> Checked<Pointer> {
    text.parse().map_err(|error| {
        let help = match text.trim_start_matches(['#', '$', '.', '/']) {
            "" => "write `/` for the whole message".to_owned(),
            plain => format!("write a JSON Pointer, like `/{}`", plain.replace('.', "/").replace('~', "~0")),
        };
        (format!("{} is no pointer: it {error}", quote(text)), help)
    })
}

/// Reads a map from places in the message to constants, or lists of constants.
pub(super) fn conditions(reader: &mut Reader<'_>, node: &Node) -> Option<Vec<Condition>> {
    let Value::Map(entries) = &node.value else { return None };
    let before = reader.findings.len();
    let mut conditions = Vec::new();
    for (word, node) in entries {
        let at = pointer(&word.text).map_err(|(message, help)| reader.refuse(&word.span, message, help)).ok();
        let nodes = match &node.value {
            Value::List(list) => list.as_slice(),
            _ => std::slice::from_ref(node),
        };
        if nodes.is_empty() {
            reader.refuse(&node.span, "a list without a constant matches nothing", "write a constant, or several");
        }
        let mut any_of = Vec::new();
        for node in nodes {
            match constant(reader, node) {
                Ok(constant) => any_of.push(constant),
                Err((message, help)) => {
                    let span = if node.span.is_empty() { &word.span } else { &node.span };
                    reader.refuse(span, message, help);
                }
            }
        }
        conditions.extend(at.map(|at| (&word.span, Condition { at, any_of })));
    }
    for (span, below) in &conditions {
        let above = conditions.iter().find(|(_, above)| below.excludes(above));
        if let Some((_, above)) = above {
            let message = format!("this `when` never holds: a constant at {} has nothing at {}", above.at, below.at);
            reader.refuse(span, message, "remove one of the two, or write two rules");
        }
    }
    let conditions = conditions.into_iter().map(|(_, condition)| condition).collect();
    (reader.findings.len() == before).then_some(conditions)
}

fn constant(reader: &Reader<'_>, node: &Node) -> Checked<Constant> {
    let source = reader.source(node);
    match &node.value {
        Value::Null => Ok(Constant::Null),
        // YAML 1.1 reads `on` and `yes` as booleans, and a message may have either.
        Value::Bool(value) if source == value.to_string() => Ok(Constant::Bool(*value)),
        Value::Bool(value) => Err((
            format!("{} is a boolean in YAML, and may be meant as a text", quote(source)),
            format!("write `\"{source}\"` for the text, or `{value}` for the boolean"),
        )),
        Value::Whole(number) => Ok(Constant::Number((*number).into())),
        Value::Number => {
            let whole = source.parse::<i64>().ok().map(serde_json::Number::from);
            let number = whole.or_else(|| source.parse().ok().and_then(serde_json::Number::from_f64));
            let message = || (format!("{} is no number of JSON", quote(source)), "write a number like -1.5".to_owned());
            number.map(Constant::Number).ok_or_else(message)
        }
        Value::Text(text) => Ok(Constant::Text(text.clone())),
        Value::List(_) | Value::Map(_) => Err((
            format!("a condition compares with a constant, and this is {}", describe(node)),
            "write a text, a number, true, false or null, or a list of them".to_owned(),
        )),
    }
}

/// Reads where a reference comes from: a pointer, or `{ const: TEXT }`.
pub(super) fn reference(reader: &Reader<'_>, node: &Node) -> Checked<ReferenceFrom> {
    const HELP: &str = "write a JSON Pointer like `/employee/number`, or `{ const: all }`";
    match &node.value {
        Value::Text(text) => pointer(text).map(ReferenceFrom::Message),
        Value::Map(entries) => match entries.as_slice() {
            [(word, Node { value: Value::Text(text), .. })] if word.text == "const" => text
                .parse::<Reference>()
                .map(ReferenceFrom::Constant)
                .map_err(|error| (error.to_string(), "write a short text, like `{ const: all }`".to_owned())),
            [(word, node)] if word.text == "const" => Err((
                format!("a reference is a text, and {} is {}", quote(reader.source(node)), describe(node)),
                format!("write it in quotes: `{{ const: \"{}\" }}`", quote(reader.source(node)).trim_matches('`')),
            )),
            _ => Err(("a constant reference has the key `const` alone".to_owned(), HELP.to_owned())),
        },
        _ => Err((format!("`reference` takes a pointer, and this is {}", describe(node)), HELP.to_owned())),
    }
}

pub(super) fn zone(text: &str) -> Checked<jiff::tz::TimeZone> {
    jiff::tz::TimeZone::get(text).map_err(|_| {
        let known: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
        let help = match nearest(text, known.iter().map(String::as_str)) {
            Some(name) => format!("write `{name}`"),
            None => "write a name of the time zone database, like `Europe/Berlin`, or `UTC`".to_owned(),
        };
        (format!("there is no time zone {}", quote(text)), help)
    })
}

/// Reads the list of rules.
pub(super) fn rules(reader: &mut Reader<'_>, list: &[Node], at: &Range<usize>) -> Option<Rules> {
    if list.is_empty() {
        let help = "write at least one, like `events: [ { type: mail } ]`";
        reader.refuse(at, "a source without a rule makes no event", help);
        return None;
    }
    let rule = |node: &Node| {
        let section = reader.section(&RULE_LEVEL, node);
        reader.required(&RULE_LEVEL, &section, &node.span);
        section.over(&Section::of_table(&RULE_LEVEL))
    };
    Some(Rules(list.iter().map(rule).collect()))
}

/// Returns the section of each source, where a key that the file does not set has its default.
fn sections(top: &Section) -> impl Iterator<Item = (&Named, Section)> {
    let sources = top.get(&SOURCES).unwrap_or_default();
    sources.iter().map(|named| (named, named.section.clone().over(&Section::of_table(&SOURCE_LEVEL))))
}

/// Reports every conflict between the keys of the sources, and with other keys.
pub(super) fn check(reader: &mut Reader<'_>, top: &Section) {
    let types = top.get(&TYPES).unwrap_or_default().iter();
    let types: Vec<_> = types.map(|named| (named, named.section.clone())).collect();
    let mut queues: BTreeMap<String, &str> = BTreeMap::new();
    for (named, section) in sections(top) {
        if named.name.len() > LONGEST_NAME {
            let message = format!("the name of a source has at most {LONGEST_NAME} characters");
            reader.refuse(&named.span, message, "write a shorter name");
        }
        let word = format!("{}{}", names::SOURCE, named.name);
        if types.iter().any(|(named, _)| named.name == word) {
            let message =
                format!("there is a type {}, and its dead letters would be those of this source", quote(&word));
            reader.refuse(&named.span, message, "write another name for the source, or for the type");
        }
        intake(reader, top, named, &section);
        if let (Some(queue), Some((_, span))) = (section.get(&QUEUE), section.blame(&[QUEUE.name]))
            && let Some(other) = queues.insert(queue.to_owned(), &named.name)
        {
            let message = format!("{} is the queue of the source {} already", quote(queue), quote(other));
            reader.refuse(&span, message, "write all its rules into one source");
        }
        for rule in section.get(&EVENTS).map(|Rules(rules)| rules.as_slice()).unwrap_or_default() {
            known_type(reader, rule, &types);
        }
    }
}

/// A source has one queue, and a declared one keeps its order.
fn intake(reader: &mut Reader<'_>, top: &Section, named: &Named, section: &Section) {
    let declares = section.get(&DECLARE) == Some(&true);
    // A value that was refused has a finding of its own.
    let span = |key| section.blame(&[key]).map_or(named.span.clone(), |(_, span)| span);
    if declares && section.says(QUEUE.name) {
        let message = "a source takes messages from one queue, and here are `queue` and `declare`";
        reader.refuse(&span(QUEUE.name), message, "remove one of the two");
    } else if !declares && !section.says(QUEUE.name) && !section.is_refused(DECLARE.name) {
        let help = "write `queue: NAME` for a queue of somebody else, or `declare: on` for one of this topology";
        reader.refuse(&named.span, format!("the source {} has no queue", quote(&named.name)), help);
    }
    if declares && section.get(&ORDERED) == Some(&false) {
        let message = "a declared queue has a single active consumer, so its order is kept";
        reader.refuse(&span(ORDERED.name), message, "remove `ordered`");
    }
    let own = top.get(&NAME).map(|name| format!("{name}."));
    if let (Some(queue), Some(own)) = (section.get(&QUEUE), own)
        && queue.starts_with(&own)
    {
        let message = format!("{} is a queue of this topology", quote(queue));
        reader.refuse(&span(QUEUE.name), message, "write `declare: on`, or the queue of somebody else");
    }
}

/// Returns the sources, or `None` if a key that they need was refused.
pub(super) fn specs(top: &Section) -> Option<BTreeMap<Word, SourceSpec>> {
    sections(top).map(|(named, section)| Some((named.name.parse().ok()?, spec(&section)?))).collect()
}

fn spec(section: &Section) -> Option<SourceSpec> {
    let declares = section.get(&DECLARE).copied()?;
    let intake = if declares { Intake::Declared } else { Intake::Queue(section.get(&QUEUE)?.to_owned()) };
    let Rules(rules) = section.get(&EVENTS)?;
    Some(SourceSpec {
        intake,
        ordered: section.get(&ORDERED).copied().unwrap_or(declares),
        paused: section.get(&PAUSED).map(str::to_owned),
        prefetch: u16::try_from(section.get(&PREFETCH).copied()?).ok()?,
        timezone: section.get(&TIMEZONE).cloned()?,
        id: section.get(&ID).cloned(),
        unmatched: section.get(&UNMATCHED).copied()?,
        rules: rules.iter().map(rule).collect::<Option<_>>()?,
    })
}

fn rule(section: &Section) -> Option<Rule> {
    Some(Rule {
        when: section.get(&WHEN).map(<[Condition]>::to_vec).unwrap_or_default(),
        event_type: section.get(&RULE_TYPE)?.parse().ok()?,
        reference: section.get(&REFERENCE).cloned(),
        nbf: section.get(&NBF).cloned(),
        payload: section.get(&PAYLOAD).cloned()?,
    })
}
