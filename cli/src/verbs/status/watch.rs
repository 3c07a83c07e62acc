//! Draws one screen over the last one on a terminal, and one below the other elsewhere.

use std::{
    io::{self, IsTerminal as _},
    pin::pin,
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

use crate::output::Output;

/// Goes to the first line of the screen, and clears the screen. What scrolled away before stays.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// How long a look takes at most while nothing is wrong with the broker.
const USUAL: Duration = Duration::from_secs(1);

pub(super) struct Watch {
    interrupt: Signal,
    terminate: Signal,
    output: Output,
    is_terminal: bool,
}

impl Watch {
    /// From now on a signal does not end the process by itself.
    pub(super) fn start(output: Output) -> io::Result<Self> {
        let is_terminal = output.is_text() && io::stdout().is_terminal();
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, output, is_terminal })
    }

    /// Waits for SIGINT or SIGTERM.
    pub(super) async fn stopped(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Draws the screen on a terminal. Elsewhere prints the answer by `show`.
    pub(super) fn draw(&self, screen: &str, show: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if !self.is_terminal {
            return show();
        }
        // Clearing is no colour, so it does not go through the output, which may remove escapes.
        Output::raw(CLEAR.as_bytes())?;
        self.output.print(screen)
    }

    /// Tells that a look failed, and of when the last screen is, which stays.
    pub(super) fn fail(&self, error: &anyhow::Error, drawn: Option<Timestamp>) {
        self.output.warn(&format!("{error:#}{}", drawn.map(|at| format!("; {}", age(at))).unwrap_or_default()));
    }
}

/// Waits for a look. On a terminal, one that takes longer than usual says so below the last screen.
pub(super) async fn looking<T>(look: impl Future<Output = T>, drawn: Option<Timestamp>, output: Output) -> T {
    let mut look = pin!(look);
    if let Ok(looked) = timeout(USUAL, &mut look).await {
        return looked;
    }
    let spinner = output.spinner();
    spinner.set_message(drawn.map_or_else(|| "looking …".to_owned(), |at| format!("looking again; {}", age(at))));
    let looked = look.await;
    spinner.finish_and_clear();
    looked
}

fn age(at: Timestamp) -> String {
    format!("what is shown is of {}", at.strftime("%Y-%m-%d %H:%M:%SZ"))
}
