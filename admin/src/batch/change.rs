//! The lines of a batch that change waiting events: `{"cancel": …}` and `{"reschedule": …}`.

use std::{collections::BTreeMap, time::Duration};

use hatchery::{EventSelector, Events, EventsError, MoveOutcome, internals::words::may_be_url};
use jiff::Timestamp;
use serde::Deserialize;

use super::error::{LineError, misplaced};
use crate::{
    event_view::{result_of_cancel, result_of_move},
    notation::{Span, Time},
};

/// A change of waiting events.
#[derive(Debug)]
pub enum Change {
    /// They do not run.
    Cancel(Named),
    /// They get another time.
    Reschedule(Named, To),
}

/// The events of a reference, or one event.
#[derive(Debug)]
pub struct Named {
    which: EventSelector,
    /// Whether an event that Redis does not know is remembered by its id.
    by_id: bool,
}

/// A new time.
#[derive(Clone, Copy, Debug)]
pub enum To {
    /// This time.
    At(Timestamp),
    /// This long after the call.
    After(Duration),
}

/// How many events have become what, and the ids of those that were changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The number of events by result, in the words of `topology events cancel` and `reschedule`.
    pub results: BTreeMap<&'static str, u64>,
    /// The ids of the events that were cancelled or rescheduled, as far as the register knows them.
    pub ids: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Cancel(Fields),
    Reschedule(Fields),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    r#type: String,
    reference: Option<String>,
    id: Option<String>,
    at: Option<Time>,
    #[serde(default)]
    immediate: bool,
    to: Option<Time>,
    delay: Option<Span>,
}

/// Tells whether a line changes events.
pub(super) fn is_change(text: &str) -> bool {
    let key = text.trim_start().strip_prefix('{').map(str::trim_start);
    key.is_some_and(|key| key.starts_with("\"cancel\"") || key.starts_with("\"reschedule\""))
}

/// Reads the line of a change.
pub(super) fn read(text: &str) -> Result<Change, LineError> {
    Ok(match serde_json::from_str(text)? {
        Line::Cancel(Fields { to: Some(_), .. }) => return Err(LineError::NotHere("to")),
        Line::Cancel(Fields { delay: Some(_), .. }) => return Err(LineError::NotHere("delay")),
        Line::Cancel(fields) => Change::Cancel(named(fields)?),
        Line::Reschedule(mut fields) => {
            let to = match (fields.to.take(), fields.delay.take()) {
                (Some(_), Some(_)) => return Err(LineError::Both("to", "delay")),
                (None, None) => return Err(LineError::Neither("to", "delay")),
                (Some(Time(at)), None) => To::At(at),
                (None, Some(Span(delay))) => To::After(delay),
            };
            Change::Reschedule(named(fields)?, to)
        }
    })
}

