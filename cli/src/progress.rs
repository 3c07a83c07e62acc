//! The screen of a verb that changes a broker: it asks for approval, shows each step, and stops on a signal.

use std::{
    io::{self, BufRead as _, Write as _},
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use hatchery_admin::Watch;
use indicatif::ProgressBar;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    exit::{Ended, Exit},
    output::Output,
};

/// Shows what a change does. It stops on SIGTERM or SIGINT: unlike a kill, this frees the locks and reports the interruption.
pub(crate) struct Screen {
    output: Output,
    /// The last one shows the steps.
    bars: Mutex<Vec<ProgressBar>>,
}

impl Screen {
    pub(crate) const fn new(output: Output) -> Self {
        Self { output, bars: Mutex::new(Vec::new()) }
    }

    fn on_bars<T>(&self, act: impl FnOnce(&mut Vec<ProgressBar>) -> T) -> T {
        act(&mut self.bars.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Watch for Screen {
    fn note(&self, text: &str) {
        self.output.note(text);
    }

    fn warn(&self, text: &str) {
        self.output.warn(text);
    }

    fn begin(&self, steps: Option<usize>) {
        let bar = steps.map_or_else(|| self.output.spinner(), |steps| self.output.steps(steps));
        self.on_bars(|bars| bars.push(bar));
    }

    fn step(&self, what: &str) {
        self.on_bars(|bars| {
            if let Some(bar) = bars.last() {
                bar.set_message(what.to_owned());
                bar.inc(1);
            }
        });
    }

    fn end(&self) {
        if let Some(bar) = self.on_bars(Vec::pop) {
            bar.finish_and_clear();
        }
    }

    async fn stopped(&self) {
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(mut terminate), Ok(mut interrupt)) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            // Then a signal ends the process.
            _ => std::future::pending().await,
        }
    }
}

/// Asks on the terminal for approval. Fails if the answer is no, or if there is no terminal.
pub(super) fn approve(question: &str, output: Output) -> anyhow::Result<()> {
    if !Output::is_interactive() {
        let message = "approval is needed, and there is no terminal to ask on; nothing was written. \
                       Run it with --auto-approve";
        return Err(Ended::new(Exit::Usage, message).into());
    }
    // Not through `output`: a prompt does not end with a newline.
    write!(io::stderr(), "{question} [y/N] ")?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    if !answer.ends_with('\n') {
        output.note("");
    }
    Err(Ended::new(Exit::Error, "not approved; nothing was written").into())
}
