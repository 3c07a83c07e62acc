//! Arms the schedules after an apply.

use hatchery::{Topology, internals::operate::ScheduleChange};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    args::Common,
    connect,
    exit::{Ended, Exit},
    output::{GREEN, Output},
};

/// What an apply has done with a schedule.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
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
    fn of((name, change): (String, ScheduleChange)) -> Self {
        let (change, next) = match change {
            ScheduleChange::Unchanged => ("unchanged", None),
            ScheduleChange::Armed(at) => ("armed", Some(at)),
            ScheduleChange::ArmedAgain(at) => ("armed again", Some(at)),
            ScheduleChange::Paused => ("paused", None),
            ScheduleChange::Removed => ("removed", None),
        };
        Self { name, change, next }
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

/// Arms the schedules of the file, and removes those that have left it. A topology without schedules needs no Redis for it.
pub(crate) async fn arm(common: &Common, topology: &Topology, output: Output) -> anyhow::Result<Vec<Armed>> {
    let has_redis = common.given_redis_url()?.is_some_and(|url| !url.secret().is_empty());
    if topology.schedules.is_empty() && !(has_redis && topology.types.values().any(|spec| spec.register)) {
        return Ok(Vec::new());
    }
    let hatchery = connect::connect(common, topology.clone(), "topology apply").await?;
    let changes = hatchery.events().schedules().apply().await;
    hatchery.close().await;
    match changes {
        Ok(changes) => Ok(changes.into_iter().map(Armed::of).collect()),
        // A file without schedules has none to remove most of the time.
        Err(error) if topology.schedules.is_empty() => {
            output.warn(&format!("whether schedules were removed from the file is not known: {error}"));
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

/// Returns a line for each schedule that was changed.
pub(crate) fn lines(armed: &[Armed]) -> String {
    armed.iter().filter_map(Armed::line).collect()
}
