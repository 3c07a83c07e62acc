//! Parses numbers, sizes and durations, and checks their bounds.

use std::time::Duration;

use super::{
    error::quote,
    section::{Checked, Item, Reader, Timer},
    table::Key,
    yaml::{Node, Value, describe},
};
pub(super) use crate::domain::ttl::say;
use crate::domain::{
    breaker::Errors,
    ttl::{self, TtlError},
};

/// Checks that a whole number is from `least` to `most`.
pub(super) fn whole(key: &Key, least: u64, most: u64, number: u64) -> Checked<Item> {
    if (least..=most).contains(&number) {
        return Ok(Item::Whole(number));
    }
    let bound = if number < least { format!("at least {least}") } else { format!("at most {most}") };
    let help = format!("write a number from {least} to {most}");
    Err((format!("`{}` is {number}; it is {bound}", key.name), help))
}

/// Returns the number of bytes in a text like `64KiB`.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let unit = match unit.trim_start() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Checks that a number of bytes is from 1 to `most`.
pub(super) fn bytes(key: &Key, most: u64, found: Option<u64>) -> Checked<Item> {
    let help = format!("write a number of bytes up to {most}, or one like 64KiB or {}MiB", most >> 20);
    match found {
        Some(number) if (1..=most).contains(&number) => Ok(Item::Whole(number)),
        Some(0) => Err((format!("`{}` is 0; nothing could be published", key.name), help)),
        Some(_) => Err((
            format!("`{}` is above {}MiB, the largest message that RabbitMQ takes by default", key.name, most >> 20),
            help,
        )),
        None => Err((format!("`{}` is not a number of bytes", key.name), help)),
    }
}

/// Checks a number of bytes from 1 to `most`, for a key that is switched off by the word `off` and not by 0.
pub(super) fn size(key: &Key, most: u64, found: Option<u64>) -> Checked<Item> {
    let help = format!("write `off`, or a number of bytes up to {most}, or one like 4KiB or {}KiB", most >> 10);
    match found {
        Some(number) if (1..=most).contains(&number) => Ok(Item::Whole(number)),
        Some(0) => Err((format!("`{}` is 0", key.name), help)),
        Some(_) => Err((format!("`{}` is above {}KiB; Redis holds it in memory", key.name, most >> 10), help)),
        None => Err((format!("`{}` is not a number of bytes", key.name), help)),
    }
}

/// Checks that a number of bytes on disk is from `least` to `most`.
pub(super) fn disk(key: &Key, least: u64, most: u64, found: Option<u64>) -> Checked<Item> {
    let (least_text, most_text) = (bytes_text(least), bytes_text(most));
    let help = format!("write a number of bytes from {least} to {most}, or one like {least_text} or 1GiB");
    match found {
        Some(number) if (least..=most).contains(&number) => Ok(Item::Whole(number)),
        Some(number) if number < least => Err((format!("`{}` is below {least_text}", key.name), help)),
        Some(_) => Err((format!("`{}` is above {most_text}", key.name), help)),
        None => Err((format!("`{}` is not a number of bytes", key.name), help)),
    }
}

/// Returns a number of bytes in the largest unit that divides it.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(bits, _)| bytes != 0 && bytes.trailing_zeros() >= *bits);
    unit.map_or_else(|| format!("{bytes}B"), |(bits, unit)| format!("{}{unit}", bytes >> bits))
}

/// The lower and the upper bound of a duration.
type Bounds = (Duration, Duration);

