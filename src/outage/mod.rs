//! Outages of the broker ([confirms](BrokerOutage), [consumers](ConsumerOutage)), of [the register](RegisterHealth), of
//! [the switches](SwitchesOutage) and of [a handler](HandlerHealth): their state, their log lines and their metrics. A line is written when the state changes, and not for each event.

mod broker;
mod handler;
mod pauses;
mod register;
mod reminder;
mod switches;

pub(crate) use self::{
    broker::{BrokerOutage, ConsumerOutage},
    handler::{HandlerHealth, HandlerOutage},
    pauses::backoff,
    register::{Health, OutageHistory, RegisterHealth, Side},
    reminder::Reminder,
    switches::SwitchesOutage,
};
