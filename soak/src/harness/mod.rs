//! The common part of the soaks: they begin alike, run workers that are killed and replaced, watch until all is over,
//! and account for every event.

mod account;
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
    lock,
    plan::{Plan, Planned, Wait},
    runs::{Run, Runs},
    servers::{Hold, Servers, connect_to_redis},
    stage::Stage,
    table::{Table, grouped},
};

pub(crate) use self::{
    account::{Account, Changes, backwards},
    common::{Common, Sides},
    crew::{Crew, Killed, Killer, Kills},
    look::{Look, PATIENCE, until_over, until_well},
    notes::{Note, Step, finished_twice, of},
    process::Process,
    queues::{Message, Queues, declare, publish},
    settled::register_key,
    traffic::{PAYLOAD, Working, publish_all, publish_plan, publish_shuffled, run_plan, watch},
};
