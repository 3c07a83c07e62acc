//! The selection of dead letters: by type, reference, id, time and reason.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{
    letter::Letter,
    saved::{digest, line},
};

/// Selects letters. A letter must match all conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The types; empty means all.
    pub types: Vec<String>,
    /// The event's reference.
    pub reference: Option<String>,
    /// The event's id.
    pub id: Option<String>,
    /// A text in the reason or the failure, in any case.
    pub reason: Option<String>,
    /// Letters that failed at this time or later.
    pub since: Option<Timestamp>,
    /// Letters that failed before this time.
    pub until: Option<Timestamp>,
    /// Only letters whose event has run, was cancelled or was replaced meanwhile.
    pub obsolete: bool,
    /// Only letters whose [`line`](super::line()) has one of these [digests](super::digest()).
    pub digests: Option<BTreeSet<String>>,
}

impl Selection {
    /// Tells whether a letter matches, except for `obsolete`, which the register decides.
    #[must_use]
    pub fn matches(&self, letter: &Letter) -> bool {
        let is = |wanted: &Option<String>, value: Option<&str>| wanted.is_none() || wanted.as_deref() == value;
        let failed = |holds: &dyn Fn(Timestamp) -> bool| letter.failed_at().is_some_and(holds);
        (self.types.is_empty() || self.types.iter().any(|name| *name == letter.event_type()))
            && is(&self.reference, letter.reference())
            && is(&self.id, letter.id())
            && self.since.is_none_or(|since| failed(&|at| at >= since))
            && self.until.is_none_or(|until| failed(&|at| at < until))
            && self.reason.as_deref().is_none_or(|text| has_text(letter, text))
            && self
                .digests
                .as_ref()
                .is_none_or(|digests| line(letter).is_ok_and(|line| digests.contains(&digest(&line))))
    }
}

fn has_text(letter: &Letter, text: &str) -> bool {
    let text = text.to_lowercase();
    let has = |told: &str| told.to_lowercase().contains(&text);
    has(&letter.cause()) || letter.reason().is_some_and(has)
}

#[cfg(test)]
mod tests {
    use hatchery::internals::wire::Value;
    use rstest::rstest;

    use super::*;
    use crate::dead_letters::letter::tests::letter;

    #[rstest]
    #[case(Selection::default(), true)]
    #[case(Selection { types: vec!["import".into(), "mail".into()], ..Selection::default() }, true)]
    #[case(Selection { types: vec!["import".into()], ..Selection::default() }, false)]
    #[case(Selection { reference: Some("1234".into()), ..Selection::default() }, true)]
    #[case(Selection { reference: Some("123".into()), ..Selection::default() }, false)]
    #[case(Selection { id: Some("a".into()), reason: Some("REFUSED".into()), ..Selection::default() }, true)]
    #[case(Selection { id: Some("b".into()), reason: Some("REFUSED".into()), ..Selection::default() }, false)]
    #[case(Selection { reason: Some("given up".into()), ..Selection::default() }, true)]
    #[case(Selection { reason: Some("timeout".into()), ..Selection::default() }, false)]
    #[case(Selection { since: "2026-06-01T09:00:00Z".parse().ok(), ..Selection::default() }, true)]
    #[case(Selection { digests: Some(BTreeSet::from(["0".repeat(64)])), ..Selection::default() }, false)]
    #[case(Selection { until: "2026-06-01T09:00:00Z".parse().ok(), ..Selection::default() }, false)]
    fn a_letter_matches_all_conditions(#[case] selection: Selection, #[case] matches: bool) {
        let headers = [
            ("reference", Value::text("1234")),
            ("reason", Value::text("given up: attempts=4")),
            ("last_failure", Value::text("2026-06-01T09:00:00.000Z Connection refused")),
        ];
        assert_eq!(selection.matches(&letter("mail", "a", &headers)), matches);
    }
}
