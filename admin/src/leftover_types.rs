//! Finds types that were removed from the file while the register still knows events of them.
//!
//! Timer queues belong to no type, so such an event goes on waiting. The queue of its type is a leftover; it is empty,
//! so pruning would remove it. When the event's delay ends, it would then land in `unrouted`, where nobody expects
//! it.

use std::{collections::BTreeSet, time::Duration};

use hatchery::{
    EventInfo, EventType, Events, RegisterError, State,
    internals::register::{
        Subject,
        index::{Find, Found},
    },
};

use crate::{
    admin::Admin,
    plan::Plan,
    results::{LeftoverType, LeftoverTypes},
};

/// How long a busy Redis may take to answer for all types together. One whose port is closed refuses at once.
const LIMIT: Duration = Duration::from_secs(10);

/// Events that are counted at most.
const MOST: u64 = 1_000;

/// Events of a page.
const PAGE: usize = 500;

/// Pages of overdue events that are read at most. They include dead letters, of which there may be very many.
const DUE_PAGES: usize = 20;

impl Admin {
    /// Asks Redis about the types that the plan leaves over; asks nothing if there are none.
    pub(crate) async fn left_types(&self, plan: &Plan) -> LeftoverTypes {
        // The names of the file's types, including their former names.
        let types = &self.topology().types;
        let named: BTreeSet<EventType> =
            types.keys().chain(types.values().flat_map(|spec| &spec.renamed_from)).cloned().collect();
        let left: Vec<EventType> = plan.left_types().difference(&named).cloned().collect();
        if left.is_empty() {
            return LeftoverTypes::default();
        }
        let events = match self.events_to_ask() {
            Ok(Some(events)) => events,
            Ok(None) => return LeftoverTypes::default(),
            Err(why) => return LeftoverTypes { known: Vec::new(), unknown: Some((left, why)) },
        };
        // Outside the future, so that the answers that came in time survive its timeout.
        let (mut known, mut unasked) = (Vec::new(), left.into_iter().peekable());
        let asking = async {
            while let Some(event_type) = unasked.peek() {
                let behind = left_behind(&events, event_type).await.map_err(|error| error.to_string())?;
                let event_type = unasked.next();
                known.extend(event_type.zip(behind));
            }
            Ok(())
        };
        let asked =
            tokio::time::timeout(LIMIT, asking).await.unwrap_or_else(|_| Err("Redis does not answer".to_owned()));
        LeftoverTypes { known, unknown: asked.err().map(|why| (unasked.collect(), why)) }
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

/// Counts the events of a type that wait, run or are retried, also if the file does not have the type. `None` means there are
/// none. Dead letters do not count, because they are visible in their queue.
async fn left_behind(events: &Events, event_type: &EventType) -> Result<Option<LeftoverType>, RegisterError> {
    let now = events.shared.clock.shared();
    let mut behind = LeftoverType { events: 0, or_more: false, next_due: None };
    let first = Find::first(event_type.clone(), PAGE);
    let due = Find { due_before: Some(now), ..first.clone() };
    let not_due = Find { due_from: Some(now), ..first };
    count_waiting(events, due, DUE_PAGES, &mut behind).await?;
    count_waiting(events, not_due, usize::MAX, &mut behind).await?;
    Ok((behind.events > 0).then_some(behind))
}

async fn count_waiting(
    events: &Events,
    mut find: Find,
    pages: usize,
    behind: &mut LeftoverType,
) -> Result<(), RegisterError> {
    let subject = Subject { event_type: find.event_type.clone(), reference: None, id: String::new() };
    for _ in 0..pages {
        let Found { events: found, next } = events.shared.index.find(&find).await?;
        for known in found.into_iter().map(|shown| EventInfo::of(&subject, shown)) {
            if matches!(known.state, State::Waiting | State::Running | State::Retry) {
                behind.events += 1;
                behind.next_due = behind.next_due.or(known.due);
            }
        }
        if next.is_none() {
            return Ok(());
        }
        if behind.events >= MOST {
            break;
        }
        find.after = next;
    }
    behind.or_more = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use async_trait::async_trait;
    use hatchery::{
        DedupSlot,
        bytes::Bytes,
        internals::{
            memory::MemoryRegister,
            ports::Index,
            register::{
                Terms,
                index::{Cursor, Shown, TypeCounts},
            },
        },
    };

    use super::*;
    use crate::events::World;

    /// An index with dead letters without end, and behind them what the register holds.
    struct DeadLetters {
        register: Arc<MemoryRegister>,
        pages: AtomicUsize,
    }

    #[async_trait]
    impl Index for DeadLetters {
        async fn find(&self, find: &Find) -> Result<Found, RegisterError> {
            if find.due_from.is_some() {
                return self.register.find(find).await;
            }
            self.pages.fetch_add(1, Ordering::SeqCst);
            Ok(Found { events: Vec::new(), next: Some(Cursor::default()) })
        }

        async fn count(&self, types: &[EventType]) -> Result<Vec<TypeCounts>, RegisterError> {
            self.register.count(types).await
        }

        async fn look(&self, _: &[Subject]) -> Result<Vec<Vec<Shown>>, RegisterError> {
            unreachable!("nobody looks")
        }

        async fn look_at(&self, _: &[(Subject, DedupSlot)]) -> Result<Vec<Option<Shown>>, RegisterError> {
            unreachable!("nobody looks")
        }

        async fn cancelled_runs(&self, _: &[(Subject, DedupSlot, Terms)]) -> Result<Vec<bool>, RegisterError> {
            unreachable!("nobody waits")
        }

        async fn kept(&self, _: &[(Subject, DedupSlot)]) -> Result<Vec<Option<Bytes>>, RegisterError> {
            unreachable!("nobody looks")
        }
    }

    #[tokio::test]
    async fn an_event_is_found_behind_any_number_of_dead_letters() {
        let world = World::new();
        world.put("import", "1234", "a", "i", false).await;
        let index = Arc::new(DeadLetters { register: world.register.clone(), pages: AtomicUsize::new(0) });
        let World { topology, broker, register, clock, .. } = &world;
        let events = Events::new(topology.clone(), broker.clone(), register.clone(), index.clone(), clock.clone());
        let behind = left_behind(&events, &"import".parse().expect("a word")).await.expect("it answers");
        let behind = behind.expect("an event waits");
        assert_eq!((behind.events, behind.or_more, behind.next_due), (1, true, Some(world.at(600))));
        assert!(index.pages.load(Ordering::SeqCst) <= 100, "{:?}", index.pages);
    }
}
