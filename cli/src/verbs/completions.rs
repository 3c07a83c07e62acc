//! `topology completions`: prints a shell's completion script.

use clap::Command;
use clap_complete::Shell;

use crate::{exit::Exit, output::Output};

/// Print a shell script that completes verbs and options
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  source <(topology completions bash)      for this shell only
  topology completions zsh > \"${fpath[1]}/_topology\"
  topology completions fish > ~/.config/fish/completions/topology.fish

For every bash:
  topology completions bash > \\
    ~/.local/share/bash-completion/completions/topology")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut topology: Command) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut topology, "topology", &mut script);
    Output::raw(&script)?;
    Ok(Exit::Done)
}