/// Parses a duration that has a unit and is in whole milliseconds.
pub(super) fn duration(reader: &Reader<'_>, key: &str, (least, most): Bounds, node: &Node) -> Checked<Duration> {
    let shown = quote(reader.source(node));
    let parsed = match &node.value {
        Value::Text(text) if !bare(text) => ttl::parse_duration(text),
        Value::Text(_) | Value::Whole(_) | Value::Number => {
            let number = shown.trim_matches(['`', '"', '\'']);
            return Err((
                format!("{shown} has no unit"),
                format!("write `{number}s`, or another unit: ms, s, m, h or d"),
            ));
        }
        _ => {
            let message = format!("`{key}` takes a duration, and this is {}", describe(node));
            return Err((message, "write one like 5s or 1h".to_owned()));
        }
    };
    let bound = match parsed {
        Err(TtlError::NotADuration(_)) => {
            let help = "write a number and a unit, like 250ms, 90s, 5m, 1h or 30d".to_owned();
            return Err((format!("{shown} is not a duration"), help));
        }
        Err(TtlError::Endless(_)) => format!("of at most {}", say(most)),
        Ok(found) if found > most => format!("of at most {}", say(most)),
        Ok(found) if found.subsec_nanos() % 1_000_000 != 0 => "in whole milliseconds".to_owned(),
        Ok(found) if found >= least => return Ok(found),
        _ => format!("of at least {}", say(least)),
    };
    Err((format!("{shown} is out of range for `{key}`"), format!("write a duration {bound}")))
}

/// Whether the text is a number without a unit.
fn bare(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Parses a fraction, written as `0.2` or `20%`, into thousandths.
pub(super) fn share(reader: &Reader<'_>, key: &str, node: &Node) -> Checked<Item> {
    let source = reader.source(node);
    let thousandths = match &node.value {
        Value::Whole(number) => u16::try_from(*number).ok().map(|number| f64::from(number) * 1_000.0),
        Value::Number => source.parse::<f64>().ok().map(|number| number * 1_000.0),
        Value::Text(text) => percent(text).map(|percent| percent * 10.0),
        _ => None,
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in the range")]
    match thousandths {
        Some(found) if (0.0..=1_000.0).contains(&found) => Ok(Item::Whole(found.round() as u64)),
        _ => {
            let message = format!("`{key}` takes a part from 0 to 1, and {} is none", quote(source));
            let help = match node.value {
                Value::Whole(number @ 2..=100) => format!("write `{key}: {number}%`"),
                _ => "write a part from 0 to 1, like 0.2 or 20%".to_owned(),
            };
            Err((message, help))
        }
    }
}

/// Parses the errors that open a breaker: a number from 1, or a part like `50%`. The runs by which a part is judged are another key.
pub(super) fn errors(reader: &Reader<'_>, key: &Key, most: u64, node: &Node) -> Checked<Item> {
    let found = match &node.value {
        Value::Whole(number) if (1..=most).contains(number) => Some(Errors::Count(*number)),
        Value::Text(_) => match share(reader, key.name, node) {
            Ok(Item::Whole(thousandths @ 1..)) => Some(Errors::Share { thousandths, minimum: 0 }),
            _ => None,
        },
        _ => None,
    };
    found.map(Item::Errors).ok_or_else(|| {
        let message = format!(
            "`{}` takes a number of errors or a part of the runs, and {} is none",
            key.name,
            quote(reader.source(node))
        );
        (message, format!("write a number from 1 to {most}, or a part like 50%"))
    })
}

/// Returns the number in a text like `12.5%`.
fn percent(text: &str) -> Option<f64> {
    let number = text.strip_suffix('%')?.trim_end_matches(' ');
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && !number.starts_with('.');
    number.parse().ok().filter(|_| plain)
}

/// Parses a list of TTLs.
pub(super) fn ttls(reader: &mut Reader<'_>, key: &Key, may_be_empty: bool, list: &[Node], node: &Node) -> Option<Item> {
    if list.is_empty() && !may_be_empty {
        reader.refuse(&node.span, format!("`{}` is empty", key.name), "write at least one delay, like [10s, 1m, 10m]");
        return None;
    }
    let bounds = (Duration::from_millis(1), ttl::LONGEST);
    let before = reader.findings.len();
    let mut timers: Vec<Timer> = Vec::new();
    for node in list {
        match duration(reader, key.name, bounds, node) {
            Ok(duration) => timers.push(Timer { duration, span: node.span.clone() }),
            Err((message, help)) => reader.refuse(&node.span, message, help),
        }
    }
    (reader.findings.len() == before).then_some(Item::Ttls(timers))
}
