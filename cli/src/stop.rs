//! Handles SIGTERM and SIGINT: the first signal stops gently, a second one stops at once.

use std::time::{Duration, Instant};

use hatchery::CancellationToken;
use tokio::signal::unix::{SignalKind, signal};

/// A second signal this soon after the first counts as the same one: timeout(1), for example, signals the child and
/// then its group.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// The two ways to stop, as tokens that signals cancel.
pub(super) struct Stop {
    /// Begin no new work, and finish the work that has begun.
    pub(super) gently: CancellationToken,
    /// Stop without finishing anything.
    pub(super) at_once: CancellationToken,
}

impl Stop {
    /// Installs the signal handlers. From now on a signal does not end the process by itself.
    pub(super) fn on_signals() -> std::io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (gently, at_once) = (CancellationToken::new(), CancellationToken::new());
        let stop = Self { gently: gently.clone(), at_once: at_once.clone() };
        tokio::spawn(async move {
            let mut next = async || {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            };
            next().await;
            tracing::info!("stopping; work that has begun is finished first, unless a second signal comes");
            gently.cancel();
            let first = Instant::now();
            loop {
                next().await;
                if first.elapsed() > ONE_SIGNAL {
                    return at_once.cancel();
                }
            }
        });
        Ok(stop)
    }
}
