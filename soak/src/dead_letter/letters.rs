//! Writes letters, and reads their numbers.

use anyhow::Context as _;
use lapin::types::{AMQPValue, FieldTable};

use crate::harness::{Message, PAYLOAD};

/// Returns a letter as a worker writes it, with its number as the id. A letter of a number that was replayed needs a higher
/// generation, or it is obsolete.
pub(super) fn letter(event_type: &str, number: u32, generation: i64) -> Message {
    let text = |text: &str| AMQPValue::LongString(text.into());
    let failure = "2026-06-01T09:00:00.000Z connection refused";
    let mut headers = FieldTable::default();
    headers.insert("reference".into(), text(&number.to_string()));
    headers.insert("attempts".into(), AMQPValue::LongLongInt(4));
    headers.insert("generation".into(), AMQPValue::LongLongInt(generation));
    headers.insert("first_failure".into(), text(failure));
    headers.insert("last_failure".into(), text(failure));
    headers.insert("reason".into(), text(&format!("given up: attempt=4 failed_at={failure}")));
    Message::new(&format!("{event_type}.dead-letter"), number, PAYLOAD.to_vec()).of_type(event_type, headers)
}

/// Returns the ids in a list of letters.
pub(super) fn ids(list: &str) -> anyhow::Result<Vec<String>> {
    let id = |line: &str| {
        let letter: serde_json::Value = serde_json::from_str(line)?;
        Ok(letter["id"].as_str().context("a letter without an id")?.to_owned())
    };
    list.lines().map(id).collect()
}

/// Returns the numbers of letters, in the order in which they were found.
pub(super) fn numbers(ids: &[String]) -> anyhow::Result<Vec<u32>> {
    Ok(ids.iter().map(|id| id.parse()).collect::<Result<_, _>>()?)
}

/// Returns how many numbers do not follow the one before them.
pub(super) fn gaps(numbers: &[u32]) -> usize {
    numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_does_not_follow_the_one_before_it_is_a_gap() {
        assert_eq!(gaps(&[0, 1, 3, 4, 4]), 2);
    }
}
