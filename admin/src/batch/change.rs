//! The lines of a batch that change waiting events: `{"cancel": …}` and `{"reschedule": …}`.

use std::{borrow::Cow, collections::BTreeMap};

use hatchery::{
    Cancelled, EventInfo, EventSelector, Events, EventsError, MoveOutcome, PayloadNotKept, Topology,
    internals::{register::DedupSlot, words::may_be_url},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::{LineError, misplaced};
use crate::{
    event_view::{ChangedEvent, cancelled, result_of_cancel, result_of_move, view},
    notation::{Span, Time, Until},
};

/// A change of waiting events.
#[derive(Debug)]
pub enum Change {
    /// They do not run.
    Cancel(Named),
    /// They get another time.
    Reschedule(Named, Until),
    /// They run now. No line of a batch asks for it.
    RunNow(Named),
}

/// The kind of a change, before its events are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// [`Change::Cancel`].
    Cancel,
    /// [`Change::Reschedule`].
    Reschedule,
    /// [`Change::RunNow`].
    RunNow,
}

/// The events of a reference, or one event.
#[derive(Debug)]
pub struct Named {
    /// Which.
    pub which: EventSelector,
    /// Their type.
    pub event_type: String,
    /// The object that they are about.
    pub reference: Option<String>,
    /// The id of the one event. A cancel of an event that Redis does not know is remembered by it.
    pub id: Option<String>,
    /// Whether one slot of the reference is named, by its date or as that without one. A cancel may be remembered by it.
    pub is_slot: bool,
}

/// The events that were found, by the result of the change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedEvents {
    /// The number of events by result, in the words of `topology events cancel`, `reschedule` and `run-now`.
    pub results: BTreeMap<Cow<'static, str>, u64>,
    /// The ids of the events that were changed, as far as Redis knows them.
    pub ids: Vec<String>,
    /// The events that were found.
    pub events: Vec<ChangedEvent>,
}

/// Why no event was changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The selection is invalid, or the register or the broker does not answer.
    #[error(transparent)]
    Events(#[from] EventsError),
    /// The register knows no such event that waits.
    #[error("no such event waits")]
    NoneWaits,
    /// The event has started.
    #[error("the event runs")]
    Runs,
    /// The event would have to be published again.
    #[error("{0}")]
    NotKept(PayloadNotKept),
    /// The delay leads beyond the last possible time.
    #[error("no event can have that time")]
    NoTime,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Cancel(ChosenEvents),
    Reschedule(ChosenEvents),
}

/// The events of a change, by reference or id, and their new time.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChosenEvents {
    #[schemars(skip)]
    r#type: Option<String>,
    /// The object that the events are about.
    reference: Option<String>,
    /// The id of the one event.
    id: Option<String>,
    /// With a reference: only its events of this date, such as `2026-06-01T09:00:00Z`.
    at: Option<Time>,
    /// With a reference: only its events without a date.
    #[serde(default)]
    immediate: bool,
    /// Of a reschedule: the new time.
    to: Option<Time>,
    /// Of a reschedule: how long from now, such as `2h`.
    delay: Option<Span>,
}

/// Tells whether a line changes events.
pub(super) fn is_change(text: &str) -> bool {
    let key = text.trim_start().strip_prefix('{').map(str::trim_start);
    key.is_some_and(|key| key.starts_with("\"cancel\"") || key.starts_with("\"reschedule\""))
}

/// Reads the line of a change.
pub(super) fn read(text: &str) -> Result<Change, LineError> {
    match serde_json::from_str(text)? {
        Line::Cancel(events) => change(ChangeKind::Cancel, events),
        Line::Reschedule(events) => change(ChangeKind::Reschedule, events),
    }
}

