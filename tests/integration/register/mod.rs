//! The register: one suite of rules for the fake and for Redis, then what Redis alone can get wrong.

mod bench;
mod connection;
mod random;
mod redis;
mod rules;
mod stored;
