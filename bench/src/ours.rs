//! hatchery: the library as an application uses it.

use std::{
    convert::Infallible,
    future::ready,
    pin::pin,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, stream};
use hatchery::{CancellationToken, Event, Hatchery, NewEvent, Outcome, Run, Summary};

use crate::{
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
    let publisher = hatchery.publisher().in_flight(WINDOW);
    let event = |number| shape(number, NewEvent::new(event_type.name(), load.payload.clone()));
    let mut published = pin!(publisher.publish_stream(stream::iter(load.numbers().map(event))));
    let mut unversioned = 0_u32;
    while let Some(published) = published.next().await {
        unversioned += u32::from(published.context("an event was not confirmed")?.unversioned);
    }
    ensure!(unversioned == 0, "{unversioned} events got no version in time, because Redis was too slow");
    Ok(())
}

/// Works with a handler that only calls `note`, until this many handlers have run and all is acknowledged.
pub(crate) async fn work(
    hatchery: &Hatchery,
    event_type: Type,
    runs: u32,
    note: impl Fn(&Event) + Send + Sync + 'static,
) -> anyhow::Result<Summary> {
    let (stop, ran) = (CancellationToken::new(), AtomicU32::new(0));
    let stopping = stop.clone();
    let worker = hatchery.worker().handle(event_type.name(), move |run: Run| {
        note(&run.event);
        if ran.fetch_add(1, Ordering::Relaxed) + 1 == runs {
            stopping.cancel();
        }
        ready(Ok::<_, Infallible>(Outcome::Done))
    });
    let summary = worker.run(stop).await?;
    ensure!(summary.done == u64::from(runs), "{} runs were done, and not {runs}", summary.done);
    Ok(summary)
}
