//! How connections are made, kept, and ended.

mod blocked;
mod channels;
mod cluster;
mod identity;
mod named;
mod secrets;
mod signals;
mod slips;
mod tls;
