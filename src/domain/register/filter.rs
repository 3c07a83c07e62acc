//! The filter of a search for events.

use jiff::Timestamp;

use super::{event_info::EventInfo, event_state::State, index::Find};
use crate::domain::words::{EventType, Reference};

/// A filter for a search. An event must meet all conditions; a new filter has none.
///
/// A search never finds events that were handled or cancelled. A condition that is set again replaces the former one,
/// but types and states are added: an event must have one of them. The search fails for an impossible condition, like a
/// type that the file does not have or a reference with a control character.
///
/// ```
/// # use hatchery::{EventInfo, DedupSlot, internals::register::{Note, Stage, Subject, index::{Entry, Shown}, state::SlotState}};
/// # let subject = Subject { event_type: "hr-import".parse()?, reference: Some("12-34".parse()?), id: "a".to_owned() };
/// # let (slot, due) = (DedupSlot::Event("a".to_owned()), hatchery::parse_time("2026-06-01T09:00:00Z")?);
/// # let note = Note { stage: Stage::Retry, attempts: 3, reason: Some("Connection refused".to_owned()) };
/// # let entry = Some(Entry { subject: subject.clone(), slot: slot.clone(), due, note });
/// # let event = EventInfo::of(&subject, Shown { slot, state: SlotState::default(), leased: None, entry });
/// use hatchery::{Filter, State, parse_time};
///
/// // Events of the twelfth department that failed three times, are due by nine, and cannot connect.
/// let failing = Filter::default()
///     .event_type("hr-import")
///     .reference_prefix("12-")
///     .state(State::Retry)
///     .attempts(3)
///     .due_before(parse_time("2026-06-01T09:00:01Z")?)
///     .reason("connection refused");
/// assert!(failing.matches(&event)); // an event of 12-34 that is due at nine and failed three times
/// assert!(!failing.clone().attempts(4).matches(&event));
/// assert!(!failing.reference("12-35").matches(&event));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Filter {
    pub(crate) types: Vec<String>,
    pub(crate) reference: Option<String>,
    reference_prefix: Option<String>,
    pub(crate) id: Option<String>,
    states: Vec<State>,
    due_from: Option<Timestamp>,
    due_before: Option<Timestamp>,
    attempts: u32,
    reason: Option<String>,
}