fn change(kind: ChangeKind, mut events: ChosenEvents) -> Result<Change, LineError> {
    let to = match (events.to.take(), events.delay.take()) {
        (Some(_), _) if kind != ChangeKind::Reschedule => return Err(LineError::NotHere("to")),
        (_, Some(_)) if kind != ChangeKind::Reschedule => return Err(LineError::NotHere("delay")),
        (Some(_), Some(_)) => return Err(LineError::Both("to", "delay")),
        (Some(Time(at)), None) => Some(Until::At(at)),
        (None, Some(Span(delay))) => Some(Until::After(delay)),
        (None, None) => None,
    };
    let named = named(events)?;
    match (kind, to) {
        (ChangeKind::Reschedule, None) => Err(LineError::Neither("to", "delay")),
        (ChangeKind::Reschedule, Some(to)) => Ok(Change::Reschedule(named, to)),
        (ChangeKind::Cancel, _) => Ok(Change::Cancel(named)),
        (ChangeKind::RunNow, _) => Ok(Change::RunNow(named)),
    }
}

fn named(events: ChosenEvents) -> Result<Named, LineError> {
    let ChosenEvents { r#type, reference, id, at, immediate, .. } = events;
    let event_type = r#type.ok_or(LineError::Missing("type"))?;
    if may_be_url(&event_type) {
        return Err(LineError::Misplaced("type"));
    }
    misplaced([("reference", &reference), ("id", &id)])?;
    let at = at.map(|Time(at)| at);
    let which = match (&reference, &id) {
        (None, None) => return Err(LineError::Neither("reference", "id")),
        (_, Some(_)) if at.is_some() => return Err(LineError::Both("id", "at")),
        (_, Some(_)) if immediate => return Err(LineError::Both("id", "immediate")),
        (Some(reference), None) => EventSelector::reference(&event_type, reference),
        (Some(reference), Some(id)) => EventSelector::id(&event_type, id).of(reference),
        (None, Some(id)) => EventSelector::id(&event_type, id),
    };
    let which = match (at, immediate) {
        (Some(_), true) => return Err(LineError::Both("at", "immediate")),
        (Some(at), false) => which.at(at),
        (None, true) => which.immediate(),
        (None, false) => which,
    };
    Ok(Named { which, event_type, reference, id, is_slot: at.is_some() || immediate })
}

/// Selects the events of a reference, or one event.
///
/// # Errors
/// When there is neither a reference nor an id, or a text may be a secret.
pub fn selected(event_type: String, reference: Option<String>, id: Option<String>) -> Result<EventSelector, LineError> {
    let r#type = Some(event_type);
    let events = ChosenEvents { r#type, reference, id, at: None, immediate: false, to: None, delay: None };
    Ok(named(events)?.which)
}

impl Change {
    /// Reads the change of events of a type, whose name is not in the JSON.
    ///
    /// # Errors
    /// When the JSON does not select events, or has no new time where one belongs.
    pub fn of(kind: ChangeKind, event_type: String, json: &[u8]) -> Result<Self, LineError> {
        // serde takes the values of an array for the fields, in the order of the code.
        if !json.trim_ascii_start().starts_with(b"{") {
            return Err(LineError::NotAnObject);
        }
        let events: ChosenEvents = serde_json::from_slice(json)?;
        if events.r#type.is_some() {
            return Err(LineError::NotHere("type"));
        }
        change(kind, ChosenEvents { r#type: Some(event_type), ..events })
    }

    /// Makes the change.
    ///
    /// # Errors
    /// When the register or the broker does not answer; or events wait, or should, and none could be changed.
    pub async fn make(self, events: &Events) -> Result<ChangedEvents, ChangeError> {
        let (changed, unchanged) = self.carry_out(events).await?;
        unchanged.map_or(Ok(changed), Err)
    }

    /// Makes the change. Returns beside it why no event was changed, if events wait, or should, and none could be changed.
    ///
    /// # Errors
    /// When the register or the broker does not answer.
    pub async fn carry_out(self, events: &Events) -> Result<(ChangedEvents, Option<ChangeError>), ChangeError> {
        let (moved, to) = match self {
            Self::Cancel(named) => return Ok((cancel(events, &named).await?, None)),
            Self::Reschedule(named, to) => {
                let to = match to {
                    Until::At(at) => Some(at),
                    Until::After(delay) => Timestamp::now().checked_add(delay).ok(),
                };
                let to = to.ok_or(ChangeError::NoTime)?;
                (events.reschedule(&named.which, to).await?, to)
            }
            Self::RunNow(named) => (events.run_now(&named.which).await?, Timestamp::now()),
        };
        Ok(counted(moved, to, &events.shared.topology))
    }
}

/// Cancels, and counts in the words of `topology events cancel -o json`.
async fn cancel(events: &Events, named: &Named) -> Result<ChangedEvents, EventsError> {
    let (mut changed, mut is_remembered) = (ChangedEvents::default(), named.id.is_some());
    let event =
        |slot: Option<&Cancelled>| cancelled(&named.event_type, named.reference.as_deref(), named.id.as_deref(), slot);
    for slot in events.cancel(&named.which).await? {
        // With `delayed: each-time` a date is a slot of its own; otherwise all dates share a slot, which is not remembered.
        let is_own = matches!(slot.slot, DedupSlot::DatedAt(_) | DedupSlot::Immediate | DedupSlot::First);
        is_remembered |= named.is_slot && is_own;
        if slot.waiting || slot.running {
            changed.add(ChangedEvent::new(event(Some(&slot)), Some(result_of_cancel(&slot)), None, None));
            changed.ids.extend(slot.id.filter(|_| slot.waiting));
        }
    }
    if changed.events.is_empty() && is_remembered {
        changed.add(ChangedEvent::new(event(None), Some("remembered"), None, None));
    }
    Ok(changed)
}

/// Counts in the words of `topology events reschedule -o json`. Returns why no event was moved, if none was.
fn counted(
    moved: Vec<(EventInfo, MoveOutcome)>,
    to: Timestamp,
    topology: &Topology,
) -> (ChangedEvents, Option<ChangeError>) {
    let (mut changed, mut unchanged) = (ChangedEvents::default(), ChangeError::NoneWaits);
    for (event, moved) in moved {
        let (result, mut why, mut due) = (result_of_move(&moved), None, None);
        match moved {
            MoveOutcome::Done => {
                due = Some(to);
                changed.ids.extend(event.id.clone());
            }
            MoveOutcome::Running => unchanged = ChangeError::Runs,
            MoveOutcome::NotKept(not_kept) => {
                why = Some(not_kept.to_string());
                unchanged = ChangeError::NotKept(not_kept);
            }
            _ => {}
        }
        changed.add(ChangedEvent::new(view(&event, topology), Some(result), why, due));
    }
    let is_done = changed.results.contains_key("done");
    (changed, (!is_done).then_some(unchanged))
}

impl ChangedEvents {
    fn add(&mut self, event: ChangedEvent) {
        if let Some(result) = &event.result {
            *self.results.entry(result.clone()).or_default() += 1;
        }
        self.events.push(event);
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
        let (Change::Cancel(named) | Change::Reschedule(named, _) | Change::RunNow(named)) = read(line).expect("valid");
        assert_eq!((named.which, named.id.is_some()), (expected, by_id));
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
    #[case(ChangeKind::RunNow, r#"{"id": "a"}"#, None)]
    #[case(ChangeKind::Cancel, r#"{"reference": "50", "immediate": true}"#, None)]
    #[case(ChangeKind::Reschedule, r#"{"id": "a", "delay": "1h"}"#, None)]
    #[case(ChangeKind::RunNow, r#"{"id": "a", "delay": "1h"}"#, Some("`delay` does not belong here"))]
    #[case(ChangeKind::Reschedule, r#"{"id": "a"}"#, Some("one of `to` and `delay`"))]
    #[case(ChangeKind::Cancel, r#"{"id": "a", "type": "mail"}"#, Some("`type` does not belong here"))]
    #[case(ChangeKind::Cancel, "[]", Some("not a JSON object"))]
    fn a_change_of_one_type_has_its_name_from_elsewhere(
        #[case] kind: ChangeKind,
        #[case] json: &str,
        #[case] why: Option<&str>,
    ) {
        match (Change::of(kind, "mail".to_owned(), json.as_bytes()), why) {
            (Ok(_), None) => {}
            (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{error}"),
            (changed, _) => panic!("{changed:?}"),
        }
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
