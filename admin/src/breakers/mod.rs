//! The commands for circuit breakers: look at them, and close one.

mod view;

use hatchery::{
    EventType, Events, RegisterError, TransitionName,
    internals::{
        breaker::BreakerState,
        ports::StateKind,
        spec::TypeSpec,
        switches::{Name, Paused},
        words::UnknownType,
    },
};

use jiff::Timestamp;

pub(crate) use self::view::read;
pub use self::view::{BreakerInfo, BreakerList, BreakerView, ClosedBreaker, Counted, Known};

/// The circuit breakers of a topology, for people.
pub struct Breakers(pub Events);

/// Why a breaker was not closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BreakersError {
    /// The file has no such type.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// The type has no breaker.
    #[error("the type `{0}` has no `breaker` in the file")]
    NoBreaker(EventType),
    /// Each worker has a breaker of its own.
    #[error(
        "the type `{0}` has `register: off`, so each of its workers has a breaker of its own, which closes after its cooldown; \
         a worker that is restarted begins with a closed one"
    )]
    NotShared(EventType),
    /// Nothing was changed.
    #[error(
        "the text in Redis is no state of the circuit breaker of `{0}`; the next worker with an event of the type replaces it"
    )]
    NoState(EventType),
    /// Redis did not answer.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

impl Breakers {
    /// Returns the breakers of the file, by type.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn list(&self) -> Result<Vec<BreakerInfo>, BreakersError> {
        Ok(read(&self.0.shared.topology, &*self.0.shared.register).await?)
    }

    /// Returns the time by Redis's clock, by which a breaker is open or half-open.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.shared.clock.of_redis()
    }

    /// Forgets the states of breakers that have left the file: one that comes back later must not begin open.
    ///
    /// # Errors
    /// When Redis does not answer. The call may be repeated.
    pub(crate) async fn forget_left(&self) -> Result<(), RegisterError> {
        let (register, types) = (&self.0.shared.register, &self.0.shared.topology.types);
        let is_shared = |spec: &TypeSpec| spec.register && spec.breaker.is_some();
        for (name, text) in register.states(StateKind::Breaker).await? {
            if !types.iter().any(|(of, spec)| is_shared(spec) && spec.first_name(of).as_str() == name) {
                // If a worker has just changed it, the worker has an older file, and the next apply is soon enough.
                register.replace_state(StateKind::Breaker, &name, Some(&text), None).await?;
            }
        }
        Ok(())
    }

    /// Closes the breaker of a type: its events start as usual. Returns whether it was open.
    ///
    /// # Errors
    /// When the type has no breaker that its workers share, or Redis does not answer. The call may be repeated.
    pub async fn close(&self, event_type: &str) -> Result<bool, BreakersError> {
        let types = &self.0.shared.topology.types;
        let Some((event_type, spec)) = types.get_key_value(event_type) else {
            return Err(UnknownType::among(event_type, types.keys()).into());
        };
        if spec.breaker.is_none() {
            return Err(BreakersError::NoBreaker(event_type.clone()));
        }
        if !spec.register {
            return Err(BreakersError::NotShared(event_type.clone()));
        }
        let (register, name) = (&self.0.shared.register, spec.first_name(event_type).as_str());
        loop {
            let before = register.state(StateKind::Breaker, name).await?;
            let Some(text) = &before else { return Ok(false) };
            let state = BreakerState::parse(text).ok_or_else(|| BreakersError::NoState(event_type.clone()))?;
            let Some(closed) = state.close(self.now().as_millisecond()) else { return Ok(false) };
            let after = Some(closed.text());
            if register.replace_state(StateKind::Breaker, name, before.as_deref(), after.as_deref()).await? {
                let (of, records) = (Paused::Type(Name(event_type.clone())), &self.0.shared.records);
                records.tell_switch(TransitionName::BreakerClosed, &of, "a person has closed it", None);
                return Ok(true);
            }
        }
    }
}
