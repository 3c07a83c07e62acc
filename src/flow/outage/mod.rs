//! What does not answer, in the log once and not for each event: [the broker](BrokerOutage), and [the register](RegisterOutage).

mod broker;
mod register;

pub(super) use self::{
    broker::BrokerOutage,
    register::{RegisterOutage, Side},
};
