//! An experiment with bare lapin: events that are due at one instant, in four hatcheries side by side or in one. Would it
//! be worth it to spread one named hatchery over several queues?
//!
//! As in [`instant`](super::instant), the broker is paused until all events are due.

use std::time::Instant;

use super::instant::ahead;
use crate::{
    bare::properties, consumer::Consumer, handled::Handled, load::Load, meter::Measured, objects::Objects, side::Side,
    surroundings::Surroundings,
};

const SHARDS: u32 = 4;
const SCHEDULER: &str = "shards.scheduler";
const PROCESSOR: &str = "shards.processor";

pub(super) async fn run(around: &Surroundings, load: &Load, side: Side) -> anyhow::Result<Measured> {
    let shards = match side {
        Side::Ours => SHARDS,
        Side::Bare => 1,
    };
    let (bare, wait) = (around.bare().await?, load.wait());
    let mut objects = Objects::new(&bare.channel);
    for exchange in [SCHEDULER, PROCESSOR] {
        objects.exchange(exchange).await?;
    }
    objects.queue(PROCESSOR).await?;
    objects.bind(PROCESSOR, PROCESSOR, "each.#").await?;
    for shard in 0..shards {
        let name = format!("shards.hatchery.{shard}");
        objects.timer(&name, wait, PROCESSOR).await?;
        objects.bind(SCHEDULER, &name, &format!("*.{shard}")).await?;
    }

    let first_due = Instant::now() + wait;
    let message = |number| (format!("each.{}", number % shards).into(), properties(number));
    bare.publish(SCHEDULER, load, message).await?;
    let last_due = Instant::now() + wait;
    let handled = Handled::all(load.events);
    let mut consumer = Consumer::bare(around, PROCESSOR, load, &handled).await?;
    ahead(first_due)?;
    let paused = around.pause_broker(last_due).await?;
    let measuring = around.meter.begin()?;
    drop(paused);
    consumer.done().await?;
    let measured = measuring.end_at(handled.all_at()?, load.events)?;

    consumer.close().await?;
    objects.delete().await?;
    bare.close().await?;
    Ok(measured)
}
