//! A batch: one line an event, or a change of events that wait, as JSON.
//!
//! [`Lines`] reads the lines, [`read`] understands one, and [`Batch`] carries them out, many at a time, in their order.

mod change;
mod error;
mod line;
mod lines;
mod under_way;

pub use self::{
    change::{Change, ChangeError, ChangeKind, ChangedEvents, ChosenEvents, Named, selected},
    error::LineError,
    line::{EventLine, Request, event, read},
    lines::{Lines, Numbered},
    under_way::{Answer, AnsweredLine, Batch, Done, Refused},
};
