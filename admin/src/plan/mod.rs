//! Compares `topology.yaml` with the broker: which objects to create, which to put back, and which differences block
//! the plan.
//!
//! This module does no I/O. A plan is a value; `crate::broker` writes its objects in the plan's order.

mod bindings;
mod change;
mod compare;
mod destroy;
mod diff;
mod held;
mod kept;
mod leftover;
mod migrate;
mod ordered;
mod patience;
mod policies;
mod prune;
mod shadow;
mod step;
mod view;
mod wrong;

pub use self::{
    change::{Action, Address, Change, Difference, Kind, Need, Object},
    destroy::{Destruction, destruction},
    diff::plan,
    held::Held,
    kept::kept,
    ordered::{Counts, Plan},
    shadow::{Shadowing, shadowing},
    step::{Dated, Move, Step, Then},
    wrong::{WrongObject, wrong_objects},
};

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod tests;
