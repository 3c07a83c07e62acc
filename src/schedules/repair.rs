//! Publishes the event that the chain of a schedule lacks: for the first time, or because it was lost.

use super::states;
use crate::{
    domain::{
        event::Event,
        names::Names,
        schedule::{
            definition::Definition,
            rule::Arm,
            state::{State, Wanted},
            template::Template,
        },
        spec::Topology,
    },
    outage::BrokerOutage,
    ports::{Broker, Clock, Register, RegisterError},
    publish::{published::PublishError, publisher},
    routes::Routes,
};

/// The longest time that a publish may take.
const PUBLISH_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// Repairs the chains of schedules.
pub(crate) struct Repairer<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) routes: &'a Routes,
    pub(crate) broker: &'a dyn Broker,
    pub(crate) register: &'a dyn Register,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) outage: &'a BrokerOutage,
}

/// What a repair has published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repaired {
    /// The event that nobody had published.
    Armed(Arm),
    /// An event that was lost, or may be.
    ArmedAgain(Arm),
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
    /// Publishes the event that a schedule lacks, if it lacks one. `prepare` makes the state from which the schedule goes on, and may
    /// leave it alone.
    ///
    /// A crash at any point leaves an event that the next repair publishes again. It has the same id, so the register runs one of the
    /// two.
    pub(crate) async fn repair(
        &self,
        definition: &Definition,
        mut prepare: impl FnMut(Option<State>) -> Option<State> + Send,
    ) -> Result<Option<Repaired>, RepairError> {
        let waits = self.waits(definition).await;
        let mut wanted = None;
        states::change(self.register, definition.name.as_str(), |state| {
            let state = prepare(state)?;
            let (repaired, lacks) = state.clone().repaired(definition, self.clock.now());
            // A late event waits in its queue, as all others there.
            wanted = lacks.filter(|lacks| !waits || matches!(lacks, Wanted::Unpublished(_)));
            Some(if wanted.is_some() { repaired } else { state })
        })
        .await?;
        let Some(wanted) = wanted else { return Ok(None) };
        let arm = wanted.arm();
        self.publish(definition, arm).await?;
        let digest = definition.digest();
        states::change(self.register, definition.name.as_str(), |state| Some(state?.armed(&digest, arm))).await?;
        Ok(Some(match wanted {
            Wanted::Unpublished(arm) => Repaired::Armed(arm),
            Wanted::Late(arm) => Repaired::ArmedAgain(arm),
        }))
    }

    async fn publish(&self, definition: &Definition, arm: Arm) -> Result<(), RepairError> {
        self.send(&Template::of(definition).event(arm, self.clock.now())).await
    }

    /// Publishes an event, and tells the register's index of it.
    pub(crate) async fn send(&self, event: &Event) -> Result<(), RepairError> {
        let message = || Some(self.routes.to_scheduler(event, event.early_by(self.clock.now())));
        publisher::send(self.broker, self.outage, PUBLISH_LIMIT, message).await?;
        states::record(self.register, self.topology, event).await?;
        Ok(())
    }

    /// Tells whether events wait in the processing queue of the schedule's type. If the broker does not say, none does: an event that is
    /// published twice runs once.
    async fn waits(&self, definition: &Definition) -> bool {
        let queue = Names::new(self.topology.name.clone()).processing(&definition.event_type);
        self.broker.ready(&queue).await.is_ok_and(|ready| ready > 0)
    }
}
