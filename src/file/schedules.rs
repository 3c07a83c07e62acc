//! Reads the key `schedules`: its values, the checks of its keys against each other, and the definitions that it makes.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use serde_json::{Map, Number, Value as Json};

use std::ops::Range;

use super::{
    error::quote,
    keys::{
        CATCH_UP, CRON, EVERY, MODE, ON_SCHEDULE_FAILURE, OVERLAP, PAUSED, REFERENCE_TEXT, REGISTER, RULE_TYPE,
        RegisterWord, SCHEDULES, SPREAD, TEMPLATE, TIMEZONE,
    },
    levels::SCHEDULE_LEVEL,
    section::{Checked, Named, Reader, Section},
    yaml::{Node, Value},
};
use crate::domain::{
    schedule::{
        calendar::{Calendar, CalendarError},
        definition::Definition,
        rule::{Mode, Rule},
    },
    words::{Reference, Word, nearest},
};

/// Reads the payload of a schedule's events: any value, as JSON.
pub(super) fn payload(reader: &Reader<'_>, node: &Node) -> Checked<Json> {
    Ok(match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Whole(number) => Json::Number((*number).into()),
        Value::Number => Json::Number(number(reader.source(node))?),
        Value::Text(text) => Json::String(text.clone()),
        Value::List(list) => Json::Array(list.iter().map(|node| payload(reader, node)).collect::<Checked<_>>()?),
        Value::Map(entries) => {
            let entry = |(word, node): &(super::yaml::Word, Node)| Ok((word.text.clone(), payload(reader, node)?));
            Json::Object(entries.iter().map(entry).collect::<Checked<Map<_, _>>>()?)
        }
    })
}

fn number(source: &str) -> Checked<Number> {
    let whole = source.parse::<i64>().ok().map(Number::from);
    whole.or_else(|| Number::from_f64(source.parse().ok()?)).ok_or_else(|| {
        (format!("{} is no number of JSON", quote(source)), "write a number like -1.5, or a text in quotes".to_owned())
    })
}

pub(super) fn reference(text: &str) -> Checked<String> {
    let checked = text.parse::<Reference>().map(|_| text.to_owned());
    checked.map_err(|error| (error.to_string(), "write a short text, like `reference: all`".to_owned()))
}

/// Returns the section of each schedule, where a key that the file does not set has its default.
fn sections(top: &Section) -> impl Iterator<Item = (&Named, Section)> {
    let schedules = top.get(&SCHEDULES).unwrap_or_default();
    schedules.iter().map(|named| (named, named.section.clone().over(&Section::of_table(&SCHEDULE_LEVEL))))
}

/// Reports every conflict between the keys of the schedules, and with their types. `types` are the types with their defaults.
pub(super) fn check(reader: &mut Reader<'_>, top: &Section, types: &[(&Named, Section)]) {
    for (named, section) in sections(top) {
        event_type(reader, &section, types);
        calendar(reader, named, &section);
        mode(reader, &section);
    }
}

fn event_type(reader: &mut Reader<'_>, section: &Section, types: &[(&Named, Section)]) -> Option<()> {
    let (name, span, found) = known_type(reader, section, types)?;
    if found.get(&REGISTER) == Some(&RegisterWord::Off) {
        let message = format!("a schedule needs the register, and the type {} says `register: off`", quote(name));
        reader.refuse(&span, message, "switch the register of the type on, or write another type");
    }
    Some(())
}

/// Returns the type that the key `type` of this section names, with its place and its settings. Reports a type that is not there.
pub(super) fn known_type<'s>(
    reader: &mut Reader<'_>,
    section: &'s Section,
    types: &'s [(&Named, Section)],
) -> Option<(&'s str, Range<usize>, &'s Section)> {
    let (name, (_, span)) = (section.get(&RULE_TYPE)?, section.blame(&[RULE_TYPE.name])?);
    if let Some((_, found)) = types.iter().find(|(named, _)| named.name == name) {
        return Some((name, span, found));
    }
    let names: Vec<&str> = types.iter().map(|(named, _)| named.name.as_str()).collect();
    let help = match nearest(name, names.iter().copied()) {
        Some(name) => format!("write `{name}`"),
        None => format!("write one of `{}`, or add the type", names.join("`, `")),
    };
    reader.refuse(&span, format!("there is no type {}", quote(name)), help);
    None
}

