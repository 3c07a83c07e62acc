//! Publishes events that are due now, with confirms.

use crate::{load::Load, meter::Measured, ours, side::Side, surroundings::Surroundings, topology::Type};

pub(super) async fn run(around: &Surroundings, event_type: Type, load: &Load, side: Side) -> anyhow::Result<Measured> {
    match side {
        Side::Ours => {
            let hatchery = around.hatchery().await?;
            let mut measuring = around.meter.begin()?;
            ours::publish_now(&hatchery, event_type, load).await?;
            measuring.stop_clock();
            // What the register still has to learn is sent now.
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
