//! The file against the broker: what to create, what to put back, and what stands in the way.
//!
//! Nothing is written from here. A plan is a value; the one who carries it out takes its objects in their order.

mod bindings;
mod change;
mod compare;
mod destroy;
mod diff;
mod held;
mod leftover;
mod migrate;
mod ordered;
mod patience;
mod policies;
mod prune;
mod shadow;
mod step;
mod view;

pub use self::{
    change::{Action, Address, Change, Difference, Kind, Need, Object},
    destroy::{Destruction, destruction},
    diff::plan,
    held::Held,
    ordered::{Counts, Plan},
    policies::{APPLY_TO, PRIORITY},
    step::{Dated, Move, Step, Then},
};

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod tests;
