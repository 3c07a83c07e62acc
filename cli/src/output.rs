//! Writes answers to standard output and everything else to standard error, with colours only on a terminal.

use std::{
    io::{self, ErrorKind, IsTerminal as _, Write as _},
    os::fd::AsFd,
    sync::atomic::{AtomicBool, Ordering},
};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use hatchery::internals::words::plain;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use schemars::JsonSchema;
use serde::Serialize;

use crate::text::{LEAST, beside};

pub(crate) const RED: Style = AnsiColor::Red.on_default().bold();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(crate) const CYAN: Style = AnsiColor::Cyan.on_default();
pub(crate) const DIM: Style = Style::new().dimmed();

/// Whether nobody reads standard output any more.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// The format of answers: text for people, one JSON document, or one JSON document a line.
// No doc comment on the variants: clap would list them and make `--help` three times as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Ndjson,
}

/// Writes answers, notes and progress as the flags ask for.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// The format of answers.
    pub(crate) format: Format,
    /// Whether to show all lines of an answer that could be shortened.
    pub(crate) verbose: bool,
    color: ColorChoice,
}

impl Output {
    pub(crate) fn new(format: Format, no_color: bool, verbose: bool) -> Self {
        Self { format, verbose, color: if no_color { ColorChoice::Never } else { ColorChoice::Auto } }
    }

    /// Returns whether the answer is text for people.
    pub(crate) fn is_text(self) -> bool {
        self.format == Format::Text
    }

    /// Returns whether standard input and standard error are terminals, so that a question can be asked.
    pub(crate) fn is_interactive() -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Returns whether nobody reads standard output any more, as after `head` has ended. An answer that was written since
    /// then is lost, so a verb that answers again and again ends.
    pub(crate) fn is_closed() -> bool {
        IS_CLOSED.load(Ordering::Relaxed)
    }

    /// Returns the width of the answer in columns: `COLUMNS`, or else the terminal's width. A pipe has no limit.
    pub(crate) fn columns() -> usize {
        columns_of(io::stdout())
    }

    /// Returns the width of what goes to standard error in columns: `COLUMNS`, or else the terminal's width. A pipe has no
    /// limit.
    pub(crate) fn error_columns() -> usize {
        columns_of(io::stderr())
    }

    /// Returns the width of a drawing, such as a plan, in columns: that of the answer, but not below [`LEAST`]. A drawing has no
    /// unlimited width, so a pipe gets 80 columns.
    pub(crate) fn drawing_columns() -> usize {
        match Self::columns() {
            usize::MAX => 80,
            columns => columns.max(LEAST),
        }
    }

    /// Returns the number of rows of the terminal that standard output is; none of a pipe.
    pub(crate) fn rows() -> Option<usize> {
        terminal_size::terminal_size_of(io::stdout()).map(|(_, height)| usize::from(height.0))
    }

    /// Returns whether standard error shows colours.
    pub(crate) fn colors_errors(self) -> bool {
        self.choice(&io::stderr()) != ColorChoice::Never
    }

    /// Writes text that ends with a newline. Its colours are removed if standard output is a pipe.
    pub(crate) fn print(self, text: &str) -> io::Result<()> {
        let choice = self.choice(&io::stdout());
        let mut out = AutoStream::new(io::stdout().lock(), choice);
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        drop(out);
        self.or_note(written, text.trim_end())
    }

    /// Writes bytes unchanged, for another program to read.
    pub(crate) fn raw(bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        unless_closed(out.write_all(bytes).and_then(|()| out.flush()))
    }

    /// Writes a JSON document: indented, or on one line with `-o ndjson`. `topology schema` prints its schema.
    pub(crate) fn json<T: Serialize + JsonSchema>(self, value: &T) -> io::Result<()> {
        let text = match self.format {
            Format::Ndjson => serde_json::to_string(value),
            Format::Text | Format::Json => serde_json::to_string_pretty(value),
        };
        let text = text?;
        let written = writeln!(io::stdout().lock(), "{text}");
        self.or_note(written, &text)
    }

