//! hatchery: the library as an application uses it.

use std::{convert::Infallible, future::ready, ops::Range, pin::pin, sync::Arc};

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, stream};
use hatchery::{CancellationToken, Hatchery, NewEvent, Outcome, Run, Summary, Worker};

use crate::{
    handled::Handled,
    load::{Load, WINDOW},
    topology::Type,
};

/// Publishes the events that are due now. Each has a reference of its own, so that none replaces another.
pub(crate) async fn publish_now(hatchery: &Hatchery, event_type: Type, load: &Load) -> anyhow::Result<()> {
    publish(hatchery, event_type, load, |number, event| event.reference(number.to_string())).await
}

/// Publishes the events, each as `shape` changes it, and waits for all confirms.
pub(crate) async fn publish(
    hatchery: &Hatchery,
    event_type: Type,
    load: &Load,
    shape: impl Fn(u32, NewEvent) -> NewEvent,
) -> anyhow::Result<()> {
    publish_numbers(hatchery, event_type, load, load.numbers(), shape).await
}

/// Publishes the events with these numbers.
pub(crate) async fn publish_numbers(
    hatchery: &Hatchery,
    event_type: Type,
    load: &Load,
    numbers: Range<u32>,
    shape: impl Fn(u32, NewEvent) -> NewEvent,
) -> anyhow::Result<()> {
    let publisher = hatchery.publisher().in_flight(WINDOW);
    let event = |number| shape(number, NewEvent::new(event_type.name(), load.payload.clone()));
    let mut published = pin!(publisher.publish_stream(stream::iter(numbers.map(event))));
    let mut unversioned = 0_u32;
    while let Some(published) = published.next().await {
        unversioned += u32::from(published.context("an event was not confirmed")?.unversioned);
    }
    ensure!(unversioned == 0, "{unversioned} events got no version in time, because Redis was too slow");
    Ok(())
}

/// Works with a handler that only marks its event, until all awaited events are handled and acknowledged.
pub(crate) fn work(
    hatchery: &Hatchery,
    event_type: Type,
    load: &Load,
    handled: Arc<Handled>,
) -> impl Future<Output = anyhow::Result<Summary>> + Send + use<> {
    work_by(hatchery.worker(), event_type, load, handled)
}

/// Works with this worker.
pub(crate) fn work_by(
    worker: Worker,
    event_type: Type,
    load: &Load,
    handled: Arc<Handled>,
) -> impl Future<Output = anyhow::Result<Summary>> + Send + use<> {
    let (stop, limit, marks) = (CancellationToken::new(), load.limit(), Arc::clone(&handled));
    let stopping = stop.clone();
    let worker = worker.handle(event_type.name(), move |run: Run| {
        if marks.event(&run.event) {
            stopping.cancel();
        }
        ready(Ok::<_, Infallible>(Outcome::Done))
    });
    async move { handled.by(limit, async { Ok(worker.run(stop).await?) }).await }
}
