//! Publishes the event that the chain of a schedule lacks: for the first time, or because it was lost.

use super::states;
use crate::{
    domain::{
        event::Event,
        schedule::{
            definition::Definition,
            state::{ScheduleState, Wanted},
            template::Template,
        },
        spec::Topology,
    },
    outage::BrokerOutage,
    ports::{Broker, Clock, Register, RegisterError},
    publish::{
        published::{PUBLISH_LIMIT, PublishError},
        send,
    },
    records::Records,
    routes::Routes,
};

/// Repairs the chains of schedules.
pub struct Repairer<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) routes: &'a Routes,
    pub(crate) broker: &'a dyn Broker,
    pub(crate) register: &'a dyn Register,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) outage: &'a BrokerOutage,
    pub(crate) records: &'a Records,
}

/// Why a chain was not repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// Redis did not answer.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The broker has not confirmed the event.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl Repairer<'_> {
    /// Publishes the event that a schedule wants, if it wants one, and returns it. `prepare` makes the state from which the schedule goes on, and may
    /// leave it alone.
    ///
    /// A crash at any point leaves an event that the next repair publishes again. It has the same id, so the register runs one of the
    /// two.
    ///
    /// # Errors
    /// When Redis or the broker does not answer.
    pub async fn repair(
        &self,
        definition: &Definition,
        mut prepare: impl FnMut(Option<ScheduleState>) -> Option<ScheduleState> + Send,
    ) -> Result<Option<Wanted>, RepairError> {
        let mut wanted = None;
        let repaired = states::change(self.register, definition.name.as_str(), None, |state| {
            let (state, lacks) = prepare(state)?.repaired(definition, self.clock.shared());
            wanted = lacks;
            Some(state)
        })
        .await?;
        // Somebody else may have changed the state so that it wants nothing any more.
        let (Some(wanted), Some(repaired)) = (wanted, repaired) else { return Ok(None) };
        let arm = wanted.arm();
        self.send(&Template::of(definition).event(arm, self.clock.shared())).await?;
        let digest = definition.digest();
        let now = self.clock.shared();
        let armed = |state: Option<ScheduleState>| Some(state?.armed(&digest, arm, now));
        states::change(self.register, definition.name.as_str(), Some(&repaired), armed).await?;
        Ok(Some(wanted))
    }

    /// Publishes an event, and tells the register's index of it.
    ///
    /// # Errors
    /// When the broker or Redis does not answer.
    pub async fn send(&self, event: &Event) -> Result<(), RepairError> {
        let message = || Some(self.routes.to_scheduler(event, event.early_by(self.clock.shared())));
        send::send(self.broker, self.outage, PUBLISH_LIMIT, message).await?;
        self.records.tell_published(event, event.due());
        states::record(self.register, self.topology, event).await?;
        Ok(())
    }
}
