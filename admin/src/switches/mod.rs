//! The switches of a topology: what is paused. They are on a stream of the broker, and each message is a snapshot of all of them.

pub(crate) mod act;
mod answer;
pub(crate) mod change;
pub(crate) mod file;
mod line;
pub(crate) mod schedules;

pub use self::{
    act::{NotFollowing, Switched},
    answer::ChangedPauses,
    line::PauseLine,
};
