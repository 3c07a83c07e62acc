//! One file, `topology.yaml`, becomes a RabbitMQ topology that delays, delivers, retries and buries events.

pub mod adapters;
pub mod domain;
pub mod file;
pub mod flow;
pub mod handler;
pub mod ports;

pub use domain::{
    settlement::Outcome,
    ttl::{Ttl, TtlError},
};
pub use flow::publish::NewEvent;
