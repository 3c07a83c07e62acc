//! Events that are due at one instant through two ladders of bare lapin: the bits of the delay with the least significant
//! one first, as hatchery has them, and with the most significant one first.
//!
//! Both ladders have one lookup for each hop: the scheduler and the exchange of each level are bound to the queues of all
//! levels that come later in the key.

use std::time::{Duration, Instant};

use hatchery::internals::delay;
use lapin::types::ShortString;

use super::instant::ahead;
use crate::{
    bare::{Bare, properties},
    consumer::Consumer,
    handled::Handled,
    load::Load,
    meter::Measured,
    objects::Objects,
    side::Side,
    surroundings::Surroundings,
};

const SCHEDULER: &str = "order.scheduler";
const PROCESSOR: &str = "order.processor";
/// The first words of a routing key, a type and the ladder's name.
const BEGUN: &str = "each.order";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    LeastFirst,
    MostFirst,
}

pub(super) async fn run(around: &Surroundings, load: &Load, side: Side) -> anyhow::Result<Measured> {
    let order = match side {
        Side::Ours => Order::LeastFirst,
        Side::Bare => Order::MostFirst,
    };
    let bare = around.bare().await?;
    let ladder = Ladder { like: around.stage.topology.ladder, order };
    let objects = ladder.declare(&bare).await?;
    let handled = Handled::all(load.events);
    let mut consumer = Consumer::bare(around, PROCESSOR, load, &handled).await?;

    let due = Instant::now() + load.wait();
    // The CPU time is that of the whole way. Only the clock begins later.
    let mut measuring = around.meter.begin()?;
    let message = |number| (ladder.key(due.saturating_duration_since(Instant::now())), properties(number));
    bare.publish(SCHEDULER, load, message).await?;
    ahead(due)?;
    tokio::time::sleep_until(due.into()).await;
    measuring.restart_clock();
    consumer.done().await?;
    let measured = measuring.end_at(handled.all_at()?, load.events)?;

    consumer.close().await?;
    objects.delete().await?;
    bare.close().await?;
    Ok(measured)
}

/// A ladder whose place n in the routing key is the bit of one level.
struct Ladder {
    like: delay::Ladder,
    order: Order,
}

impl Ladder {
    async fn declare<'a>(&self, bare: &'a Bare) -> anyhow::Result<Objects<'a>> {
        let places = self.like.levels();
        let mut objects = Objects::new(&bare.channel);
        for exchange in [SCHEDULER, PROCESSOR] {
            objects.exchange(exchange).await?;
        }
        objects.queue(PROCESSOR).await?;
        objects.bind(PROCESSOR, PROCESSOR, "each.#").await?;
        for place in 0..places {
            let (name, ttl) = (name(place), self.like.hold_millis(self.level(place)));
            objects.exchange(&name).await?;
            objects.timer(&name, Duration::from_millis(ttl), &name).await?;
        }
        for spent in 0..=places {
            // At the scheduler no place is spent. At the exchange of a place, this and all earlier ones are.
            let source = if spent == 0 { SCHEDULER.to_owned() } else { name(spent - 1) };
            let begun = format!("*.*{}", ".*".repeat(spent.into()));
            for place in spent..places {
                let zeros = ".0".repeat((place - spent).into());
                objects.bind(&source, &name(place), &format!("{begun}{zeros}.1.#")).await?;
            }
            let zeros = ".0".repeat((places - spent).into());
            objects.bind_exchange(&source, PROCESSOR, &format!("{begun}{zeros}")).await?;
        }
        Ok(objects)
    }

    fn key(&self, delay: Duration) -> ShortString {
        let steps = self.like.steps(delay);
        let bit = |place| if steps >> self.level(place) & 1 == 1 { ".1" } else { ".0" };
        let bits: String = (0..self.like.levels()).map(bit).collect();
        format!("{BEGUN}{bits}").into()
    }

    const fn level(&self, place: u8) -> u8 {
        match self.order {
            Order::LeastFirst => place,
            Order::MostFirst => self.like.levels() - 1 - place,
        }
    }
}

fn name(place: u8) -> String {
    format!("order.ladder.{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_ladders_have_the_same_bits_in_opposite_order() {
        let ttl = |text: &str| text.parse().unwrap();
        let like = delay::Ladder::new(ttl("250ms"), ttl("3s")).unwrap();
        let key = |order| Ladder { like, order }.key(Duration::from_millis(2_100)).to_string();
        assert_eq!(key(Order::LeastFirst), "each.order.1.0.0.1");
        assert_eq!(key(Order::MostFirst), "each.order.1.0.0.1");
        let key = |order| Ladder { like, order }.key(Duration::from_millis(700)).to_string();
        assert_eq!(key(Order::LeastFirst), "each.order.1.1.0.0");
        assert_eq!(key(Order::MostFirst), "each.order.0.0.1.1");
    }
}
