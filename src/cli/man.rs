//! `topology man`: the same help as pages of the manual.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use super::{Cli, args::Common, exit::Exit, output::Output};

/// Print the manual page, or write one for each verb
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  topology man | man -l -
  topology man --out ~/.local/share/man/man1
  man topology-plan")]
pub(crate) struct Args {
    /// Write topology.1 and a page for each verb into this folder, which is made if it is missing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(_: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let mut topology = Cli::command();
    // Only then the verbs know the options that they share.
    topology.build();
    let Some(folder) = &args.out else {
        output.raw(&page(topology)?)?;
        return Ok(Exit::Done);
    };
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let verbs: Vec<Command> = topology.get_subcommands().cloned().collect();
    let mut count = 0;
    for command in [topology].into_iter().chain(verbs) {
        write(folder, command)?;
        count += 1;
    }
    if output.is_text() {
        output.print(&format!("Written: {count} pages in {}.\n", folder.display()))?;
    } else {
        output.json(&serde_json::json!({ "folder": folder, "pages": count }))?;
    }
    Ok(Exit::Done)
}

fn write(folder: &Path, command: Command) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let path = folder.join(format!("{name}.1"));
    fs::write(&path, page(command)?).with_context(|| format!("cannot write {}", path.display()))
}

/// The page of a command in roff.
fn page(command: Command) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).manual("hatchery").render(&mut page)?;
    Ok(page)
}
