//! Finds types that were removed from the file while the register still knows events of them.
//!
//! Timer queues belong to no type, so such an event goes on waiting. The queue of its type is a leftover; it is empty,
//! so `--prune` would remove it. When the event's delay ends, it would then land in `unrouted`, where nobody expects
//! it.

use std::{collections::BTreeSet, time::Duration};

use anyhow::ensure;
use hatchery::{
    Events, Topology,
    internals::{operate::LeftBehind, time::millis_text, words::EventType},
};
use hatchery_admin::plan::Plan;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    args::Common,
    connect,
    exit::{Ended, Exit},
    output::Output,
};

/// How long Redis may take to answer for all types together. A plan works without Redis, so it does not wait long.
const LIMIT: Duration = Duration::from_secs(3);

/// Asks Redis about types that were removed from the file.
pub(crate) struct Register {
    /// The names of the file's types, including their former names.
    named: BTreeSet<EventType>,
    /// `None` if the topology uses no register and no Redis URL is given; `Err` says why Redis cannot be asked.
    events: Result<Option<Events>, String>,
}

/// The answer of Redis about the types that a plan finds on the broker and not in the file.
#[derive(Clone, Default)]
pub(crate) struct LeftTypes {
    known: Vec<(EventType, LeftBehind)>,
    /// The types that Redis gave no answer about, and the reason.
    unknown: Option<(Vec<EventType>, String)>,
}

/// A type that is no longer in the file and still has events.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LeftType {
    /// The name of the type.
    #[serde(rename = "type")]
    event_type: String,
    /// How many events of it wait; `null` if Redis does not tell.
    events: Option<u64>,
    /// Whether there may be more.
    or_more: bool,
    /// When the next one is due.
    next_due: Option<String>,
}

impl Register {
    /// Prepares the question; `ask` connects to Redis.
    pub(crate) fn new(common: &Common, topology: &Topology) -> Self {
        let former = topology.types.values().flat_map(|spec| &spec.renamed_from);
        let named = topology.types.keys().chain(former).cloned().collect();
        Self { named, events: events(common, topology).map_err(|error| error.to_string()) }
    }

    /// Asks Redis about the types that the plan leaves over; asks nothing if there are none.
    pub(crate) async fn ask(&self, plan: &Plan) -> LeftTypes {
        let left: Vec<EventType> = plan.left_types().difference(&self.named).cloned().collect();
        if left.is_empty() {
            return LeftTypes::default();
        }
        let events = match &self.events {
            Ok(Some(events)) => events,
            Ok(None) => return LeftTypes::default(),
            Err(why) => return LeftTypes { known: Vec::new(), unknown: Some((left, why.clone())) },
        };
        // Outside the future, so that the answers that came in time survive its timeout.
        let (mut known, mut unasked) = (Vec::new(), left.into_iter().peekable());
        let asking = async {
            while let Some(event_type) = unasked.peek() {
                let behind = events.left_behind(event_type).await.map_err(|error| error.to_string())?;
                let event_type = unasked.next();
                known.extend(event_type.zip(behind));
            }
            Ok(())
        };
        let asked =
            tokio::time::timeout(LIMIT, asking).await.unwrap_or_else(|_| Err("Redis does not answer".to_owned()));
        LeftTypes { known, unknown: asked.err().map(|why| (unasked.collect(), why)) }
    }
}

/// Returns the view of events, which connects to Redis at its first question. A topology without the register may have
/// no Redis, so without a Redis URL there is nothing to ask.
fn events(common: &Common, topology: &Topology) -> anyhow::Result<Option<Events>> {
    if common.given_redis_url()?.is_none_or(|url| url.secret().is_empty()) {
        ensure!(topology.types.values().all(|spec| !spec.register), "no Redis URL is given (REDIS_URL)");
        return Ok(None);
    }
    let builder = connect::builder(common, topology.clone(), "topology plan")?;
    Ok(Some(builder.events().map_err(connect::usage)?))
}

impl LeftTypes {
    /// Warns about each type, and advises what to write into the file.
    pub(crate) fn warn(&self, output: Output) {
        for (event_type, LeftBehind { events, or_more, next_due, .. }) in &self.known {
            let more = if *or_more { " or more" } else { "" };
            let (s, verb) = if *events == 1 { ("", "waits") } else { ("s", "wait") };
            let due = next_due.map(|due| format!(", the next one until {}", millis_text(due))).unwrap_or_default();
            output.warn(&format!(
                "`{event_type}` is no longer in the file, and {events}{more} event{s} of it {verb}{due}; \
                 no worker of this file takes them"
            ));
            output.help(&format!(
                "if the type was renamed, write `renamed-from: {event_type}` under its new name; else put it back into the file \
                 until its events have run or are cancelled"
            ));
        }
        if let Some((left, why)) = &self.unknown {
            let names: Vec<String> = left.iter().map(|event_type| format!("`{event_type}`")).collect();
            let names = names.join(", ");
            output.warn(&format!("{names} left the file, and whether events of {names} wait is unknown: {why}"));
        }
    }

    /// Fails if `--prune` would remove the queue of a type that still has events.
    pub(crate) fn allow_pruning(&self) -> Result<(), Ended> {
        let Some((event_type, _)) = self.known.first() else { return Ok(()) };
        let message = format!(
            "`{event_type}` cannot be pruned while events of it wait, see above; nothing was written. `topology apply` \
             without --prune leaves its queues as they are"
        );
        Err(Ended::new(Exit::Blocked, message))
    }

    /// Returns whether `--prune` would be refused.
    pub(crate) fn is_blocked(&self, prune: bool) -> bool {
        prune && !self.known.is_empty()
    }

    /// Returns the types for the JSON document of a plan.
    pub(crate) fn view(&self) -> Vec<LeftType> {
        let known = self.known.iter().map(|(event_type, behind)| LeftType {
            event_type: event_type.to_string(),
            events: Some(behind.events),
            or_more: behind.or_more,
            next_due: behind.next_due.map(millis_text),
        });
        let unknown = self.unknown.iter().flat_map(|(left, _)| left).map(|event_type| LeftType {
            event_type: event_type.to_string(),
            events: None,
            or_more: true,
            next_due: None,
        });
        known.chain(unknown).collect()
    }
}
