//! The modules that the command line, the tests and the benchmarks use besides the interface. They change in any release.

pub use crate::{
    adapters::{bounded_file, memory, rabbitmq, redis, secret_url, tls},
    domain::{
        compile, delay, event, names, register, safety, settlement, spec, time, trouble, ttl, versions, wire, words,
    },
};

pub mod flow {
    //! The event's way.
    pub use crate::flow::events;
}

pub mod ports {
    //! What the event's way needs from outside.
    pub use crate::ports::*;
}
