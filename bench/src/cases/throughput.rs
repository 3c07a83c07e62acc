//! Publishes, works, and does both at the same time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    handled::Handled,
    load::{Load, Side},
    meter::Measured,
    ours,
    surroundings::Surroundings,
    topology::Type,
};

/// Publishes events that are due now, with confirms.
pub(super) async fn publish(
    around: &Surroundings,
    event_type: Type,
    load: &Load,
    side: Side,
) -> anyhow::Result<Measured> {
    match side {
        Side::Ours => {
            let hatchery = around.hatchery().await?;
            let mut measuring = around.meter.begin()?;
            ours::publish_now(&hatchery, event_type, load).await?;
            measuring.stop_clock();
            // Closing sends what the register still has to learn.
            hatchery.close().await;
            measuring.end(load.events)
        }
        Side::Bare => {
            let bare = around.bare().await?;
            let mut measuring = around.meter.begin()?;
            bare.publish_now(event_type, load).await?;
            measuring.stop_clock();
            bare.close().await?;
            measuring.end(load.events)
        }
    }
}

/// Works on events that wait in the processing queue, with a handler that does nothing.
pub(super) async fn work(
    around: &Surroundings,
    event_type: Type,
    inline: bool,
    load: &Load,
    side: Side,
) -> anyhow::Result<Measured> {
    let hatchery = around.hatchery().await?;
    // Both sides get hatchery's events, with all their headers.
    ours::publish_now(&hatchery, event_type, load).await?;
    let handled = Handled::all(load.events);
    match side {
        Side::Ours => {
            let measuring = around.meter.begin()?;
            ours::work_by(hatchery.worker().inline(inline), event_type, load, Arc::clone(&handled)).await?;
            let measured = measuring.end_at(handled.all_at()?, load.events)?;
            hatchery.close().await;
            Ok(measured)
        }
        Side::Bare => {
            hatchery.close().await;
            let bare = around.bare().await?;
            let measuring = around.meter.begin()?;
            bare.consume(&event_type.queue(), load, &handled).await?;
            let measured = measuring.end_at(handled.all_at()?, load.events)?;
            bare.close().await?;
            Ok(measured)
        }
    }
}

/// Publishes and works at the same time.
pub(super) async fn both(around: &Surroundings, event_type: Type, load: &Load, side: Side) -> anyhow::Result<Measured> {
    match side {
        Side::Ours => {
            let (publishing, working) = (around.hatchery().await?, around.hatchery().await?);
            let measuring = around.meter.begin()?;
            let handled = Handled::all(load.events);
            let publish = tokio::spawn({
                let load = load.clone();
                async move {
                    ours::publish_now(&publishing, event_type, &load).await?;
                    publishing.close().await;
                    anyhow::Ok(())
                }
            });
            ours::work(&working, event_type, load, Arc::clone(&handled)).await?;
            publish.await??;
            let measured = measuring.end_at(handled.all_at()?, load.events)?;
            working.close().await;
            Ok(measured)
        }
        Side::Bare => Ok(bare(around, event_type, load).await?.0),
    }
}

/// Publishes with bare lapin, and consumes all events at the same time. Returns also how long publishing took.
pub(super) async fn bare(around: &Surroundings, event_type: Type, load: &Load) -> anyhow::Result<(Measured, Duration)> {
    let (publishing, working) = (around.bare().await?, around.bare().await?);
    let measuring = around.meter.begin()?;
    let handled = Handled::all(load.events);
    let publish = tokio::spawn({
        let load = load.clone();
        async move {
            let started = Instant::now();
            publishing.publish_now(event_type, &load).await?;
            let took = started.elapsed();
            publishing.close().await?;
            anyhow::Ok(took)
        }
    });
    working.consume(&event_type.queue(), load, &handled).await?;
    let took = publish.await??;
    let measured = measuring.end_at(handled.all_at()?, load.events)?;
    working.close().await?;
    Ok((measured, took))
}
