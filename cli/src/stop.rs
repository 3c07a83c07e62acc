//! SIGTERM and SIGINT: the first stops gently, another one at once.

use std::time::{Duration, Instant};

use hatchery::CancellationToken;
use tokio::signal::unix::{SignalKind, signal};

/// Signals that come this soon after the first one are the same one: whoever signals a child and then its group, like
/// timeout(1), means it once.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// What has been asked for.
pub(super) struct Stop {
    /// Begin nothing, and finish what has begun.
    pub(super) gently: CancellationToken,
    /// Finish nothing.
    pub(super) at_once: CancellationToken,
}

impl Stop {
    /// From now on a signal alone does not end the process.
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
            tracing::info!("stopping; what has begun is finished first");
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
