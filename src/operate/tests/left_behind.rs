//! Events of a type that left the file: those that wait, dead letters included.

use bytes::Bytes;

use super::*;
use crate::{
    domain::{
        register::index::{Cursor, Find, Found, Shown, TypeCounts},
        words::EventType,
    },
    ports::{Index, RegisterError},
};

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
    let behind = events.left_behind(&"import".parse().expect("a word")).await.expect("it answers");
    let behind = behind.expect("an event waits");
    assert_eq!((behind.events, behind.or_more, behind.next_due), (1, true, Some(world.at(600))));
    assert!(index.pages.load(Ordering::SeqCst) <= 100, "{:?}", index.pages);
}
