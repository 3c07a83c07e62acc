//! `topology schema`: prints the JSON Schema from which editors complete.

use crate::{exit::Exit, output::Output};

/// Print the JSON Schema of topology.yaml, for editors
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology schema > topology.schema.json

Editors with the YAML language server (VS Code, Neovim, JetBrains, Helix, …)
use it for a file that begins with this line, as `topology init` writes it:
  # yaml-language-server: $schema=./topology.schema.json

Write the schema anew after an update: it belongs to this version of `topology`.
It does not check keys against each other; `topology validate` does.")]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, output: Output) -> anyhow::Result<Exit> {
    output.json(&hatchery::file::schema())?;
    Ok(Exit::Done)
}
