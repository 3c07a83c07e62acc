//! Integration tests: they run against a real RabbitMQ and a real Redis. One binary holds all of them, so that they
//! share the two servers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod connections;
mod dead_letter;
mod dev;
mod events;
mod exec;
mod faults;
mod flow;
mod http;
mod library;
mod migration;
mod pages;
mod python;
mod register;
mod released;
mod schedule;
mod serve;
mod sources;
mod status;
mod support;
mod topology;
mod verbs;
