//! Letters grouped by the reason of their last failure.

use std::collections::{BTreeMap, BTreeSet};

use hatchery::internals::time::millis_text;
use jiff::Timestamp;

use super::{letter::Letter, standing::Standing, view::GroupView};

/// The letters of one reason.
#[derive(Debug)]
struct Group {
    /// The reason of the first letter of the group.
    reason: String,
    count: u64,
    obsolete: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    types: BTreeSet<String>,
    example: Option<String>,
}

/// Collects letters into groups. Reasons that differ only in long numbers and ids are one.
#[derive(Debug, Default)]
pub struct Groups(BTreeMap<String, Group>);

impl Groups {
    /// Adds a letter.
    pub fn add(&mut self, letter: &Letter, standing: &Standing) {
        let cause = letter.cause();
        let group = self.0.entry(pattern(&cause)).or_insert_with(|| Group {
            reason: cause,
            count: 0,
            obsolete: 0,
            first: None,
            last: None,
            types: BTreeSet::new(),
            example: None,
        });
        group.count += 1;
        group.obsolete += u64::from(standing.is_obsolete());
        let (first, last) = (letter.first_failed_at(), letter.failed_at());
        group.first = [group.first, first].into_iter().flatten().min();
        group.last = [group.last, last].into_iter().flatten().max();
        if !group.types.contains(&*letter.event_type()) {
            group.types.insert(letter.event_type().into_owned());
        }
        if group.example.is_none() {
            group.example = letter.id().map(str::to_owned);
        }
    }

    /// Adds a letter, unless it would be of one reason more than these.
    pub fn add_one_of(&mut self, letter: &Letter, standing: &Standing, most: usize) {
        if self.0.len() < most || self.0.contains_key(&pattern(&letter.cause())) {
            self.add(letter, standing);
        }
    }

    /// Returns the groups, the largest first.
    #[must_use]
    pub fn largest_first(self) -> Vec<GroupView> {
        let mut groups: Vec<Group> = self.0.into_values().collect();
        groups.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.reason.cmp(&other.reason)));
        let view = |Group { reason, count, obsolete, first, last, types, example }| GroupView {
            failure: reason,
            count,
            obsolete,
            first_failed_at: first.map(millis_text),
            failed_at: last.map(millis_text),
            types,
            example,
        };
        groups.into_iter().map(view).collect()
    }
}

/// The length from which a word with digits names one thing, and does not tell the kind of a failure: 404 is a kind, and
/// an employee's number often has four digits.
const NAME: usize = 4;

/// The length of a UUID.
const UUID: usize = 36;

/// Replaces the words of a reason that name one thing: long numbers, ids, times.
fn pattern(reason: &str) -> String {
    let mut pattern = String::with_capacity(reason.len());
    let mut rest = reason;
    while let Some(first) = rest.chars().next() {
        if let Some(id) = rest.get(..UUID).filter(|id| uuid::Uuid::try_parse(id).is_ok()) {
            pattern.push('#');
            rest = &rest[id.len()..];
            continue;
        }
        let end = rest.find(|c: char| c.is_alphanumeric() != first.is_alphanumeric()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let names = word.len() >= NAME && word.contains(|c: char| c.is_ascii_digit());
        pattern.push_str(if names { "#" } else { word });
        rest = after;
    }
    pattern
}

#[cfg(test)]
mod tests {
    use hatchery::internals::wire::Value;
    use rstest::rstest;

    use super::*;
    use crate::dead_letters::letter::tests::letter;

    #[rstest]
    #[case("no employee 104711", "no employee 1234567")]
    #[case("no employee 1000 in tenant a7", "no employee 1300 in tenant a7")]
    #[case("ID 0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11 is gone", "ID 0197c5e3-8a56-7c1f-9a3e-6f2f6d8f1b12 is gone")]
    fn reasons_that_differ_only_in_ids_and_long_numbers_are_one(#[case] one: &str, #[case] other: &str) {
        assert_eq!(pattern(one), pattern(other));
    }

    #[rstest]
    #[case::short_numbers("HTTP 404 from /a", "HTTP 500 from /a")]
    #[case::words("KeyError: name", "KeyError: salary")]
    fn reasons_that_differ_in_words_or_short_numbers_are_two(#[case] one: &str, #[case] other: &str) {
        assert_ne!(pattern(one), pattern(other));
    }

    #[test]
    fn the_largest_group_comes_first_and_knows_its_times_and_types() {
        let mut groups = Groups::default();
        let failed = |event_type: &str, id: &str, hour: u8, cause: &str| {
            let failure = Value::text(&format!("2026-06-01T{hour:02}:00:00.000Z {cause}"));
            letter(event_type, id, &[("last_failure", failure)])
        };
        groups.add(&failed("mail", "a", 9, "timeout"), &Standing::Open);
        groups.add(&failed("import", "b", 11, "no employee 104711"), &Standing::Open);
        groups.add(&failed("mail", "c", 10, "no employee 104712"), &Standing::Obsolete("it has been handled".into()));
        let groups = groups.largest_first();
        assert_eq!(groups.iter().map(|group| group.count).collect::<Vec<_>>(), [2, 1]);
        let largest = &groups[0];
        assert_eq!((largest.failure.as_str(), largest.obsolete), ("no employee 104711", 1));
        assert_eq!(largest.types.iter().map(String::as_str).collect::<Vec<_>>(), ["import", "mail"]);
        assert_eq!(
            (largest.first_failed_at.as_deref(), largest.failed_at.as_deref()),
            (Some("2026-06-01T10:00:00.000Z"), Some("2026-06-01T11:00:00.000Z"))
        );
        assert_eq!(largest.example.as_deref(), Some("b"));
    }
}
