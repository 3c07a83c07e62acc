//! The switches of a topology: what is paused. They are on a stream of the broker, and each message is a snapshot of all of them.

mod act;
mod answer;
mod change;
mod file;
mod line;
mod schedules;

pub use self::{
    act::{NotFollowing, Switched, Until},
    answer::ChangedPauses,
    line::PauseLine,
};
