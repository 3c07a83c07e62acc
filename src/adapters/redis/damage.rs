//! Limits how often the log names an index key with a value that the register did not write. No call fails because of
//! such a key, so only the log reports it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How long until the log names such a key again, while calls still meet one.
const PAUSE: Duration = Duration::from_mins(1);

/// When the log last named such a key.
#[derive(Default)]
pub(super) struct Damage(Mutex<Option<Instant>>);

impl Damage {
    /// Whether this caller, and no other one, is to log it now.
    pub(super) fn is_due(&self) -> bool {
        let (mut said, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        let is_due = said.is_none_or(|last| now >= last + PAUSE);
        if is_due {
            *said = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_damaged_key_is_logged_once_a_minute() {
        let damage = Damage::default();
        assert!(damage.is_due() && !damage.is_due());
        tokio::time::advance(PAUSE / 2).await;
        assert!(!damage.is_due());
        tokio::time::advance(PAUSE / 2).await;
        assert!(damage.is_due() && !damage.is_due());
    }
}
