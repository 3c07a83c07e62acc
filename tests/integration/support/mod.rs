//! What the tests stand on.

pub(crate) mod clock;
pub(crate) mod redis;
