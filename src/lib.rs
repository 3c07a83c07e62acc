//! One file, `topology.yaml`, becomes a RabbitMQ topology that delays, delivers, retries and buries events.

pub mod domain;
pub mod file;
pub mod ports;

pub use domain::ttl::{Ttl, TtlError};
