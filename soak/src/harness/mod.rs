//! The common part of the soaks: they begin alike, run workers that are killed and replaced, watch until all is over,
//! and account for every event.

mod account;
mod changes;
pub(crate) mod child;
mod common;
mod crew;
mod look;
mod notes;
mod process;
mod queues;
mod settled;
mod traffic;

pub(crate) use hatchery_soak::{
    chance::Chance,
    console::Console,
    lateness::{Lateness, millis, ratio_row},
    plan::{Plan, Planned, Wait},
    runs::{Run, Runs},
    servers::{Hold, Servers, connect_to_redis},
    stage::Stage,
    table::{Table, grouped},
};

pub(crate) use self::{
    account::{Account, backwards},
    changes::Changes,
    common::Common,
    crew::{Crew, Kills},
    look::{Look, until_over},
    notes::{Note, Notes, Step, finished_twice},
    process::Process,
    queues::{Message, Queues, declare, publish},
    settled::register_key,
    traffic::{PAYLOAD, Working, publish_all, publish_plan, watch},
};
