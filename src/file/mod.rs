//! Reading `topology.yaml`.
//!
//! 1. `yaml` parses the text into a tree in which every value has its place.
//! 2. `section` and `value` check the tree key by key against the tables in `levels`.
//! 3. `check` looks for keys that conflict with each other.
//! 4. `assemble` builds the [`Topology`](crate::Topology).
//!
//! All mistakes are reported at once, each with its place ([`FileError`]). `schema` is printed from the same tables.

mod amount;
mod assemble;
mod breakers;
mod check;
mod defaults;
mod error;
mod field;
mod holding;
mod keys;
pub(crate) mod levels;
mod life_cycle;
mod lines;
mod load;
mod read;
mod schedules;
#[cfg(feature = "internals")]
mod schema;
mod section;
mod sources;
#[cfg(feature = "internals")]
mod starter;
pub(crate) mod table;
mod value;
mod yaml;

pub use error::{FileError, Finding, Refusal};
pub use lines::Lines;
pub use load::{ReadError, read_file, read_text};
pub use read::read;
#[cfg(feature = "internals")]
pub use {
    schema::schema,
    starter::{SCHEMA_FILE, starter},
};

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod tests;
