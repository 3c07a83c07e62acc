//! Random delays through the ladder, published at a steady rate that is far below what the broker can do. Measures how late
//! the events are.

use std::{future::ready, sync::Arc, time::Duration};

use anyhow::Context as _;
use futures_util::{TryStreamExt as _, stream};
use hatchery::{Hatchery, NewEvent};
use hatchery_soak::{
    chance::Chance,
    lateness::Lateness,
    plan::{Plan, Planned, Wait},
    runs::Runs,
};
use jiff::Timestamp;

use crate::{
    consumer::Consumer,
    handled::Handled,
    load::{Load, Side},
    meter::Measured,
    surroundings::Surroundings,
    topology::Type,
};

const TYPE: Type = Type::Each;
/// 100 events each tenth of a second are 1,000 events a second.
const BURST: usize = 100;
const EVERY: Duration = Duration::from_millis(100);
/// Both sides of all rounds have the same delays.
const SEED: u64 = 1;

pub(super) async fn run(around: &Surroundings, load: &Load, side: Side) -> anyhow::Result<Measured> {
    let (plan, notes) = (plan(load)?, Runs::default());
    let handled = Arc::new(Handled::awaiting(load.numbers()).noting(notes.clone()));
    let publishing = around.hatchery().await?;
    let mut consumer = Consumer::start(around, TYPE, load, side, &handled).await?;
    let measuring = around.meter.begin()?;
    // Both sides get hatchery's events, with all their headers.
    publish(&publishing, &plan, load).await?;
    consumer.done().await?;
    let measured = measuring.end_at(handled.all_at()?, load.events)?;
    consumer.close().await?;
    publishing.close().await;

    let step = around.stage.topology.ladder.resolution().as_duration();
    let late = Lateness::of(plan.lateness(&notes.all(), step));
    let millis = |permille| anyhow::Ok(f64::from(i32::try_from(late.permille(permille))?) / 1e3);
    Ok(measured.with("late beyond the step, p50", millis(500)?, "ms").with(
        "late beyond the step, p99",
        millis(990)?,
        "ms",
    ))
}

fn plan(load: &Load) -> anyhow::Result<Plan> {
    let (mut chance, longest) = (Chance::new(SEED), u64::try_from((load.wait() / 2).as_millis())?);
    let wait = |_| Wait::Ladder(Duration::from_millis(chance.between(1, longest)));
    let events = load.numbers().map(wait).map(|wait| Planned { event_type: TYPE.name(), wait }).collect();
    Ok(Plan { first: 0, events, burst: BURST, every: EVERY })
}

async fn publish(hatchery: &Hatchery, plan: &Plan, load: &Load) -> anyhow::Result<()> {
    let (publisher, mut turn) = (hatchery.publisher(), tokio::time::interval(plan.every));
    for burst in plan.bursts() {
        turn.tick().await;
        let now = Timestamp::now();
        let events = burst.into_iter().map(|(number, planned)| {
            let event = NewEvent::new(planned.event_type, load.payload.clone()).reference(number.to_string());
            event.at(now + planned.wait.duration())
        });
        let published = publisher.publish_stream(stream::iter(events));
        published.try_for_each(|_| ready(Ok(()))).await.context("an event was not confirmed")?;
    }
    Ok(())
}
