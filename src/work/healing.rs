//! Heals the schedules: publishes events of the chains that were lost, with a purged queue, a lost cluster or an emptied Redis. Watches the
//! clock of this machine as well.

use std::{sync::Arc, time::Duration};

use super::{clock_watch::ClockWatch, common::Common, schedule_meters::ScheduleMeters};
use crate::{
    domain::schedule::{
        definition::Definition,
        state::{ScheduleState, Wanted},
    },
    schedules::{Repairer, time},
};

/// The interval between two checks of the schedules. One worker takes the turn for all.
const LOOK: Duration = Duration::from_secs(30);

/// How often a worker asks whether it is its turn to look.
const ASK: Duration = Duration::from_secs(10);

/// Heals until the worker stops. A schedule that cannot be healed now is healed at the next look.
pub(super) async fn heal(common: Arc<Common>) {
    let (meters, mut clock) = (ScheduleMeters::new(&common.topology), ClockWatch::new());
    // The answer also shows Redis's clock.
    meters.read(&common).await;
    clock.look(&common).await;
    while common.stop.run_until_cancelled(tokio::time::sleep(ASK)).await.is_some() {
        meters.read(&common).await;
        clock.look(&common).await;
        if common.topology.schedules.is_empty() {
            continue;
        }
        match common.register.take_turn(LOOK).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                tracing::debug!(%error, "cannot take the turn to heal the schedules; asking again in 10 s");
                continue;
            }
        }
        for definition in common.topology.schedules.values() {
            // A repair that is cut off is as safe as one that a crash cuts off.
            if common.stop.run_until_cancelled(common.heal(definition)).await.is_none() {
                return;
            }
        }
    }
}

impl Common {
    async fn heal(&self, definition: &Definition) {
        let digest = definition.digest();
        let repairer = Repairer {
            topology: &self.topology,
            routes: &self.routes,
            broker: &*self.broker,
            register: &*self.register,
            clock: &*self.clock,
            outage: &self.broker_outage,
        };
        let name = &definition.name;
        match repairer
            .repair(definition, |state| ScheduleState::restored(state, Some(&digest), self.clock.shared()))
            .await
        {
            Ok(None) => {}
            Ok(Some(Wanted::Unpublished(arm))) => {
                tracing::info!(schedule = %name, "schedule armed; its next event is due at {}", time(arm.due));
            }
            Ok(Some(Wanted::Late(arm))) => {
                tracing::warn!(schedule = %name, "event of a schedule was lost or is late; published again, due at {}", time(arm.due));
            }
            Ok(Some(Wanted::Ahead(arm))) => {
                tracing::warn!(schedule = %name, "schedule was armed too far ahead, by a wrong clock perhaps; armed again, due at {}", time(arm.due));
            }
            Err(error) => {
                tracing::warn!(%error, schedule = %name, "schedule not healed; trying again in {}s", LOOK.as_secs());
            }
        }
    }
}