impl Filter {
    /// Selects events of this type, or of one of several if it is called again. Without it a search covers every type
    /// of the file that uses the register.
    ///
    /// ```no_run
    /// # fn example(events: hatchery::Events) {
    /// use hatchery::Filter;
    ///
    /// let both = events.search(&Filter::default().event_type("hr-import").event_type("mail"));
    /// # }
    /// ```
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.types.push(event_type.into());
        self
    }

    /// Selects events of this reference.
    ///
    /// ```no_run
    /// # fn example(events: hatchery::Events) {
    /// use hatchery::Filter;
    ///
    /// let of_all_types = events.search(&Filter::default().reference("1234"));
    /// # }
    /// ```
    pub fn reference(self, reference: impl Into<String>) -> Self {
        Self { reference: Some(reference.into()), ..self }
    }

    /// Selects events whose reference begins with this text. Case matters.
    ///
    /// ```no_run
    /// # fn example(events: hatchery::Events) {
    /// use hatchery::Filter;
    ///
    /// let of_a_tenant = events.cancel_all(&Filter::default().reference_prefix("acme/"));
    /// # }
    /// ```
    pub fn reference_prefix(self, prefix: impl Into<String>) -> Self {
        Self { reference_prefix: Some(prefix.into()), ..self }
    }

    /// Selects the event with this id.
    ///
    /// ```no_run
    /// # fn example(events: hatchery::Events) {
    /// use hatchery::Filter;
    ///
    /// // Searches all types. If the type is known, `EventSelector::id` is faster.
    /// let one = events.search(&Filter::default().id("0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11"));
    /// # }
    /// ```
    pub fn id(self, id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), ..self }
    }

    /// Selects events in this state, or in one of several if it is called again.
    ///
    /// ```no_run
    /// # fn example(events: hatchery::Events) {
    /// use hatchery::{Filter, State};
    ///
    /// let failed = events.search(&Filter::default().state(State::Retry).state(State::DeadLetter));
    /// # }
    /// ```
    pub fn state(mut self, state: State) -> Self {
        self.states.push(state);
        self
    }

    /// Selects events that are due at this time or later.
    ///
    /// ```no_run
    /// # fn example(events: hatchery::Events) -> Result<(), hatchery::TimeError> {
    /// use hatchery::{Filter, parse_time};
    ///
    /// let june = Filter::default()
    ///     .due_from(parse_time("2026-06-01T00:00:00Z")?)
    ///     .due_before(parse_time("2026-07-01T00:00:00Z")?);
    /// let of_june = events.search(&june);
    /// # Ok(())
    /// # }
    /// ```
    pub fn due_from(self, time: Timestamp) -> Self {
        Self { due_from: Some(time), ..self }
    }

    /// Selects events that are due before this time.
    ///
    /// ```no_run
    /// # fn example(events: hatchery::Events) {
    /// use hatchery::{Filter, jiff::Timestamp};
    ///
    /// // The events that should have run by now.
    /// let late = events.search(&Filter::default().due_before(Timestamp::now()));
    /// # }
    /// ```
    pub fn due_before(self, time: Timestamp) -> Self {
        Self { due_before: Some(time), ..self }
    }

    /// Selects events that failed at least this often.
    ///
    /// ```no_run
    /// # fn example(events: hatchery::Events) {
    /// use hatchery::Filter;
    ///
    /// let troubled = events.search(&Filter::default().attempts(3));
    /// # }
    /// ```
    pub fn attempts(self, at_least: u32) -> Self {
        Self { attempts: at_least, ..self }
    }

    /// Selects events whose reason contains this text. Case does not matter.
    ///
    /// ```no_run
    /// # fn example(events: hatchery::Events) {
    /// use hatchery::{Filter, State};
    ///
    /// // The mail server is up again.
    /// let failed = Filter::default().state(State::Retry).reason("connection refused");
    /// let again = events.run_now_all(&failed);
    /// # }
    /// ```
    pub fn reason(self, contains: impl Into<String>) -> Self {
        Self { reason: Some(contains.into().to_lowercase()), ..self }
    }

    /// Tells whether an event meets all conditions but the type, which is not checked.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
    /// use hatchery::{Filter, State, EventSelector};
    ///
    /// let given_up = Filter::default().state(State::DeadLetter);
    /// let known = events.show(&EventSelector::reference("hr-import", "1234")).await?;
    /// println!("{} given up", known.iter().filter(|event| given_up.matches(event)).count());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn matches(&self, event: &EventInfo) -> bool {
        let reference = event.reference.as_ref().map(Reference::as_str);
        let reason = || event.reason.as_deref().unwrap_or_default().to_lowercase();
        event.copy.is_some()
            && self.reference.as_deref().is_none_or(|asked| reference == Some(asked))
            && self.reference_prefix.as_deref().is_none_or(|asked| reference.is_some_and(|r| r.starts_with(asked)))
            && (self.id.is_none() || self.id == event.id)
            && (self.states.is_empty() || self.states.contains(&event.state))
            && self.due_from.is_none_or(|from| event.due.is_some_and(|due| due >= from))
            && self.due_before.is_none_or(|before| event.due.is_some_and(|due| due < before))
            && event.attempts >= self.attempts
            && self.reason.as_deref().is_none_or(|asked| reason().contains(asked))
    }

    /// Returns the conditions that the register checks: the type and the due times.
    pub(crate) fn find(&self, event_type: EventType, limit: usize) -> Find {
        Find { due_from: self.due_from, due_before: self.due_before, ..Find::first(event_type, limit) }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::domain::register::{
        Stage,
        event_info::tests::{known, state},
    };

    #[rstest]
    #[case(Filter::default(), true)]
    #[case(Filter::default().reference("1234"), true)]
    #[case(Filter::default().reference("123"), false)]
    #[case(Filter::default().reference_prefix("123"), true)]
    #[case(Filter::default().reference_prefix("23"), false)]
    #[case(Filter::default().id("a"), true)]
    #[case(Filter::default().id("b"), false)]
    #[case(Filter::default().state(State::Waiting), false)]
    #[case(Filter::default().state(State::Waiting).state(State::Retry), true)]
    #[case(Filter::default().attempts(2), true)]
    #[case(Filter::default().attempts(3), false)]
    #[case(Filter::default().reason("connection REFUSED"), true)]
    #[case(Filter::default().reason("timeout"), false)]
    #[case(Filter::default().due_from(Timestamp::from_second(1_000).expect("a time")), true)]
    #[case(Filter::default().due_before(Timestamp::from_second(1_000).expect("a time")), false)]
    fn a_filter_excludes_an_event_that_misses_a_condition(#[case] filter: Filter, #[case] expected: bool) {
        assert_eq!(filter.matches(&known("i", state((5, false, 1), 5, false), Stage::Retry)), expected);
    }

    #[test]
    fn a_filter_never_matches_an_event_that_has_ended() {
        assert!(!Filter::default().matches(&known("i", state((5, true, 1), 5, false), Stage::Retry)));
    }
}
