//! The state of a slot and its entry in the index as one value.

use jiff::Timestamp;

use super::{CopyVersion, DedupSlot, Stage, Subject, event_state::State, index::Shown, state::SlotState};
use crate::domain::{
    reason::error_of,
    words::{EventType, Reference},
};

/// A slot and its newest event, as far as the register knows them.
///
/// The info is for people, and may be wrong after Redis has lost data. No code decides by it.
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
    /// Whether a worker holds the lease of a run of the slot. `None` if it was not looked up: in a search, and where the
    /// lease is not stored with the slot. A started event without a lease has lost its worker, or its worker does not reach
    /// the register.
    pub leased: Option<bool>,
    /// How often a worker has started the latest copy and has not settled it or given it back since: the run that is under
    /// way, and the crashes before it.
    pub starts: u32,
    /// The time at which the latest copy is due, in milliseconds.
    pub due: Option<Timestamp>,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Why the latest copy is in its queue.
    pub reason: Option<String>,
    /// The copy that is still to run. `None` if the event has ended.
    pub copy: Option<CopyVersion>,
}

impl EventInfo {
    /// Returns the information about a slot. `subject` is the one of the question; that of the slot's entry is used
    /// instead, if there is an entry. Of no use outside of the crate.
    #[must_use]
    pub fn of(subject: &Subject, shown: Shown) -> Self {
        let Shown { slot, state, leased, entry } = shown;
        let copy = wanted(&slot, &state);
        let begun = state.begun && !state.mark.finished;
        // Only its lease tells of the run of a cancelled event.
        let running = begun || leased == Some(true);
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
            leased,
            starts: if of_newest && copy.is_some() { state.crashes + u32::from(begun) } else { 0 },
            due: due.or_else(|| Timestamp::from_millisecond(state.due).ok().filter(|_| state.due > 0)),
            attempts: note.as_ref().map_or(0, |note| note.attempts),
            reason: note.and_then(|note| note.reason),
            copy,
        }
    }

    /// Returns why the event failed, or the whole reason of an event that has not failed. It is the error alone, without the
    /// count and the time of the attempt, which stand before it in [`reason`](Self::reason).
    ///
    /// ```no_run
    /// # fn example(event: hatchery::EventInfo) {
    /// // KeyError: name, of the reason `retry: attempt=2 failed_at=2026-06-01T09:00:00.000Z error="KeyError: name"`
    /// println!("{}", event.error().unwrap_or_default());
    /// # }
    /// ```
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.reason.as_deref().map(error_of)
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

#[cfg(test)]
pub(crate) mod tests {
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

    pub(crate) fn known(slot: &str, state: SlotState, stage: Stage) -> EventInfo {
        let slot: DedupSlot = slot.parse().expect("a slot");
        let note = Note { stage, attempts: 2, reason: Some("retry: Connection refused".into()) };
        let due = Timestamp::from_second(1_000).expect("a time");
        let entry = Entry { subject: subject(), slot: slot.clone(), due, note };
        EventInfo::of(&subject(), Shown { slot, state, leased: None, entry: Some(entry) })
    }

    pub(crate) fn state(mark: (i64, bool, i64), newest: i64, begun: bool) -> SlotState {
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

    #[rstest]
    #[case::not_started(state((5, false, 0), 5, false), 0)]
    #[case::started_once(state((5, false, 0), 5, true), 1)]
    #[case::started_again_after_three_crashes(SlotState { crashes: 3, ..state((5, false, 0), 5, true) }, 4)]
    #[case::given_back_after_a_crash(SlotState { crashes: 1, ..state((5, false, 0), 5, false) }, 1)]
    #[case::of_an_older_event(SlotState { crashes: 1, ..state((5, false, 0), 6, true) }, 0)]
    #[case::handled(SlotState { crashes: 1, ..state((5, true, 0), 5, false) }, 0)]
    fn starts_without_an_end_are_counted(#[case] state: SlotState, #[case] expected: u32) {
        assert_eq!(known("i", state, Stage::Waiting).starts, expected);
    }

    #[test]
    fn an_event_without_its_index_entry_is_shown_as_far_as_it_is_known() {
        let later = Some(Later { at: 1, version: 5, generation: 0 });
        let slot = SlotState { due: 5_000, later, ..state((0, false, 0), 5, false) };
        let known = EventInfo::of(&subject(), Shown { slot: DedupSlot::Dated, state: slot, leased: None, entry: None });
        assert_eq!((known.id, known.state), (None, State::Waiting));
        assert_eq!(known.due, Timestamp::from_second(5).ok());
    }
}
