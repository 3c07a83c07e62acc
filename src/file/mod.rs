//! Reading `topology.yaml`.
//!
//! The text becomes a tree in which everything knows its place (`yaml`); the tree is checked key by key against the
//! tables of what there is (`keys`, `section`, `value`), then for keys that must fit together (`check`), and
//! becomes a [`Topology`](crate::Topology) (`assemble`). What is wrong is found all at once and shown with its place ([`FileError`]).
//! The same tables are what [`schema`] prints.

mod amount;
mod assemble;
mod check;
mod defaults;
mod error;
mod field;
mod keys;
mod lines;
mod load;
mod read;
mod schema;
mod section;
mod starter;
mod table;
mod value;
mod yaml;

pub use error::{FileError, Finding, Refusal};
pub use lines::Lines;
pub use load::{ReadError, read_file, read_text};
pub use read::read;
pub use schema::schema;
pub use starter::{SCHEMA_FILE, starter};

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod tests;
