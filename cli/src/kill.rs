//! For tests only: `HATCHERY_KILL_AT=work.claimed:2` kills this process with SIGKILL when it passes that point for the
//! second time. The feature `fail-points` enables this; no release is built with it.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Signal, getpid, kill_process};

/// All points: first those of an event, in the order in which it passes them, then those of an event of a schedule, then those of a
/// message of a source, then those of `dead-letter`, then those of a migration, then those of a pause, then those of a circuit breaker.
/// A follow-up passes `broker.sent` too. Only an event that a worker republishes after its redelivery passes
/// `work.put-aside`. Only an event whose run is given up after its claim passes `work.released`.
const POINTS: [&str; 35] = [
    "publish.reserved",
    "broker.sent",
    "publish.confirmed",
    "publish.recorded",
    "work.delivered",
    "work.put-aside",
    "work.claimed",
    "work.handled",
    "work.released",
    "work.followed-up",
    "work.settled",
    "work.acknowledged",
    "work.schedule-started",
    "work.schedule-armed",
    "work.schedule-ended",
    "source.delivered",
    "source.published",
    "source.confirmed",
    "source.acknowledged",
    "replay.confirmed",
    "replay.settled",
    "discard.kept",
    "apply.declared",
    "apply.step",
    "apply.confirmed",
    "apply.moved",
    "apply.deleted",
    "switches.locked",
    "switches.read",
    "switches.written",
    "breaker.opens",
    "breaker.opened",
    "breaker.notified",
    "breaker.noted",
    "breaker.granted",
];

/// Arms the fail point that `HATCHERY_KILL_AT` names, if it is set. Fails if the variable is malformed or no such point
/// exists.
pub(crate) fn arm() -> anyhow::Result<()> {
    let Ok(text) = std::env::var("HATCHERY_KILL_AT") else { return Ok(()) };
    let (point, passing) = text.split_once(':').unwrap_or((&text, "1"));
    let passing: u32 = passing.parse().with_context(|| format!("HATCHERY_KILL_AT: `{passing}` is no number"))?;
    ensure!(POINTS.contains(&point), "HATCHERY_KILL_AT: there is no point `{point}`");
    let passed = AtomicU32::new(0);
    let configured = fail::cfg_callback(point, move || {
        if passed.fetch_add(1, Ordering::SeqCst) + 1 == passing {
            let _ = kill_process(getpid(), Signal::KILL);
            // Until the kill takes effect, other threads may go on; this one must not pass the point.
            loop {
                std::thread::park();
            }
        }
    });
    if let Err(error) = configured {
        bail!("HATCHERY_KILL_AT: {error}");
    }
    Ok(())
}
