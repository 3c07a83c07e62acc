//! Tests of the whole command line.

mod documentation;
mod graph;
