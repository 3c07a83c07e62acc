//! hatchery's side of the benchmark: the library as an application uses it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use hatchery::{CancellationToken, Hatchery, NewEvent, Outcome};

use crate::load::Load;

pub(crate) async fn connect(topology: &str, amqp: &str, redis: &str) -> Hatchery {
    let topology = hatchery::file::read(topology, "topology.yaml").unwrap();
    let hatchery =
        hatchery::Hatchery::builder(topology).amqp_url(amqp).redis_url(redis).name("bench").connect().await.unwrap();
    hatchery.require_register().await.unwrap();
    hatchery
}

/// Publishes the events. Each has a reference of its own, so that none replaces another.
pub(crate) async fn publish(hatchery: &Hatchery, event_type: &'static str, load: &Load) -> Duration {
    let publisher = hatchery.publisher().in_flight(load.window);
    let payload = bytes::Bytes::from(load.payload.clone());
    let event = move |n: usize| NewEvent::new(event_type, payload.clone()).reference(n.to_string());
    let started = Instant::now();
    let mut published = std::pin::pin!(publisher.publish_stream(stream::iter((0..load.events).map(event))));
    let mut unversioned = 0;
    while let Some(published) = published.next().await {
        unversioned += usize::from(published.unwrap().unversioned);
    }
    assert_eq!(unversioned, 0, "Redis was too slow");
    started.elapsed()
}

/// Works with a handler that does nothing, until all events have run.
pub(crate) async fn work(hatchery: &Hatchery, event_type: &str, load: &Load) -> Duration {
    let (stop, runs, events) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)), load.events);
    let stopping = stop.clone();
    let worker = hatchery.worker().handle(event_type, move |_| {
        if runs.fetch_add(1, Ordering::Relaxed) + 1 == events {
            stopping.cancel();
        }
        async { Ok::<_, String>(Outcome::Done) }
    });
    let started = Instant::now();
    let summary = worker.run(stop).await.unwrap();
    assert_eq!(summary.done, events as u64);
    started.elapsed()
}
