//! The modules that the command line, the tests and the benchmarks use besides the interface. They change in any release.

pub use crate::{
    adapters::{bounded_file, memory, oldest, rabbitmq, redis, secret_url, tls},
    domain::{
        breaker, compile, delay, event, life_cycle, names, reason, register, safety, schedule, settlement, source,
        spec, switches, time, trouble, ttl, versions, whereabouts, wire, words,
    },
};

pub mod in_memory {
    //! A topology without servers.
    pub use crate::connect::InMemory;
}

pub mod schedules {
    //! The effects of schedules.
    pub use crate::schedules::{RepairError, Repairer, change, time};
}

pub mod ports {
    //! The traits through which the event's way reaches RabbitMQ, Redis and the clock.
    pub use crate::ports::*;
}

pub mod records {
    //! The stream of the life of events.
    pub use crate::records::Records;
}

pub mod file {
    //! The keys of `topology.yaml`.
    pub use crate::file::{
        levels::LEVELS,
        table::{Absent, Key, Kind, Level, Short},
    };
}

pub mod meter {
    //! The metrics.
    pub use crate::meter::{Kind, Label, METRICS, Metric};
}
