//! A producer and a consumer in Python that implement `docs/wire-format.md` and do not use hatchery.

mod consuming;
mod keys;
mod publishing;

use std::{path::PathBuf, process::Command, sync::OnceLock};

use crate::support::process::Place;

/// Returns the folder of the examples.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/python")
}

/// Returns a Python interpreter that can import pika. The first one in PATH may be another installation than the one
/// that has the packages.
pub(crate) fn python() -> &'static str {
    static FOUND: OnceLock<&'static str> = OnceLock::new();
    FOUND.get_or_init(|| {
        let knows = |python: &&str| {
            Command::new(python).args(["-c", "import pika"]).output().is_ok_and(|output| output.status.success())
        };
        ["python3", "/usr/bin/python3"].into_iter().find(knows).unwrap_or_else(|| {
            panic!("no Python with pika: `scripts/services install --python`, or `python3 -m pip install pika`")
        })
    })
}

/// Returns the command for one of the examples, with a topology called `t` and the small ladder.
fn example(place: &Place<'_>, script: &str, arguments: &[&str]) -> tokio::process::Command {
    let topology = ["--topology", "t", "--ladder", "50ms-5"];
    let mut command = place.program(python());
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", folder());
    command.arg(folder().join(script)).args(arguments).args(topology);
    command
}
