//! The search for events: the state of a slot and its entry in the index as one value, and filters over such values.

use std::{fmt, str::FromStr};

use jiff::Timestamp;

use super::{
    CopyVersion, DedupSlot, Stage, Subject,
    index::{Find, Shown},
    state::SlotState,
};
use crate::domain::words::{EventType, Reference};

/// The state of the newest event of a slot, as far as the register knows.
///
/// ```
/// use hatchery::State;
///
/// assert_eq!(State::DeadLetter.to_string(), "dead-letter");
/// assert_eq!("dead-letter".parse(), Ok(State::DeadLetter));
/// // The state of an ended event is shown, but no search finds it.
/// let error = "handled".parse::<State>().expect_err("at its end");
/// assert_eq!(error.to_string(), "`handled` is none of waiting, running, retry and dead-letter");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum State {
    /// The event is published and not started: it is not due yet, or no handler was free.
    Waiting,
    /// The event is started and not settled yet.
    Running,
    /// The event failed and waits for its next attempt.
    Retry,
    /// The event was given up and is in the dead-letter queue.
    DeadLetter,
    /// The event is handled to the end.
    Handled,
    /// The event was cancelled.
    Cancelled,
}

impl State {
    /// The states of events that have not ended. A search finds only these.
    ///
    /// ```
    /// use hatchery::State;
    ///
    /// assert!(State::OPEN.contains(&State::Retry) && !State::OPEN.contains(&State::Cancelled));
    /// ```
    pub const OPEN: [Self; 4] = [Self::Waiting, Self::Running, Self::Retry, Self::DeadLetter];

    /// Returns the name of the state on the command line.
    ///
    /// ```
    /// assert_eq!(hatchery::State::Waiting.as_str(), "waiting");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Retry => "retry",
            Self::DeadLetter => "dead-letter",
            Self::Handled => "handled",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for a text that is not one of [`State::OPEN`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of waiting, running, retry and dead-letter")]
pub struct StateError(String);

impl FromStr for State {
    type Err = StateError;

    fn from_str(text: &str) -> Result<Self, StateError> {
        Self::OPEN.into_iter().find(|state| state.as_str() == text).ok_or_else(|| StateError(text.to_owned()))
    }
}

/// A slot and its newest event, as far as the register knows them.
///
/// It is for people, and may be wrong after Redis has lost data. Nothing is decided from it.
///
/// ```no_run
/// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
/// use hatchery::{EventInfo, State, EventSelector};
///
/// fn line(event: &EventInfo) -> String {
///     let due = event.due.map_or_else(|| "some time".to_owned(), |due| due.to_string());
///     let why = event.reason.as_deref().unwrap_or_default();
///     match event.state {
///         State::Waiting => format!("waits until {due}"),
///         State::Retry => format!("failed {} times, again at {due}: {why}", event.attempts),
///         State::DeadLetter => format!("given up: {why}"),
///         state => state.to_string(),
///     }
/// }
///
/// for event in events.show(&EventSelector::reference("hr-import", "1234")).await? {
///     println!("{}: {}", event.slot, line(&event));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventInfo {
    /// The event's type.
    pub event_type: EventType,
    /// The object that the event is about.
    pub reference: Option<Reference>,
    /// The event's id. `None` if the event has ended or its entry in the index was lost, unless the slot has the id.
    pub id: Option<String>,
    /// The event's slot.
    pub slot: DedupSlot,
    /// The event's state.
    pub state: State,
    /// Whether an event of the slot is started and not settled: this event, or one that it replaces.
    pub running: bool,
    /// The time at which the latest copy is due, in milliseconds.
    pub due: Option<Timestamp>,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Why the latest copy is in its queue.
    pub reason: Option<String>,
    /// The copy that is still to run. `None` if the event has ended.
    pub copy: Option<CopyVersion>,
    /// The slot's `covered` (see [`SlotState::covered`]).
    pub(crate) covered: i64,
}

impl EventInfo {
    /// Returns the information about a slot. `subject` is the one of the question; that of the slot's entry is used
    /// instead, if there is an entry. Of no use outside of the crate.
    #[must_use]
    pub fn of(subject: &Subject, shown: Shown) -> Self {
        let Shown { slot, state, leased, entry } = shown;
        let copy = wanted(&slot, &state);
        let begun = state.begun && !state.mark.finished;
        // The run of a cancelled event goes on, and only its lease tells of it.
        let running = begun || leased;
        let of_newest = copy.as_ref().is_none_or(|copy| copy.version <= state.mark.version);
        let (subject, due, note) = match entry {
            Some(entry) => (entry.subject, Some(entry.due), Some(entry.note)),
            None => (Subject { id: String::new(), ..subject.clone() }, None, None),
        };
        let id = match &slot {
            DedupSlot::Event(id) => Some(id.clone()),
            _ => Some(subject.id).filter(|id| !id.is_empty()),
        };
        Self {
            state: match note.as_ref().map_or(Stage::Waiting, |note| note.stage) {
                _ if state.cancelled && copy.is_none() => State::Cancelled,
                _ if copy.is_none() => State::Handled,
                _ if begun && of_newest => State::Running,
                Stage::Waiting => State::Waiting,
                Stage::Retry => State::Retry,
                Stage::DeadLetter => State::DeadLetter,
            },
            event_type: subject.event_type,
            reference: subject.reference,
            id,
            slot,
            running,
            due: due.or_else(|| Timestamp::from_millisecond(state.due).ok().filter(|_| state.due > 0)),
            attempts: note.as_ref().map_or(0, |note| note.attempts),
            reason: note.and_then(|note| note.reason),
            copy,
            covered: state.covered,
        }
    }

