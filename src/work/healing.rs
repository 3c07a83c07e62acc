//! Heals the schedules: publishes events of the chains that were lost, with a purged queue, a lost cluster or an emptied Redis. Watches the
//! clock of this machine as well, and tells what `topology status` asks for.

use std::{sync::Arc, time::Duration};

use super::{
    clock_watch::ClockWatch,
    lane::Common,
    register_meters::{ScheduleMeters, WaitingMeters},
};
use crate::{
    domain::{
        schedule::{
            definition::Definition,
            state::{ScheduleState, Wanted},
        },
        switches::Pause,
        words::Word,
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
    let mut waiting = WaitingMeters::new(&common.topology);
    // The answer also shows Redis's clock.
    meters.read(&common).await;
    clock.look(&common).await;
    while common.stop.run_until_cancelled(tokio::time::sleep(ASK)).await.is_some() {
        meters.read(&common).await;
        clock.look(&common).await;
        common.report().await;
        waiting.read(&common).await;
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
    /// Tells what `topology status` asks for, and learns whether the register was emptied.
    pub(super) async fn report(&self) {
        self.register.look_for_loss();
        self.health.count_emptied();
        let (ended, unrecorded) = (self.journal.take_ended(), self.journal.records().take_dropped());
        if (!ended.is_empty() || unrecorded.records > 0)
            && let Err(error) = self.register.report_runs(&ended, &unrecorded).await
        {
            tracing::debug!(%error, "`topology status` is not told how the last runs ended");
        }
    }

    /// Returns the pause of a schedule, if it is paused. The outer `None` says that the switches are not read.
    #[allow(clippy::option_option, reason = "not read and not paused are two things")]
    pub(super) fn pause(&self, schedule: &Word) -> Option<Option<Pause>> {
        self.switches.of_schedule(schedule, self.clock.of_redis())
    }

    async fn heal(&self, definition: &Definition) {
        let digest = definition.digest();
        let repairer = Repairer {
            topology: &self.topology,
            routes: &self.routes,
            broker: &*self.broker,
            register: &*self.register,
            clock: &*self.clock,
            outage: &self.broker_outage,
            records: self.journal.records(),
        };
        let name = &definition.name;
        // A schedule is resumed here, so the switches must be known.
        let Some(pause) = self.pause(name) else { return };
        let restored = |state| {
            let now = self.clock.shared();
            Some(ScheduleState::restored(state, Some(&digest), now)?.switched(pause.as_ref(), Some(definition), now))
        };
        match repairer.repair(definition, restored).await {
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