/// A schedule has either a cron expression or an interval.
fn calendar(reader: &mut Reader<'_>, named: &Named, section: &Section) {
    let span = |key| section.blame(&[key]).map_or(named.span.clone(), |(_, span)| span);
    match (section.says(CRON.name), section.says(EVERY.name)) {
        (true, true) => {
            let message = "a schedule has one calendar, and here are `cron` and `every`";
            reader.refuse(&span(EVERY.name), message, "remove one of the two");
        }
        (false, false) => {
            let message = format!("the schedule {} does not say when it runs", quote(&named.name));
            reader.refuse(&named.span, message, "write `cron: \"0 3 * * *\"` or `every: 5m`");
        }
        (false, true) if section.is_own(TIMEZONE.name) => {
            let message = "a time zone has no influence on an interval";
            reader.refuse(&span(TIMEZONE.name), message, "remove `timezone`, or write `cron` instead of `every`");
        }
        _ => {}
    }
    if let Some(Err(error)) = built(section) {
        let key = if section.says(CRON.name) { CRON.name } else { EVERY.name };
        reader.refuse(&span(key), error.to_string(), "docs/schedules.md lists the fields of an expression");
    }
}

/// Some keys make sense with `mode: fixed` alone: with `mode: sequential` no event is due before the run before it has ended.
fn mode(reader: &mut Reader<'_>, section: &Section) {
    if mode_of(section) != Some(Mode::Sequential) {
        return;
    }
    for key in [OVERLAP.name, CATCH_UP.name] {
        if let (true, Some((_, span))) = (section.is_own(key), section.blame(&[key])) {
            let message = format!(
                "`{key}` does nothing with `mode: sequential`, where a run is counted from the end of the one before"
            );
            reader.refuse(&span, message, format!("remove `{key}`, or write `mode: fixed`"));
        }
    }
}

fn mode_of(section: &Section) -> Option<Mode> {
    let of_calendar = if section.says(CRON.name) { Mode::Fixed } else { Mode::Sequential };
    if section.says(MODE.name) { section.get(&MODE).copied() } else { Some(of_calendar) }
}

/// Returns the calendar, and `None` if a key that it needs is missing or was refused.
fn built(section: &Section) -> Option<Result<Calendar, CalendarError>> {
    if let Some(expression) = section.get(&CRON) {
        let zone = section.get(&TIMEZONE)?;
        return Some(Calendar::cron(expression, zone.iana_name().unwrap_or("UTC")));
    }
    Some(Calendar::every(section.get(&EVERY).copied()?))
}

/// Returns the schedules, or `None` if a key that they need was refused.
pub(super) fn definitions(top: &Section) -> Option<BTreeMap<Word, Definition>> {
    let named = |(named, section): (&Named, Section)| {
        let name: Word = named.name.parse().ok()?;
        Some((name.clone(), definition(name, &section)?))
    };
    sections(top).map(named).collect()
}

fn definition(name: Word, section: &Section) -> Option<Definition> {
    let reference = match section.get(&REFERENCE_TEXT) {
        Some(text) => Some(text.parse().ok()?),
        None => None,
    };
    Some(Definition {
        name,
        event_type: section.get(&RULE_TYPE)?.parse().ok()?,
        reference,
        payload: Bytes::from(section.get(&TEMPLATE).map_or_else(|| "{}".to_owned(), Json::to_string)),
        rule: Rule {
            calendar: built(section)?.ok()?,
            mode: mode_of(section)?,
            jitter: section.get(&SPREAD).copied().unwrap_or(Duration::ZERO),
            overlap: section.get(&OVERLAP).copied()?,
            catch_up: section.get(&CATCH_UP).copied()?,
            on_failure: section.get(&ON_SCHEDULE_FAILURE).copied()?,
        },
        paused: section.get(&PAUSED).map(str::to_owned),
    })
}
