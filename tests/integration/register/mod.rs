//! The register: one suite of rules for the register in memory, for Redis and for a Redis Cluster; then the failures
//! that only Redis can have.

mod access;
pub(crate) mod bench;
mod cluster;
mod connection;
mod damaged;
mod emptied;
mod failover;
mod hot;
mod moving;
mod named_states;
mod owner;
mod owner_programs;
mod random;
mod redis;
mod rules;
mod sentinel;
mod side_by_side;
mod states;
mod stored;