    /// Writes an answer: its screen, or with `-o json` and `ndjson` itself.
    pub(crate) fn answer<T: Serialize + JsonSchema>(
        self,
        answer: &T,
        screen: impl FnOnce() -> String,
    ) -> io::Result<()> {
        if self.is_text() { self.print(&screen()) } else { self.json(answer) }
    }

    /// Writes the answer to standard error if it could not be written to standard output, as on a full disk: the verb
    /// has done its work, and the answer is the only record. A closed pipe, as by `head`, is no error.
    fn or_note(self, written: io::Result<()>, answer: &str) -> io::Result<()> {
        let Err(error) = unless_closed(written) else { return Ok(()) };
        self.note(answer);
        let message = format!("cannot write the answer to standard output, so it is on standard error: {error}");
        Err(io::Error::new(error.kind(), message))
    }

    /// Writes a line to standard error. A closed standard error is no reason to stop, so failures are ignored.
    pub(crate) fn note(self, text: &str) {
        let choice = self.choice(&io::stderr());
        let _ = writeln!(AutoStream::new(io::stderr().lock(), choice), "{text}");
    }

    /// Returns a progress bar over this many bytes, or a counter of bytes if the total is unknown.
    pub(crate) fn progress(self, bytes: Option<u64>, what: &str) -> ProgressBar {
        let template = match bytes {
            Some(_) => "{msg} {bar:30} {bytes}/{total_bytes}",
            None => "{msg} {spinner} {bytes}",
        };
        self.bar(bytes, template).with_message(what.to_owned())
    }

    /// Returns a progress bar over this many steps; each step shows its name.
    pub(crate) fn steps(self, total: usize) -> ProgressBar {
        self.bar(u64::try_from(total).ok(), "{bar:30} {pos}/{len} {wide_msg}")
    }

    /// Returns a spinner, for work of unknown length. It shows the name of the current step.
    pub(crate) fn spinner(self) -> ProgressBar {
        let bar = self.bar(None, "{spinner} {elapsed} {wide_msg}");
        if !bar.is_hidden() {
            bar.enable_steady_tick(std::time::Duration::from_millis(100));
        }
        bar
    }

    /// Returns a progress bar, hidden unless standard error is a terminal and the answer is text.
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

    /// Writes a warning to standard error, folded to the width of a terminal.
    pub(crate) fn warn_folded(self, text: &str) {
        self.note(&warning(text, Self::error_columns()));
    }

    /// Writes a warning to standard error.
    pub(crate) fn warn(self, text: &str) {
        self.note(&warning(text, usize::MAX));
    }

    /// Writes an error to standard error, and advice if there is any.
    pub(crate) fn error(self, error: &anyhow::Error, help: Option<&str>) {
        self.note(&format!("{RED}error{RED:#}: {}", without_controls(&told_once(error))));
        if let Some(help) = help {
            self.help(help);
        }
    }

    /// Writes advice to standard error.
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

/// Returns the line or lines of a warning.
pub(crate) fn warning(text: &str, columns: usize) -> String {
    format!("{YELLOW}warning{YELLOW:#}: {}", beside("warning: ".len(), &without_controls(text), columns))
}

fn columns_of(stream: impl AsFd) -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0));
    said.or_else(terminal).filter(|columns| *columns > 0).unwrap_or(usize::MAX)
}

/// Escapes control characters in each line. A message may hold text that a stranger wrote, and its control characters
/// would act on the terminal.
fn without_controls(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// Joins the error and its causes, without the causes whose text an outer one contains already.
fn told_once(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told.as_str() {
        "" => cause,
        _ if told.contains(&cause) => told,
        _ => format!("{told}: {cause}"),
    })
}

fn unless_closed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            IS_CLOSED.store(true, Ordering::Relaxed);
            Ok(())
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_cause_is_printed_once() {
        let cause: anyhow::Result<()> = Err(anyhow::anyhow!("gone"));
        let error = cause.context("it is gone").context("cannot read").expect_err("an error");
        assert_eq!(told_once(&error), "cannot read: it is gone");
    }
}
