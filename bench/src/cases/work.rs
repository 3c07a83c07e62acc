//! Works on events that wait in the processing queue, with a handler that does nothing.

use std::sync::Arc;

use crate::{
    handled::Handled, load::Load, meter::Measured, ours, side::Side, surroundings::Surroundings, topology::Type,
};

pub(super) async fn run(
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
