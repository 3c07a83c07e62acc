//! Works on events that are due at one instant. They are published ahead.
//!
//! A hatchery has one TTL, so its events are due in the order and at the rate in which they were published. The broker is
//! therefore paused from the last confirm until the last TTL has passed: when it goes on, all events are due, and its own
//! speed is the limit.

use std::time::{Duration, Instant};

use anyhow::ensure;
use jiff::Timestamp;

use crate::{
    consumer::Consumer,
    handled::Handled,
    load::{Load, Side},
    meter::Measured,
    ours,
    surroundings::Surroundings,
    topology::Type,
};

const TYPE: Type = Type::Each;

/// Where the events wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    Hatchery,
    Ladder,
}

pub(super) async fn run(around: &Surroundings, timer: Timer, load: &Load, side: Side) -> anyhow::Result<Measured> {
    let wait = match timer {
        Timer::Hatchery => around.hatchery_ttl,
        Timer::Ladder => load.wait(),
    };
    let (first_due, due) = (Instant::now() + wait, Timestamp::now() + wait);
    let publishing = around.hatchery().await?;
    // Both sides get hatchery's events, with all their headers.
    ours::publish(&publishing, TYPE, load, |number, event| {
        let event = event.reference(number.to_string());
        match timer {
            Timer::Hatchery => event.delay(wait),
            Timer::Ladder => event.at(due),
        }
    })
    .await?;
    let last_due = Instant::now() + wait;
    publishing.close().await;

    let handled = Handled::all(load.events);
    let mut consumer = Consumer::start(around, TYPE, load, side, &handled).await?;
    ahead(first_due)?;
    let measuring = match timer {
        Timer::Hatchery => {
            let paused = around.pause_broker(last_due).await?;
            let measuring = around.meter.begin()?;
            drop(paused);
            measuring
        }
        Timer::Ladder => {
            tokio::time::sleep_until(first_due.into()).await;
            around.meter.begin()?
        }
    };
    consumer.done().await?;
    let measured = measuring.end_at(handled.all_at()?, load.events)?;
    consumer.close().await?;
    Ok(measured)
}

/// Fails if the first event may be due already.
pub(super) fn ahead(first_due: Instant) -> anyhow::Result<()> {
    let left = first_due.saturating_duration_since(Instant::now());
    ensure!(left > Duration::ZERO, "publishing took longer than the events wait");
    Ok(())
}