fn named(fields: Fields) -> Result<Named, LineError> {
    let Fields { r#type, reference, id, at, immediate, .. } = fields;
    if may_be_url(&r#type) {
        return Err(LineError::Misplaced("type"));
    }
    misplaced([("reference", &reference), ("id", &id)])?;
    let (by_id, at) = (id.is_some(), at.map(|Time(at)| at));
    let which = match (reference, id) {
        (None, None) => return Err(LineError::Neither("reference", "id")),
        (_, Some(_)) if at.is_some() => return Err(LineError::Both("id", "at")),
        (_, Some(_)) if immediate => return Err(LineError::Both("id", "immediate")),
        (Some(reference), None) => EventSelector::reference(r#type, reference),
        (Some(reference), Some(id)) => EventSelector::id(r#type, id).of(reference),
        (None, Some(id)) => EventSelector::id(r#type, id),
    };
    let which = match (at, immediate) {
        (Some(_), true) => return Err(LineError::Both("at", "immediate")),
        (Some(at), false) => which.at(at),
        (None, true) => which.immediate(),
        (None, false) => which,
    };
    Ok(Named { which, by_id })
}

impl Change {
    /// Makes the change. Fails if events wait and none could be changed.
    pub async fn make(self, events: &Events) -> Result<Changed, String> {
        match self {
            Self::Cancel(named) => cancel(events, &named).await.map_err(|error| error.to_string()),
            Self::Reschedule(named, to) => {
                let at = match to {
                    To::At(at) => Some(at),
                    To::After(delay) => Timestamp::now().checked_add(delay).ok(),
                };
                reschedule(events, &named, at.ok_or("no event can have that time")?).await
            }
        }
    }
}

/// Cancels, and counts in the words of `topology events cancel -o json`.
async fn cancel(events: &Events, named: &Named) -> Result<Changed, EventsError> {
    let mut changed = Changed::default();
    for slot in events.cancel(&named.which).await? {
        if slot.waiting || slot.running {
            changed.add(result_of_cancel(&slot));
            changed.ids.extend(slot.id.filter(|_| slot.waiting));
        }
    }
    if changed.results.is_empty() && named.by_id {
        changed.add("remembered");
    }
    Ok(changed)
}

/// Reschedules, and counts in the words of `topology events reschedule -o json`.
async fn reschedule(events: &Events, named: &Named, at: Timestamp) -> Result<Changed, String> {
    let (mut changed, mut why) = (Changed::default(), "no such event waits".to_owned());
    for (event, moved) in events.reschedule(&named.which, at).await.map_err(|error| error.to_string())? {
        changed.add(result_of_move(&moved));
        match moved {
            MoveOutcome::Done => changed.ids.extend(event.id),
            MoveOutcome::Running => "the event runs".clone_into(&mut why),
            MoveOutcome::NotKept(not_kept) => why = not_kept.to_string(),
            _ => {}
        }
    }
    if changed.results.contains_key("done") { Ok(changed) } else { Err(why) }
}

impl Changed {
    fn add(&mut self, result: &'static str) {
        *self.results.entry(result).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(r#"{"cancel": {"type": "mail", "reference": "50"}}"#, EventSelector::reference("mail", "50"), false)]
    #[case(r#" { "cancel": {"type": "mail", "id": "a", "reference": "50"}}"#, EventSelector::id("mail", "a").of("50"), true)]
    #[case(r#"{"cancel": {"type": "mail", "reference": "50", "immediate": true}}"#, EventSelector::reference("mail", "50").immediate(), false)]
    #[case(
        r#"{"reschedule": {"type": "mail", "reference": "50", "at": "1970-01-01T00:00:00Z", "delay": "2h"}}"#,
        EventSelector::reference("mail", "50").at(Timestamp::UNIX_EPOCH),
        false
    )]
    #[case(
        r#"{"reschedule": {"type": "mail", "id": "a", "to": "2026-06-01T09:00:00Z"}}"#,
        EventSelector::id("mail", "a"),
        true
    )]
    fn a_change_names_its_events(#[case] line: &str, #[case] expected: EventSelector, #[case] by_id: bool) {
        assert!(is_change(line));
        let (Change::Cancel(named) | Change::Reschedule(named, _)) = read(line).expect("valid");
        assert_eq!((named.which, named.by_id), (expected, by_id));
    }

    #[rstest]
    #[case(r#"{"cancel": {"type": "mail"}}"#, "one of `reference` and `id`")]
    #[case(r#"{"cancel": {"type": "mail", "id": "a", "delay": "1h"}}"#, "`delay` does not belong here")]
    #[case(r#"{"cancel": {"type": "mail", "id": "a", "immediate": true}}"#, "exclude each other")]
    #[case(r#"{"cancel": {"reference": "50"}}"#, "missing field `type`")]
    #[case(r#"{"cancel": {"type": "mail", "reference": "50"}, "type": "mail"}"#, "not an event")]
    #[case(r#"{"reschedule": {"type": "mail", "id": "a"}}"#, "one of `to` and `delay`")]
    #[case(
        r#"{"reschedule": {"type": "mail", "id": "a", "delay": "1h", "to": "2026-06-01T09:00:00Z"}}"#,
        "exclude each other"
    )]
    fn the_error_of_a_bad_change_names_its_mistake(#[case] line: &str, #[case] why: &str) {
        let error = read(line).expect_err("invalid").to_string();
        assert!(error.contains(why), "{error}");
    }

    #[rstest]
    #[case(r#"{"cancel": {"type": "u:s3cret@h", "id": "a"}}"#)]
    #[case(r#"{"cancel": {"type": "mail", "id": "amqp://u:s3cret@h"}}"#)]
    #[case(r#"{"cancel": {"type": "mail", "reference": "amqp://u:s3cret@h"}}"#)]
    #[case(r#"{"reschedule": {"type": "mail", "id": "a", "to": "u:s3cret@h"}}"#)]
    fn a_change_with_a_password_in_the_wrong_place_is_refused_and_not_repeated(#[case] line: &str) {
        let error = read(line).expect_err("invalid").to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
}
