//! The status of a topology: its findings, and how many events are where.
//!
//! `gather` looks at the broker and at Redis; `findings` and `types` draw the conclusions, without I/O. Whoever asked draws
//! them.

mod commands;
mod failing;
mod finding;
mod findings;
mod gather;
mod in_memory;
mod late;
mod observation;
mod redis;
mod schedules;
mod severity;
mod shadows;
mod silence;
mod strangers;
mod summary;
#[cfg(test)]
mod tests;
mod types;
mod unlisted;
mod wedged;
mod words;
mod workers;

use tokio::time::sleep;

pub(crate) use self::in_memory::{counts as counts_in_memory, status as in_memory, switches as switches_in_memory};
pub use self::{
    finding::{Cure, Failing, Finding, Letters, OpenBreaker, Queue},
    gather::Looks,
    severity::Severity,
    summary::{Document, Found, Status, Verdict},
    types::{SourceLine, TypeLine, Unlisted},
    unlisted::not_listed,
};
use crate::{admin::Admin, error::AdminError, watch::Watch};

impl Admin {
    /// Looks at what is wrong, and at how many events are where; writes nothing. A timer that may be wedged is looked at twice
    /// more, because one reading cannot tell: that takes twelve seconds.
    ///
    /// A Redis or a management API that does not answer is a finding.
    ///
    /// # Errors
    /// When the broker is unreachable or refuses, or it and the management API are of two brokers.
    pub async fn status(&self, watch: &dyn Watch) -> Result<Status, AdminError> {
        let looks = self.looks()?;
        let mut seen = looks.look().await?;
        watch.begin(None);
        while looks.must_look_again(&seen) {
            watch.step("Timers hold due events; looking again, to see whether they leave …");
            sleep(wedged::APART).await;
            match looks.read_again().await {
                Ok(reading) => seen.readings.push(reading),
                Err(error) => {
                    watch.warn(&format!("whether timers are wedged is not known: {error}"));
                    break;
                }
            }
        }
        watch.end();
        Ok(looks.status(&seen))
    }
}
