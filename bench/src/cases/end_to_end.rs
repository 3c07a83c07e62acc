//! Publishes and works at the same time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    handled::Handled, load::Load, meter::Measured, ours, side::Side, surroundings::Surroundings, topology::Type,
};

pub(super) async fn run(around: &Surroundings, event_type: Type, load: &Load, side: Side) -> anyhow::Result<Measured> {
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
