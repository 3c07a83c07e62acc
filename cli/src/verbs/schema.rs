//! `topology schema`: what an editor completes from.

use crate::{exit::Exit, output::Output};

/// Print the JSON Schema of topology.yaml, for editors
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  topology schema > topology.schema.json

Editors with the YAML language server (VS Code, Neovim, JetBrains, Helix, …)
use it for a file that begins with this line, as the one of `topology init`:
  # yaml-language-server: $schema=./topology.schema.json

Write it anew after an update: it is always that of this very binary. It cannot
see how keys fit together; `topology validate` does.")]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, output: Output) -> anyhow::Result<Exit> {
    output.json(&hatchery::file::schema())?;
    Ok(Exit::Done)
}
