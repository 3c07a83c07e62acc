//! Applies a change to all events that a search finds.

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

use super::{backend::Events, error::EventsError};
use crate::domain::register::{event_info::EventInfo, filter::Filter};

/// Events in one call. A script over this many takes a few milliseconds, in which Redis serves no other client.
pub(super) const BATCH: usize = 256;

impl Events {
    /// Applies a change to all events that a search finds, in batches, several at a time. After a failed batch no
    /// further one is started; the results of the running ones are still returned.
    ///
    /// A search may find a moved event again at its new time. Each slot is therefore changed once: sixteen bytes are
    /// remembered for each.
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
