//! The output of a run: numbered steps, with a progress bar on a terminal and plain lines in a pipe.

use std::{
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Titles, and the heads of tables.
pub const BOLD: Style = Style::new().bold();
/// The style of less important text.
pub const DIM: Style = Style::new().dimmed();
/// A number within its limit.
pub const GREEN: Style = AnsiColor::Green.on_default().bold();
/// A number outside its limit, and errors.
pub const RED: Style = AnsiColor::Red.on_default().bold();

/// How often a pipe gets a line of progress.
const LINE: Duration = Duration::from_secs(2);

/// The output of a run.
pub struct Console {
    started: Instant,
    step: usize,
    bar: Option<ProgressBar>,
    said: Option<(Instant, String)>,
}

impl Console {
    /// Starts the clock.
    pub fn new() -> Self {
        Self { started: Instant::now(), step: 0, bar: None, said: None }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Begins the next step.
    pub fn step(&mut self, title: &str) {
        self.end_progress();
        self.step += 1;
        let (step, seconds) = (self.step, self.elapsed().as_secs_f64());
        self.say(&format!("{BOLD}{step}. {title}{BOLD:#} {DIM}({seconds:.1} s){DIM:#}"));
    }

    /// Writes a line about the step.
    pub fn note(&self, text: &str) {
        self.say(&format!("   {text}"));
    }

    /// Writes a line. A closed standard output is no reason to stop, so failures are ignored.
    pub fn say(&self, text: &str) {
        let write = || drop(writeln!(anstream::stdout(), "{text}"));
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Shows the progress.
    pub fn progress(&mut self, done: usize, total: usize, text: &str) {
        if std::io::stderr().is_terminal() && std::io::stdout().is_terminal() {
            let bar = self.bar.get_or_insert_with(bar);
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(text.to_owned());
            return;
        }
        let line = format!("{done} of {total} finished{text}");
        let due = self.said.as_ref().is_none_or(|(when, said)| when.elapsed() >= LINE && *said != line);
        if due {
            self.note(&line);
            self.said = Some((Instant::now(), line));
        }
    }

    /// Removes the progress bar.
    pub fn end_progress(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.enable_steady_tick(Duration::from_millis(200));
    match ProgressStyle::with_template("   {spinner} {bar:30} {pos}/{len} finished{msg} {elapsed}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
