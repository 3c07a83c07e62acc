//! The verbs of `topology`: each has a file or a folder.

pub(crate) mod apply;
pub(crate) mod breaker;
pub(crate) mod completions;
pub(crate) mod dead_letter;
pub(crate) mod destroy;
pub(crate) mod dev;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod graph;
pub(crate) mod init;
pub(crate) mod man;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod publish;
pub(crate) mod schedule;
pub mod schema;
pub(crate) mod serve;
pub(crate) mod source;
pub(crate) mod status;
pub(crate) mod trace;
pub(crate) mod validate;
pub(crate) mod work;
