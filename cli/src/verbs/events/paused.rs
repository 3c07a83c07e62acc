//! Says below a list of events which of their types are paused.

use std::{collections::BTreeSet, time::Duration};

use hatchery::Topology;
use hatchery_admin::{Name, PauseLine, Paused, event_view::EventView};
use serde::Deserialize;
use tokio::time::timeout;

use crate::{args::Common, connect, output::Output, server::Server};

/// How long the broker may take to tell. The events are from Redis, so a person need not wait longer.
const LIMIT: Duration = Duration::from_secs(3);

/// Notes the pauses of these events' types, if the broker tells.
pub(super) async fn note(common: &Common, topology: &Topology, events: &[EventView], output: Output) {
    let types = types(events);
    if types.is_empty() || !output.is_text() {
        return;
    }
    let Ok(admin) = connect::admin(common, topology.clone(), "topology events") else { return };
    let looking = async { Some((admin.switches().await.ok()??, admin.time().await.ok()?)) };
    let Ok(Some((switches, now))) = timeout(LIMIT, looking).await else { return };
    let names = types.into_iter().filter_map(|name| name.parse().ok());
    let pauses = names.filter_map(|name| switches.paused(&Paused::Type(Name(name)), now));
    tell(pauses.map(PauseLine::from), output);
}

/// Notes the pauses of these events' types, if the server tells.
pub(super) async fn note_of(server: &Server, events: &[EventView], output: Output) {
    #[derive(Deserialize)]
    struct Pauses {
        pauses: Vec<PauseLine>,
    }
    let types = types(events);
    if types.is_empty() || !output.is_text() {
        return;
    }
    let Ok(Pauses { pauses }) = server.get("/v1/pauses").await else { return };
    let of = |name: Option<&str>| pauses.iter().find(|pause| pause.is_of_type(name)).cloned();
    tell(types.into_iter().filter_map(|name| of(Some(name)).or_else(|| of(None))), output);
}

fn types(events: &[EventView]) -> BTreeSet<&str> {
    events.iter().map(|event| event.event_type.as_str()).collect()
}

fn tell(pauses: impl Iterator<Item = PauseLine>, output: Output) {
    let lines: BTreeSet<String> =
        pauses.map(|pause| format!("{} is paused, {}", pause.what(), pause.about())).collect();
    for line in lines {
        output.note(&line);
    }
}
