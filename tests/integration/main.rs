//! Integration tests: they run against a real RabbitMQ and a real Redis. One binary holds all of them, so that they
//! share the two servers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

/// Connections to the broker: how they are made, kept and closed, and that no output shows their passwords.
mod connections {
    mod blocked;
    mod channels;
    mod cluster;
    mod named;
    mod secrets;
    mod signals;
    mod slips;
    mod tls;
}
mod dead_letter;
mod dev;
mod events;
/// Programs as handlers: `topology work --exec`.
mod exec {
    mod answers;
    mod environment;
    mod leaks;
    mod programs;
}
mod faults;
/// An event's way through a real broker and a real Redis.
mod flow {
    mod breaker;
    mod classic;
    mod coalescing;
    mod cut;
    mod delays;
    mod expiring;
    mod foreign;
    mod in_order;
    mod in_place;
    mod large;
    mod listed;
    mod once;
    mod outcomes;
    mod paused;
    mod published;
    mod quarantine;
    mod recorded;
    mod redis_away;
    mod stopping;
}
/// Services as handlers: `topology work --http`.
mod http {
    mod answers;
    mod connections;
    mod limits;
    mod service;
}
mod library;
mod migration;
mod pages;
mod python;
mod register;
mod released;
mod schedule;
/// The API of `topology serve`, with clients as other languages have them.
mod serve {
    mod asked;
    mod batches;
    mod changes;
    mod client;
    mod letters;
    mod published;
    mod rights;
    mod shown;
    mod trouble;
}
mod sources;
mod status;
mod support;
mod topology;
/// The commands that need no broker, RabbitMQ's import of `export`, and commands whose output cannot be written.
mod verbs {
    mod answered;
    mod printed;
    mod started;
    mod unwritten;
}
