//! Compares `topology.yaml` with the broker: which objects to create, which to put back, and which differences block
//! the plan.
//!
//! This module does no I/O. A plan is a value; `crate::broker` writes its objects in the plan's order.

mod ack_timeout;
mod bindings;
mod change;
mod compare;
mod destroy;
mod diff;
mod leftover;
mod migrate;
mod obstacles;
mod order;
mod policy_keys;
mod prune;
mod shadow;
mod step;
mod unasked;
mod view;
mod wrong_objects;

pub use self::{
    change::{Action, Address, Change, Difference, Kind, MessageCount, Need, Object},
    destroy::{Destruction, destruction},
    diff::plan,
    obstacles::obstacles,
    order::{Counts, Plan},
    shadow::{Shadowing, shadowing},
    step::{Dated, Move, Step, Then},
    unasked::misrouting,
    wrong_objects::{WrongObject, wrong_objects},
};

#[cfg(test)]
mod tests;
