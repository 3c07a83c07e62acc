//! Finds types that were removed from the file while the register still knows events of them.
//!
//! Timer queues belong to no type, so such an event goes on waiting. The queue of its type is a leftover; it is empty,
//! so pruning would remove it. When the event's delay ends, it would then land in `unrouted`, where nobody expects
//! it.

use std::{collections::BTreeSet, time::Duration};

use hatchery::{EventType, Events};

use crate::{admin::Admin, change::LeftTypes, plan::Plan};

/// How long Redis may take to answer for all types together. A plan works without Redis, so it does not wait long.
const LIMIT: Duration = Duration::from_secs(3);

impl Admin {
    /// Asks Redis about the types that the plan leaves over; asks nothing if there are none.
    pub(crate) async fn left_types(&self, plan: &Plan) -> LeftTypes {
        // The names of the file's types, including their former names.
        let types = &self.topology().types;
        let named: BTreeSet<EventType> =
            types.keys().chain(types.values().flat_map(|spec| &spec.renamed_from)).cloned().collect();
        let left: Vec<EventType> = plan.left_types().difference(&named).cloned().collect();
        if left.is_empty() {
            return LeftTypes::default();
        }
        let events = match self.events_to_ask() {
            Ok(Some(events)) => events,
            Ok(None) => return LeftTypes::default(),
            Err(why) => return LeftTypes { known: Vec::new(), unknown: Some((left, why)) },
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

    /// Returns the view of events, which connects to Redis at its first question. A topology without the register may have
    /// no Redis, so without a Redis URL there is nothing to ask.
    fn events_to_ask(&self) -> Result<Option<Events>, String> {
        match self.is_redis_given {
            true => self.events().map(Some).map_err(|error| error.to_string()),
            false if self.uses_register() => Err("no Redis URL is given (REDIS_URL)".to_owned()),
            false => Ok(None),
        }
    }
}
