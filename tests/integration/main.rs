//! Tests against real services, all in one binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod connections;
mod events;
mod exec;
mod faults;
mod flow;
mod http;
mod library;
mod migration;
mod python;
mod register;
mod support;
mod topology;
mod verbs;
