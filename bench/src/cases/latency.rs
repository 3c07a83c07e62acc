//! How long each step of an event takes at a steady rate. The times to publish are a fixed schedule that waits for nothing, and
//! latencies count from those times: a stall shows in all events that it holds up.

use std::{ops::Range, sync::Arc, thread, time::Duration};

use anyhow::ensure;
use hatchery::NewEvent;
use hatchery_soak::{acknowledged, runs::Runs};
use jiff::Timestamp;
use lapin::{
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::ShortString,
};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    bare::{self, Bare},
    consumer::Consumer,
    handled::Handled,
    load::{Load, Side},
    meter::{Latency, Measured},
    surroundings::Surroundings,
    topology::{SCHEDULER, Type},
};

/// How many seconds of events a round has at most.
pub(super) const SECONDS: u32 = 10;
/// The delays of delayed events are one to eight of these, the steps of the ladder. So each is due when the ladder releases it.
const STEP: Duration = Duration::from_millis(250);

/// The events that are published.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub(super) of: Type,
    /// Events a second.
    pub(super) rate: u32,
    pub(super) is_delayed: bool,
}

/// When the events are to be published.
#[derive(Clone, Copy)]
struct Schedule {
    /// In microseconds since 1970.
    first: i64,
    rate: u32,
}

pub(super) async fn run(around: &Surroundings, stream: Stream, load: &Load, side: Side) -> anyhow::Result<Measured> {
    let Stream { of, rate, is_delayed } = stream;
    let load = Load { events: load.events.min(rate * SECONDS), joined: 1, ..load.clone() };
    let notes = Runs::default();
    let handled = Arc::new(Handled::awaiting(load.numbers()).noting(notes.clone()));
    let mut consumer = Consumer::start(around, of, &load, side, &handled).await?;
    acknowledged::take();
    let measuring = around.meter.begin()?;
    let schedule = Schedule { first: micros() + 100_000, rate };
    let confirms = match side {
        // Both sides get hatchery's delayed events, with all their headers.
        Side::Bare if !is_delayed => publish_bare(around, of, &load, schedule).await?,
        Side::Ours | Side::Bare => publish(around, stream, &load, schedule).await?,
    };
    consumer.done().await?;
    let mut measured = measuring.end_at(handled.all_at()?, load.events)?;
    consumer.close().await?;

    let (runs, acknowledgements) = (notes.all(), acknowledged::take());
    ensure!(acknowledgements.len() >= runs.len(), "some runs were not acknowledged");
    // Connections are opened and scripts are loaded meanwhile.
    let cold = load.events / 10;
    let warm = runs.iter().filter(|run| run.number >= cold);
    measured.latencies = if is_delayed {
        vec![Latency::of("late", warm.map(|run| run.at - run.nbf))?]
    } else {
        let confirms = confirms.into_iter().filter(|(number, _)| *number >= cold);
        let written = runs.iter().zip(acknowledgements).skip(cold as usize);
        vec![
            Latency::of("confirm", confirms.map(|(number, at)| at - schedule.at(number)))?,
            Latency::of("start", warm.map(|run| run.at - schedule.at(run.number)))?,
            Latency::of("ack", written.map(|(run, at)| at - run.at))?,
        ]
    };
    Ok(measured)
}

/// Publishes with the library. Returns when each event was confirmed.
async fn publish(
    around: &Surroundings,
    stream: Stream,
    load: &Load,
    schedule: Schedule,
) -> anyhow::Result<Vec<(u32, i64)>> {
    let hatchery = around.hatchery().await?;
    let publisher = hatchery.publisher();
    let (mut turns, mut confirms) = (schedule.turns(load.numbers()), JoinSet::new());
    while let Some(number) = turns.recv().await {
        let event = NewEvent::new(stream.of.name(), load.payload.clone()).reference(number.to_string());
        let event = if stream.is_delayed { event.delay(STEP * (1 + number % 8)) } else { event };
        let publishing = publisher.publish(event);
        confirms.spawn(async move { publishing.await.map(|_| (number, micros())) });
    }
    let confirms = confirms.join_all().await.into_iter().collect::<Result<_, _>>()?;
    hatchery.close().await;
    Ok(confirms)
}

/// Publishes with bare lapin. Returns when each message was confirmed.
async fn publish_bare(
    around: &Surroundings,
    of: Type,
    load: &Load,
    schedule: Schedule,
) -> anyhow::Result<Vec<(u32, i64)>> {
    let client: Bare = around.bare().await?;
    client.channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let (exchange, key) = (ShortString::from(SCHEDULER), ShortString::from(format!("{}.now", of.name())));
    let (mut turns, mut confirms) = (schedule.turns(load.numbers()), JoinSet::new());
    while let Some(number) = turns.recv().await {
        let (exchange, key, options) = (exchange.clone(), key.clone(), BasicPublishOptions::default());
        let sent = client.channel.basic_publish(exchange, key, options, &load.payload, bare::properties(number));
        let confirm = sent.await?;
        confirms.spawn(async move { bare::confirmed(Some(confirm.await)).map(|()| (number, micros())) });
    }
    let confirms = confirms.join_all().await.into_iter().collect::<Result<_, _>>()?;
    client.close().await?;
    Ok(confirms)
}

impl Schedule {
    /// Returns when this event is to be published, in microseconds since 1970.
    fn at(self, number: u32) -> i64 {
        self.first + i64::from(number) * 1_000_000 / i64::from(self.rate)
    }

    /// Returns the numbers, each at its time. A thread of its own keeps the times, because tokio's timer counts milliseconds.
    fn turns(self, numbers: Range<u32>) -> mpsc::UnboundedReceiver<u32> {
        let (sender, turns) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for number in numbers {
                let left = self.at(number) - micros();
                thread::sleep(Duration::from_micros(left.try_into().unwrap_or_default()));
                if sender.send(number).is_err() {
                    break;
                }
            }
        });
        turns
    }
}

fn micros() -> i64 {
    Timestamp::now().as_microsecond()
}
