//! The commands for people: find waiting events, cancel them, reschedule them, run them now.
//!
//! For events that wait, RabbitMQ's queues are not changed. The message of a cancelled event is delivered when it is due, and dropped as stale. A moved
//! event is published again, and its former message is dropped the same way. The register's index only decides which events are
//! looked at; the entry of each event decides the rest.

mod bulk;
mod cancel;
mod counts;
mod dead_letters;
mod error;
mod homes;
mod left_behind;
mod moved;
mod moving;
mod schedules;
mod search;
mod sending;
mod shared;
#[cfg(test)]
mod tests;
mod which;

pub use self::{
    dead_letters::{
        Bounds, DeadLetters, DeadLettersError, Due, Group, Groups, Keep, Letter, LetterQueue, Patience, Seen,
        Selection, Standing, Sweep, Swept, Tally,
    },
    error::EventsError,
    left_behind::LeftBehind,
    moved::{MoveOutcome, PayloadNotKept},
    schedules::{ScheduleChange, ScheduleInfo, Schedules, SchedulesError},
    shared::Events,
    which::EventSelector,
};
