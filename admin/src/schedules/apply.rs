//! Asks what an apply would do with the schedules, arms them after it, and removes them.

use std::time::Duration;

use super::Schedules;
use crate::{admin::Admin, breakers::Breakers, error::AdminError, results::ScheduleChanges, watch::Watch};

/// How long a busy Redis may take to answer. One whose port is closed refuses at once.
const LIMIT: Duration = Duration::from_secs(10);

impl Admin {
    /// Returns what an apply would do with the schedules, and writes nothing. `Err` says why Redis does not tell.
    pub(crate) async fn plan_schedules(&self) -> Result<ScheduleChanges, String> {
        if !self.has_schedules() {
            return Ok(Vec::new());
        }
        let asking = async {
            let events = self.events().map_err(|error| error.to_string())?;
            Schedules(events).plan().await.map_err(|error| error.to_string())
        };
        match tokio::time::timeout(LIMIT, asking).await {
            Ok(Ok(changes)) => Ok(changes),
            // A file without schedules has none to remove most of the time.
            Ok(Err(_)) | Err(_) if self.topology().schedules.is_empty() => Ok(Vec::new()),
            Ok(Err(why)) => Err(why),
            Err(_) => Err("Redis does not answer".to_owned()),
        }
    }

    /// Tells whether Redis is asked about schedules. A topology without schedules needs no Redis for it.
    fn has_schedules(&self) -> bool {
        !self.topology().schedules.is_empty() || self.is_redis_given && self.uses_register()
    }

    /// Arms the schedules of the file, and removes from Redis those that have left it, and such breakers.
    pub(crate) async fn arm(&self, watch: &dyn Watch) -> Result<ScheduleChanges, AdminError> {
        if !self.has_schedules() {
            return Ok(Vec::new());
        }
        let hatchery = self.builder.clone().connect().await?;
        let changes = Schedules(hatchery.events()).apply().await;
        if let Err(error) = Breakers(hatchery.events()).forget_left().await {
            watch.warn(&format!("cannot look for breakers in Redis that have left the file: {error}"));
        }
        hatchery.close().await;
        match changes {
            // A file without schedules has none to remove most of the time.
            Err(error) if self.topology().schedules.is_empty() => {
                watch.warn(&format!("cannot look for removed schedules in Redis: {error}"));
                Ok(Vec::new())
            }
            changes => changes.map_err(|error| AdminError::NotArmed(error.to_string())),
        }
    }

    /// Removes all schedules of a topology that was destroyed. Otherwise Redis would call their events armed and their pauses
    /// valid if it is applied again.
    pub(crate) async fn remove_schedules(&self, watch: &dyn Watch) -> Result<(), AdminError> {
        if !self.has_schedules() {
            return Ok(());
        }
        let mut without = self.topology().clone();
        without.schedules.clear();
        let events = self.builder.clone().for_topology(without).events()?;
        if let Err(error) = Schedules(events).apply().await {
            watch.warn(&format!(
                "cannot remove the state of the schedules from Redis: {error}; run `topology destroy` again"
            ));
        }
        Ok(())
    }
}
