//! Says below a list of events which of their types are paused.

use std::{collections::BTreeSet, time::Duration};

use hatchery::{EventInfo, Topology};
use hatchery_admin::{Name, PauseLine, Paused};
use tokio::time::timeout;

use crate::{args::Common, connect, output::Output};

/// How long the broker may take to tell. The events are from Redis, so a person need not wait longer.
const LIMIT: Duration = Duration::from_secs(3);

/// Notes the pauses of these events' types, if the broker tells.
pub(super) async fn note(common: &Common, topology: &Topology, events: &[EventInfo], output: Output) {
    let types: BTreeSet<_> = events.iter().map(|event| &event.event_type).collect();
    if types.is_empty() || !output.is_text() {
        return;
    }
    let Ok(admin) = connect::admin(common, topology.clone(), "topology events") else { return };
    let looking = async { Some((admin.switches().await.ok()??, admin.time().await.ok()?)) };
    let Ok(Some((switches, now))) = timeout(LIMIT, looking).await else { return };
    let pauses = types.into_iter().filter_map(|name| switches.paused(&Paused::Type(Name(name.clone())), now));
    let lines: BTreeSet<String> = pauses
        .map(|pause| {
            let pause = PauseLine::from(pause);
            format!("{} is paused, {}", pause.what(), pause.about())
        })
        .collect();
    for line in lines {
        output.note(&line);
    }
}
