//! Doing something with all events that a search finds.

use std::{
    collections::HashSet,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::{
    Stream, StreamExt as _, TryStreamExt as _,
    stream::{self, TryChunksError},
};
use xxhash_rust::xxh3::xxh3_128;

use super::{error::EventsError, shared::Events};
use crate::domain::register::search::{EventInfo, Filter};

/// Events that go together in one call. A script over so many takes a few milliseconds, in which Redis serves nobody else.
pub(super) const BATCH: usize = 256;

impl Events {
    /// Does something with all events that a search finds, in batches, so many at a time. After a batch that failed no other
    /// is begun; those that are under way are answered all the same.
    ///
    /// An event that is moved may be found again at its new time. Each slot is taken once: what is remembered of it is
    /// sixteen bytes.
    pub(super) fn each_batch<A, F, G>(
        &self,
        filter: &Filter,
        in_flight: usize,
        act: G,
    ) -> impl Stream<Item = Result<A, EventsError>> + Send + 'static + use<A, F, G>
    where
        A: Send + 'static,
        G: Fn(Vec<EventInfo>) -> F + Send + 'static,
        F: Future<Output = Result<Vec<A>, EventsError>> + Send + 'static,
    {
        let (failed, mut taken) = (Arc::new(AtomicBool::new(false)), HashSet::new());
        let (goes_on, fails) = (Arc::clone(&failed), failed);
        self.search(filter)
            .try_filter(move |event| ready(taken.insert(place(event))))
            .try_chunks(BATCH)
            .take_while(move |_| ready(!goes_on.load(Ordering::Relaxed)))
            .map(move |found| {
                let acted = found.map(&act).map_err(|TryChunksError(_, error)| error);
                async move { acted?.await }
            })
            .buffer_unordered(in_flight)
            .inspect_err(move |_| fails.store(true, Ordering::Relaxed))
            .map_ok(|acted| stream::iter(acted.into_iter().map(Ok)))
            .try_flatten()
    }
}

fn place(event: &EventInfo) -> u128 {
    let subject = event.subject();
    xxh3_128(format!("{}\0{}", subject.home(&event.slot), event.slot.field()).as_bytes())
}
