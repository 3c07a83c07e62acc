//! Says what an apply would do with the schedules, and arms them after it.

use std::time::Duration;

use hatchery::{Topology, internals::operate::ScheduleChange};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    args::Common,
    connect,
    exit::{Ended, Exit},
    output::{GREEN, Output},
};

/// How long Redis may take to answer. A plan works without Redis, so it does not wait long.
const LIMIT: Duration = Duration::from_secs(3);

/// What an apply has done with a schedule, or would do.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Armed {
    /// The schedule.
    name: String,
    /// `unchanged`, `armed`, `armed again`, `paused` or `removed`.
    change: &'static str,
    /// When its next event is due, if it was armed.
    #[schemars(with = "Option<String>")]
    next: Option<jiff::Timestamp>,
}

impl Armed {
    pub(crate) fn of((name, change): (String, ScheduleChange)) -> Self {
        let (change, next) = match change {
            ScheduleChange::Unchanged => ("unchanged", None),
            ScheduleChange::Armed(at) => ("armed", Some(at)),
            ScheduleChange::ArmedAgain(at) => ("armed again", Some(at)),
            ScheduleChange::Paused => ("paused", None),
            ScheduleChange::Removed => ("removed", None),
        };
        Self { name, change, next }
    }

    /// Tells whether an apply changes anything for this schedule.
    pub(crate) fn is_change(&self) -> bool {
        self.change != "unchanged"
    }

    /// Returns the sign, the name and the change, for the line of a plan.
    pub(crate) fn planned(&self) -> (char, &str, String) {
        let Self { name, change, next } = self;
        match (*change, next) {
            ("armed", Some(at)) => ('+', name, format!("armed, next at {at}")),
            ("removed", _) => ('-', name, "removed; its next event does not run".to_owned()),
            ("paused", _) => ('~', name, "changed; it stays paused".to_owned()),
            (change, Some(at)) => ('~', name, format!("{change}, next at {at}")),
            (change, None) => ('~', name, change.to_owned()),
        }
    }

    fn line(&self) -> Option<String> {
        let Self { name, change, next } = self;
        match (*change, next) {
            ("unchanged", _) => None,
            ("paused", _) => Some(format!("schedule {name} changed; it stays paused\n")),
            ("removed", _) => Some(format!("schedule {name} removed\n")),
            (change, Some(at)) => Some(format!("{GREEN}schedule {name} {change}{GREEN:#}, next at {at}\n")),
            (change, None) => Some(format!("schedule {name} {change}\n")),
        }
    }
}

/// What an apply would do with the schedules.
pub(crate) struct Planned {
    /// What becomes of each schedule; `Err` says why Redis does not tell.
    changes: Result<Vec<Armed>, String>,
}

impl Planned {
    /// Returns the schedules; `None` if Redis does not tell.
    pub(crate) fn changes(&self) -> Option<&[Armed]> {
        self.changes.as_deref().ok()
    }

    /// Tells whether an apply would change a schedule, as far as that is known.
    pub(crate) fn is_pending(&self) -> bool {
        self.changes.iter().flatten().any(Armed::is_change)
    }

    /// Tells whether Redis told what an apply would do.
    pub(crate) const fn is_known(&self) -> bool {
        self.changes.is_ok()
    }

    /// Warns if Redis does not tell.
    pub(crate) fn warn(&self, output: Output) {
        if let Err(why) = &self.changes {
            output.warn(&format!("cannot plan the schedules: {why}"));
        }
    }
}

/// Returns what an apply would do with the schedules, and writes nothing.
pub(crate) async fn plan(common: &Common, topology: &Topology) -> anyhow::Result<Planned> {
    if !are_looked_at(common, topology)? {
        return Ok(Planned { changes: Ok(Vec::new()) });
    }
    let asking = async {
        let events = connect::builder(common, topology.clone(), "topology plan")?.events()?;
        anyhow::Ok(events.schedules().plan().await?)
    };
    let changes = match tokio::time::timeout(LIMIT, asking).await {
        Ok(Ok(changes)) => Ok(changes.into_iter().map(Armed::of).collect()),
        // A file without schedules has none to remove most of the time.
        Ok(Err(_)) | Err(_) if topology.schedules.is_empty() => Ok(Vec::new()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("Redis does not answer".to_owned()),
    };
    Ok(Planned { changes })
}

/// Tells whether Redis is asked about schedules. A topology without schedules needs no Redis for it.
fn are_looked_at(common: &Common, topology: &Topology) -> anyhow::Result<bool> {
    let has_redis = common.given_redis_url()?.is_some_and(|url| !url.secret().is_empty());
    Ok(!topology.schedules.is_empty() || has_redis && topology.types.values().any(|spec| spec.register))
}

/// Arms the schedules of the file, and removes those that have left it.
pub(crate) async fn arm(common: &Common, topology: &Topology, output: Output) -> anyhow::Result<Vec<Armed>> {
    if !are_looked_at(common, topology)? {
        return Ok(Vec::new());
    }
    let hatchery = connect::connect(common, topology.clone(), "topology apply").await?;
    let changes = hatchery.events().schedules().apply().await;
    hatchery.close().await;
    match changes {
        Ok(changes) => Ok(changes.into_iter().map(Armed::of).collect()),
        // A file without schedules has none to remove most of the time.
        Err(error) if topology.schedules.is_empty() => {
            output.warn(&format!("cannot look for removed schedules in Redis: {error}"));
            Ok(Vec::new())
        }
        Err(error) => {
            let message = format!(
                "the broker is as the file says, but not all schedules are armed: {error}. Run `topology apply` again"
            );
            Err(Ended::new(Exit::Partly, message).into())
        }
    }
}

/// Removes all schedules of a topology that was destroyed. Otherwise Redis would call their events armed and their pauses valid if it is
/// applied again.
pub(crate) async fn remove(common: &Common, topology: &Topology, output: Output) -> anyhow::Result<()> {
    if !are_looked_at(common, topology)? {
        return Ok(());
    }
    let mut without = topology.clone();
    without.schedules.clear();
    let events = connect::builder(common, without, "topology destroy")?.events().map_err(connect::usage)?;
    if let Err(error) = events.schedules().apply().await {
        output.warn(&format!(
            "cannot remove the state of the schedules from Redis: {error}; run `topology destroy` again"
        ));
    }
    Ok(())
}

/// Returns a line for each schedule that was changed.
pub(crate) fn lines(armed: &[Armed]) -> String {
    armed.iter().filter_map(Armed::line).collect()
}
