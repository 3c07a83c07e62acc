//! For tests alone: `HATCHERY_KILL_AT=work.claimed:2` kills this process with SIGKILL when it passes that point for the
//! second time. Only with the feature `fail-points`, which no release has.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Signal, getpid, kill_process};

/// Every point, in the order in which an event passes it; then those of a migration. `broker.sent` is passed by a
/// follow-up too, `work.put-aside` by what is moved to be counted anew alone, and `work.released` by what
/// cannot be copied.
const POINTS: [&str; 17] = [
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
    "apply.declared",
    "apply.step",
    "apply.confirmed",
    "apply.moved",
    "apply.deleted",
];

/// Does what the environment says, if it says something.
pub(crate) fn arm() -> anyhow::Result<()> {
    let Ok(text) = std::env::var("HATCHERY_KILL_AT") else { return Ok(()) };
    let (point, passing) = text.split_once(':').unwrap_or((&text, "1"));
    let passing: u32 = passing.parse().with_context(|| format!("HATCHERY_KILL_AT: `{passing}` is no number"))?;
    ensure!(POINTS.contains(&point), "HATCHERY_KILL_AT: there is no point `{point}`");
    let passed = AtomicU32::new(0);
    let configured = fail::cfg_callback(point, move || {
        if passed.fetch_add(1, Ordering::SeqCst) + 1 == passing {
            let _ = kill_process(getpid(), Signal::KILL);
            // Other threads may go on for a moment, this one not.
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