    /// Returns the subject for the register's calls about this event. Of no use outside of the crate.
    #[must_use]
    pub fn subject(&self) -> Subject {
        let id = self.id.clone().unwrap_or_default();
        Subject { event_type: self.event_type.clone(), reference: self.reference.clone(), id }
    }
}

/// Returns the copy of a slot that is still to run, as far as the register knows.
fn wanted(slot: &DedupSlot, state: &SlotState) -> Option<CopyVersion> {
    let (mark, slot) = (state.mark, slot.clone());
    if matches!(slot, DedupSlot::Event(_)) {
        return (!mark.finished).then_some(CopyVersion { slot, version: 0, generation: mark.generation });
    }
    if state.newest > mark.version.max(state.covered) {
        return Some(CopyVersion { slot, version: state.newest, generation: 0 });
    }
    (mark.version > 0 && !mark.finished).then_some(CopyVersion {
        slot,
        version: mark.version,
        generation: mark.generation,
    })
}

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
/// # let event = EventInfo::of(&subject, Shown { slot, state: SlotState::default(), leased: false, entry });
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
        Find { event_type, due_from: self.due_from, due_before: self.due_before, alone_of: None, after: None, limit }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::domain::register::{
        Note,
        index::Entry,
        state::{Later, Mark},
    };

    fn subject() -> Subject {
        Subject {
            event_type: "mail".parse().expect("a word"),
            reference: Some("1234".parse().expect("a reference")),
            id: "a".into(),
        }
    }

    fn known(slot: &str, state: SlotState, stage: Stage) -> EventInfo {
        let slot: DedupSlot = slot.parse().expect("a slot");
        let note = Note { stage, attempts: 2, reason: Some("retry: Connection refused".into()) };
        let due = Timestamp::from_second(1_000).expect("a time");
        let entry = Entry { subject: subject(), slot: slot.clone(), due, note };
        EventInfo::of(&subject(), Shown { slot, state, leased: false, entry: Some(entry) })
    }

    fn state(mark: (i64, bool, i64), newest: i64, begun: bool) -> SlotState {
        let (version, finished, generation) = mark;
        SlotState { mark: Mark { version, finished, generation }, newest, begun, until: 1, ..SlotState::default() }
    }

    #[rstest]
    #[case("i", state((0, false, 0), 5, false), Stage::Waiting, State::Waiting, Some((5, 0)))]
    #[case("i", state((5, false, 0), 5, true), Stage::Waiting, State::Running, Some((5, 0)))]
    #[case("i", state((5, false, 2), 5, false), Stage::Retry, State::Retry, Some((5, 2)))]
    #[case("i", state((5, false, 3), 5, false), Stage::DeadLetter, State::DeadLetter, Some((5, 3)))]
    #[case("i", state((5, true, 0), 5, false), Stage::Waiting, State::Handled, None)]
    #[case("i", SlotState { cancelled: true, ..state((9, true, 0), 5, false) }, Stage::Waiting, State::Cancelled, None)]
    // One event runs, and a newer one waits, which is shown.
    #[case("i", state((5, false, 0), 6, true), Stage::Waiting, State::Waiting, Some((6, 0)))]
    // A run covers version 6 and so serves it, or covers less.
    #[case("f", SlotState { covered: 7, ..state((5, true, 0), 6, false) }, Stage::Waiting, State::Handled, None)]
    #[case("f", SlotState { covered: 5, ..state((5, true, 0), 6, false) }, Stage::Waiting, State::Waiting, Some((6, 0)))]
    // An `e:` slot, before and after its first claim.
    #[case("e:a", SlotState::default(), Stage::Waiting, State::Waiting, Some((0, 0)))]
    #[case("e:a", state((0, false, 1), 0, false), Stage::Retry, State::Retry, Some((0, 1)))]
    #[case("e:a", state((0, true, 1), 0, false), Stage::Retry, State::Handled, None)]
    fn a_slot_is_in_one_state(
        #[case] slot: &str,
        #[case] state: SlotState,
        #[case] stage: Stage,
        #[case] expected: State,
        #[case] copy: Option<(i64, i64)>,
    ) {
        let known = known(slot, state, stage);
        assert_eq!((known.state, known.copy.map(|copy| (copy.version, copy.generation))), (expected, copy));
    }

    #[test]
    fn an_event_without_its_index_entry_is_shown_as_far_as_it_is_known() {
        let later = Some(Later { at: 1, version: 5, generation: 0 });
        let slot = SlotState { due: 5_000, later, ..state((0, false, 0), 5, false) };
        let known =
            EventInfo::of(&subject(), Shown { slot: DedupSlot::Dated, state: slot, leased: false, entry: None });
        assert_eq!((known.id, known.state), (None, State::Waiting));
        assert_eq!(known.due, Timestamp::from_second(5).ok());
    }

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

    #[test]
    fn a_state_is_read_as_it_is_written() {
        for state in State::OPEN {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert!("handled".parse::<State>().is_err());
    }
}
