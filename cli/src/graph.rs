//! The pictures of a topology, as golden files.

use hatchery_admin::graph::*;

mod tests;
