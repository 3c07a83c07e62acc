//! `topology man`: prints the help texts as manual pages.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Command;
use clap_mangen::Man;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{exit::Exit, help::fitted, output::Output, text::sentence};

/// Print the manual page, or write a page for each verb
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology man | man -l -
  topology man --out ~/.local/share/man/man1
  man topology-plan")]
pub(crate) struct Args {
    /// Write topology.1 and a page for each verb into this folder, which is created if it is missing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The answer of `topology man --out`. Without `--out` it is the page itself.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The pages that were written.
    pages: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, topology: Command, output: Output) -> anyhow::Result<Exit> {
    // The pages do not list the verb `help`.
    let topology = fitted(topology.disable_help_subcommand(true));
    let Some(folder) = &args.out else {
        Output::raw(&page(topology)?)?;
        return Ok(Exit::Done);
    };
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut pages = Vec::new();
    for command in with_verbs(topology) {
        pages.push(write(folder, command)?);
    }
    let answer = Answer { pages };
    output.answer(&answer, || text(answer.pages.len(), folder, Output::columns()))?;
    Ok(Exit::Done)
}

fn text(pages: usize, folder: &Path, columns: usize) -> String {
    sentence(&format!("Written: {pages} pages in {}.", folder.display()), columns)
}

/// Returns a command, its verbs and their verbs, without `help`, which has no page.
pub(crate) fn with_verbs(command: Command) -> Vec<Command> {
    let verbs: Vec<Command> = command.get_subcommands().filter(|verb| verb.get_name() != "help").cloned().collect();
    [command].into_iter().chain(verbs.into_iter().flat_map(with_verbs)).collect()
}

fn write(folder: &Path, command: Command) -> anyhow::Result<PathBuf> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let path = folder.join(format!("{name}.1"));
    fs::write(&path, page(command)?).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Returns the page of a command in roff.
fn page(command: Command) -> io::Result<Vec<u8>> {
    let more = command.get_after_long_help().map(|text| sections(&text.to_string())).unwrap_or_default();
    let has_verbs = command.has_subcommands();
    let version = concat!("topology ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command).manual("hatchery").source(version);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_verbs {
        man.render_subcommands_section(&mut page)?;
    }
    page.extend(more.as_bytes());
    Ok(page)
}

/// Returns the text below the options of `--help` in roff: a line like `Examples:` begins a section of its own,
/// indented lines stay as they are, and roff wraps the others.
fn sections(text: &str) -> String {
    let mut roff = String::new();
    let mut kept = false;
    for line in text.lines() {
        let indented = line.starts_with("  ");
        if kept != indented {
            roff += if indented { ".nf\n" } else { ".fi\n" };
        }
        kept = indented;
        let _ = match title(line) {
            Some(title) => writeln!(roff, ".SH {title}"),
            None if line.is_empty() => writeln!(roff, ".PP"),
            None => writeln!(roff, "{}", escaped(line)),
        };
    }
    if kept {
        roff += ".fi\n";
    }
    roff
}

/// Returns the title of a section in upper case, for a line like `Exit codes:`.
fn title(line: &str) -> Option<String> {
    let title = line.strip_suffix(':')?;
    (title.split(' ').count() <= 2 && !title.starts_with(' ')).then(|| title.to_uppercase())
}

/// Escapes characters that have a meaning in roff.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::screens;

    /// The golden screens: `tests/screens/verbs.txt`. `UPDATE_GOLDEN=1` writes them anew.
    #[test]
    fn an_answer_is_as_it_was_drawn() {
        screens("verbs/man-written", |columns| text(27, Path::new("/usr/local/share/man/man1"), columns));
    }

    #[test]
    fn help_becomes_sections() {
        let help = "Examples:\n  topology plan -v\n  a \\\n\nSome more\n.text.\n\nExit codes:\n  0  done";
        let expected = ".SH EXAMPLES\n.nf\n  topology plan \\-v\n  a \\e\n.fi\n.PP\nSome more\n\\&.text.\n.PP\n.SH EXIT CODES\n.nf\n  0  done\n.fi\n";
        assert_eq!(sections(help), expected);
    }
}
