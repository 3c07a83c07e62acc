//! Cancels events that wait in the ladder, each by its reference. The baseline says the same to Redis in the shortest way: a
//! key for each reference, which a worker would have to look up.

use std::{cell::RefCell, time::Duration};

use anyhow::ensure;
use futures_util::{TryStreamExt as _, stream};
use hatchery::EventSelector;
use hatchery_soak::servers::connect_to_redis;
use jiff::Timestamp;

use crate::{
    load::{Load, Side},
    meter::Measured,
    ours,
    surroundings::Surroundings,
    topology::Type,
};

const TYPE: Type = Type::Latest;
/// The level of the ladder whose queue the events wait in, three days at most. They make no hop meanwhile, so the broker has
/// nothing to do.
const LEVEL: u8 = 20;
/// Calls at a time.
const IN_FLIGHT: usize = 100;
/// How long the baseline's keys live, in seconds.
const KEPT: u32 = 3_600;

/// The selection of a call. Each reference has one event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Selection {
    /// All events of the reference.
    Reference,
    /// The event of the reference that is due at this time.
    Date,
}

pub(super) async fn run(
    around: &Surroundings,
    selection: Selection,
    load: &Load,
    side: Side,
) -> anyhow::Result<Measured> {
    let hatchery = around.hatchery().await?;
    // A delay of up to one step less is rounded up to one bit, so publishing may take that long.
    let wait = Duration::from_millis(around.stage.topology.ladder.hold_millis(LEVEL) - 1);
    let dates = RefCell::new(Vec::new());
    let shape = |number: u32, event: hatchery::NewEvent| {
        let date = Timestamp::now() + wait;
        dates.borrow_mut().push(date);
        event.reference(number.to_string()).at(date)
    };
    ours::publish(&hatchery, TYPE, load, shape).await?;
    let dates = dates.into_inner();
    let numbers = stream::iter(load.numbers().map(anyhow::Ok));
    let measured = match side {
        Side::Ours => {
            let events = hatchery.events();
            let measuring = around.meter.begin()?;
            let cancel = async |number: u32| {
                let all = EventSelector::reference(TYPE.name(), number.to_string());
                let selected = match selection {
                    Selection::Reference => all,
                    Selection::Date => all.at(dates[number as usize]),
                };
                let cancelled = events.cancel(&selected).await?;
                let waiting = cancelled.iter().filter(|slot| slot.waiting).count();
                ensure!(waiting == 1, "the cancel of reference {number} found {waiting} waiting events");
                Ok(())
            };
            numbers.map_ok(cancel).try_buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;
            measuring.end(load.events)?
        }
        Side::Bare => {
            let redis = connect_to_redis(&around.stage.servers.redis).await?;
            let measuring = around.meter.begin()?;
            let cancel = async |number: u32| {
                let key = format!("cancelled:{}:{number}", TYPE.name());
                let mut set = redis::cmd("SET");
                set.arg(key).arg(1).arg("EX").arg(KEPT);
                Ok(set.query_async::<()>(&mut redis.clone()).await?)
            };
            numbers.map_ok(cancel).try_buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;
            measuring.end(load.events)?
        }
    };
    hatchery.close().await;
    Ok(measured)
}
