//! Connections to the broker: how they are made, kept and closed, and that no output shows their passwords.

mod blocked;
mod channels;
mod cluster;
mod named;
mod secrets;
mod signals;
mod slips;
mod tls;
