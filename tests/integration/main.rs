//! Tests against real services, all in one binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod exec;
mod faults;
mod flow;
mod library;
mod migration;
mod register;
mod support;
mod topology;
mod verbs;
