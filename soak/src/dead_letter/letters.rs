//! Writes letters, and accounts for them by their numbers.

use std::collections::BTreeSet;

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

/// The numbers of letters in the order in which they were found.
pub(super) struct Numbers(Vec<u32>);

impl Numbers {
    pub(super) fn of(ids: &[String]) -> anyhow::Result<Self> {
        Ok(Self(ids.iter().map(|id| id.parse()).collect::<Result<_, _>>()?))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Returns how many of the numbers below `all` are missing.
    pub(super) fn missing(&self, all: u32) -> u64 {
        let found: BTreeSet<u32> = self.0.iter().copied().filter(|number| *number < all).collect();
        u64::from(all) - found.len() as u64
    }

    /// Returns how many numbers are there more than once.
    pub(super) fn twice(&self) -> u64 {
        (self.0.len() - self.0.iter().collect::<BTreeSet<_>>().len()) as u64
    }

    /// Returns how many numbers do not follow the one before them.
    pub(super) fn gaps(&self) -> u64 {
        self.0.windows(2).filter(|pair| pair[1] != pair[0] + 1).count() as u64
    }

    /// Returns how many numbers are in both.
    pub(super) fn common(&self, other: &Self) -> u64 {
        let others: BTreeSet<u32> = other.0.iter().copied().collect();
        self.0.iter().filter(|number| others.contains(number)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_what_is_missing_twice_and_out_of_order() {
        let numbers = Numbers(vec![0, 1, 3, 4, 4]);
        assert_eq!((numbers.count(), numbers.missing(5), numbers.twice(), numbers.gaps()), (5, 1, 1, 2));
        assert_eq!(numbers.common(&Numbers(vec![1, 2])), 1);
    }
}
