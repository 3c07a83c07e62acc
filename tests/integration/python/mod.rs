//! A producer and a consumer in Python that implement `docs/wire-format.md` and do not use hatchery.

mod consuming;
mod publishing;

use std::path::PathBuf;

use crate::support::process::{Place, python};

/// Returns the folder of the examples.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/python")
}

/// Returns the command for one of the examples, with a topology called `t` and the small ladder.
fn example(place: &Place<'_>, script: &str, arguments: &[&str]) -> tokio::process::Command {
    let topology = ["--topology", "t", "--ladder", "50ms-5"];
    let mut command = place.program(python());
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", folder());
    command.arg(folder().join(script)).args(arguments).args(topology);
    command
}
