//! Answers on standard output, everything else on standard error; colours on a terminal alone.

use std::io::{self, ErrorKind, IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use hatchery::internals::words::plain;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

pub(crate) const RED: Style = AnsiColor::Red.on_default().bold();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(crate) const CYAN: Style = AnsiColor::Cyan.on_default();
pub(crate) const DIM: Style = Style::new().dimmed();

/// How to answer: for people, as one JSON document, or as one a line.
// A text for each would make `--help` three times as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Ndjson,
}

/// Where answers go.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// How to answer.
    pub(crate) format: Format,
    /// Every line of it, where less would do.
    pub(crate) verbose: bool,
    color: ColorChoice,
}

impl Output {
    pub(crate) fn new(format: Format, no_color: bool, verbose: bool) -> Self {
        Self { format, verbose, color: if no_color { ColorChoice::Never } else { ColorChoice::Auto } }
    }

    /// Whether people read the answer.
    pub(crate) fn is_text(self) -> bool {
        self.format == Format::Text
    }

    /// Whether somebody can be asked.
    pub(crate) fn is_interactive() -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// So many columns has whoever reads the answer: as `COLUMNS` says, or the terminal. Behind a pipe there is no end.
    pub(crate) fn columns() -> usize {
        let said = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let terminal = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
        said.or_else(terminal).filter(|columns| *columns > 0).unwrap_or(usize::MAX)
    }

    /// Whether standard error shows colours.
    pub(crate) fn colors_errors(self) -> bool {
        self.choice(&io::stderr()) != ColorChoice::Never
    }

    /// Writes text, which ends with a newline, and may have colours that are taken out again for a pipe.
    pub(crate) fn print(self, text: &str) -> io::Result<()> {
        let choice = self.choice(&io::stdout());
        let mut out = AutoStream::new(io::stdout().lock(), choice);
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        drop(out);
        self.or_note(written, text.trim_end())
    }

    /// Writes what another program reads, as it is.
    pub(crate) fn raw(bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        unless_closed(out.write_all(bytes).and_then(|()| out.flush()))
    }

    /// Writes a JSON document: indented, or on one line with `-o ndjson`.
    pub(crate) fn json<T: Serialize>(self, value: &T) -> io::Result<()> {
        let text = match self.format {
            Format::Ndjson => serde_json::to_string(value),
            Format::Text | Format::Json => serde_json::to_string_pretty(value),
        };
        let text = text?;
        let written = writeln!(io::stdout().lock(), "{text}");
        self.or_note(written, &text)
    }

    /// What a verb has done is done, also where its answer cannot be written (a full disk): then the answer goes to
    /// standard error. A reader that has seen enough, like `head`, is no error.
    fn or_note(self, written: io::Result<()>, answer: &str) -> io::Result<()> {
        let Err(error) = unless_closed(written) else { return Ok(()) };
        self.note(answer);
        let message = format!("cannot write the answer to standard output, so it is on standard error: {error}");
        Err(io::Error::new(error.kind(), message))
    }

    /// Says something on standard error. Nobody may be there to read it, which is no reason to stop.
    pub(crate) fn note(self, text: &str) {
        let choice = self.choice(&io::stderr());
        let _ = writeln!(AutoStream::new(io::stderr().lock(), choice), "{text}");
    }

    /// A progress bar over bytes, or a count of them where nobody knows how many there will be.
    pub(crate) fn progress(self, bytes: Option<u64>, what: &str) -> ProgressBar {
        let template = match bytes {
            Some(_) => "{msg} {bar:30} {bytes}/{total_bytes}",
            None => "{msg} {spinner} {bytes}",
        };
        self.bar(bytes, template).with_message(what.to_owned())
    }

    /// A progress bar over so many steps, each with its name.
    pub(crate) fn steps(self, total: usize) -> ProgressBar {
        self.bar(u64::try_from(total).ok(), "{bar:30} {pos}/{len} {wide_msg}")
    }

    /// Something that takes as long as it takes, with the name of what it is at.
    pub(crate) fn spinner(self) -> ProgressBar {
        let bar = self.bar(None, "{spinner} {elapsed} {wide_msg}");
        if !bar.is_hidden() {
            bar.enable_steady_tick(std::time::Duration::from_millis(100));
        }
        bar
    }

    /// Hidden unless somebody looks.
    fn bar(self, total: Option<u64>, template: &str) -> ProgressBar {
        if !self.is_text() || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }

    /// Says what may surprise.
    pub(crate) fn warn(self, text: &str) {
        self.note(&format!("{YELLOW}warning{YELLOW:#}: {}", without_controls(text)));
    }

    /// Says what went wrong, and what to look at.
    pub(crate) fn error(self, error: &anyhow::Error, help: Option<&str>) {
        self.note(&format!("{RED}error{RED:#}: {}", without_controls(&told_once(error))));
        if let Some(help) = help {
            self.help(help);
        }
    }

    /// Says what to do about it.
    pub(crate) fn help(self, help: &str) {
        self.note(&format!("{CYAN}help{CYAN:#}: {help}"));
    }

    fn choice(self, stream: &impl anstream::stream::RawStream) -> ColorChoice {
        match self.color {
            ColorChoice::Auto => AutoStream::choice(stream),
            chosen => chosen,
        }
    }
}

/// A message of several lines may hold a stranger's text, whose control characters would act on the terminal.
fn without_controls(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// The whole chain of causes, without those that an outer one has told already.
fn told_once(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told.as_str() {
        "" => cause,
        _ if told.contains(&cause) => told,
        _ => format!("{told}: {cause}"),
    })
}

fn unless_closed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let cause: anyhow::Result<()> = Err(anyhow::anyhow!("gone"));
        let error = cause.context("it is gone").context("cannot read").expect_err("an error");
        assert_eq!(told_once(&error), "cannot read: it is gone");
    }
}
