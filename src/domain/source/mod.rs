//! A source: a queue of foreign messages, and the rules that turn each message into events.
//!
//! [`map`] applies the rules. It is a pure function: the worker publishes what it returns, and `topology source test`
//! prints it.

mod date;
mod mapping;
mod pointer;
mod spec;

pub use self::{
    mapping::{Mapped, Unmappable, id_of, map},
    pointer::{Pointer, PointerError},
    spec::{Condition, Constant, Intake, ReferenceFrom, Rule, SourceSpec, Unmatched},
};

#[cfg(test)]
mod tests;
