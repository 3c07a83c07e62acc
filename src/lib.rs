//! One file, `topology.yaml`, becomes a RabbitMQ topology that delays, delivers, retries and buries events.

pub mod adapters;
mod connect;
pub mod domain;
pub mod file;
pub mod flow;
pub mod handler;
pub mod ports;

pub use connect::{ConnectError, Hatchery, connect};
pub use domain::{
    event::Event,
    spec::Topology,
    ttl::{Ttl, TtlError, parse_duration},
};
pub use file::{FileError, ReadError, read_file};
pub use flow::{
    publish::{NewEvent, PublishError, Published, Publisher},
    shutdown::{Summary, WorkError, Worker},
};
pub use handler::{Handler, HandlerError, Outcome, Run};
pub use tokio_util::sync::CancellationToken;
