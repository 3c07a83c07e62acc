//! Asks the register which letters are obsolete.

use hatchery::{
    DedupSlot, Event, Events, RegisterError,
    internals::register::{Subject, state::SlotState},
};

use super::{error::DeadLettersError, letter::Letter, standing::Standing};

/// A letter that was checked, with what its caller holds of it.
pub(super) struct Checked<H> {
    pub(super) letter: Letter,
    pub(super) standing: Standing,
    /// The event, if the letter is one.
    pub(super) event: Option<Event>,
    /// The slot's `covered` when it was read.
    pub(super) covered: i64,
    pub(super) held: H,
}

/// Whether a check needs an answer of the register.
pub(super) enum RegisterUse<'a> {
    /// The check fails.
    Required,
    /// The standing is unknown, for the reason that is noted here. The register is not asked again.
    Optional(&'a mut Option<RegisterError>),
}

/// Checks letters in one call to the register.
pub(super) async fn check<H>(
    events: &Events,
    letters: Vec<(Letter, H)>,
    register: RegisterUse<'_>,
) -> Result<Vec<Checked<H>>, DeadLettersError> {
    let now = events.shared.clock.shared();
    let (mut checked, mut asked, mut slots) = (Vec::with_capacity(letters.len()), Vec::new(), Vec::new());
    for (letter, held) in letters {
        let read = letter.event(now);
        let is_registered = letter
            .known_type
            .as_ref()
            .and_then(|name| events.shared.topology.types.get(name))
            .is_some_and(|spec| spec.register);
        let (standing, event) = match read {
            _ if letter.source.is_some() => (Standing::Message, None),
            Err(why) => (Standing::Unreadable(why), None),
            Ok(event) if is_registered => {
                asked.push(checked.len());
                slots.push((event.subject(), event.stamp.slot.clone()));
                (Standing::Unknown, Some(event))
            }
            Ok(event) => (Standing::Unregistered, Some(event)),
        };
        checked.push(Checked { letter, standing, event, covered: 0, held });
    }
    let Some(states) = ask(events, &slots, register).await? else { return Ok(checked) };
    for (place, state) in asked.into_iter().zip(states) {
        let checked = &mut checked[place];
        let (Some(event), Some(state)) = (&checked.event, state) else {
            checked.standing = Standing::Open;
            continue;
        };
        checked.standing = Standing::of(&event.subject(), &event.stamp, &state);
        checked.covered = state.covered;
    }
    Ok(checked)
}

/// Returns the state of each slot, if the register knows it; `None` if the register is away and optional.
async fn ask(
    events: &Events,
    slots: &[(Subject, DedupSlot)],
    register: RegisterUse<'_>,
) -> Result<Option<Vec<Option<SlotState>>>, DeadLettersError> {
    if slots.is_empty() || matches!(&register, RegisterUse::Optional(Some(_))) {
        return Ok(None);
    }
    match (events.shared.index.look_at(slots).await, register) {
        (Ok(shown), _) => Ok(Some(shown.into_iter().map(|shown| Some(shown?.state)).collect())),
        (Err(error), RegisterUse::Required) => Err(DeadLettersError::Register(error)),
        (Err(error), RegisterUse::Optional(unknown)) => {
            *unknown = Some(error);
            Ok(None)
        }
    }
}
