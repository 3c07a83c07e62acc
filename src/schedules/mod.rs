//! The effects of schedules that workers, `topology apply` and `topology schedule` share: a change of a state in Redis, and the
//! publishing of an event. `docs/schedules-protocol.md` has the protocol.

mod repair;
mod states;

pub(crate) use self::states::record;
pub use self::{
    repair::{RepairError, Repairer},
    states::{change, time},
};
