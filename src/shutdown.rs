//! The signals that ask a program to stop.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Listens for SIGTERM, with which Kubernetes and systemd stop a program, and SIGINT, which is Ctrl-C. The future that it
/// returns ends with the first of them.
///
/// A signal that comes between this call and the first poll of the future counts as well. From this call on, neither
/// signal ends the process by itself, not even a second one. Must be called within a tokio runtime.
///
/// ```no_run
/// # async fn example(worker: hatchery::Worker) -> Result<(), Box<dyn std::error::Error>> {
/// let summary = worker.run_until(hatchery::shutdown_signal()?).await?;
/// println!("{} done, {} given back", summary.done, summary.given_back);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the operating system refuses to register the signal handlers.
pub fn shutdown_signal() -> io::Result<impl Future<Output = ()> + Send> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
