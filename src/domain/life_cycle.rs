//! The life of events: the key of the file, and the records of the stream.

mod key;
mod record;

pub use self::{
    key::{LifeCycle, Told},
    record::{LifeCycleRecord, TransitionName},
};
