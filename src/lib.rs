//! One file, `topology.yaml`, becomes a RabbitMQ topology that delays, delivers, retries and buries events.

pub mod adapters;
pub mod domain;
pub mod ports;

pub use domain::ttl::{Ttl, TtlError};
