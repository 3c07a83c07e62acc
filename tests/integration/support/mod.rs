//! What the tests stand on.

pub(crate) mod broker;
pub(crate) mod cli;
pub(crate) mod clock;
pub(crate) mod redis;
