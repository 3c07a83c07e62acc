//! A key of the index that holds what the register did not write. No call fails for it, so the log says it, and not each time.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// It is said again after so long, while calls still meet one.
const PAUSE: Duration = Duration::from_mins(1);

/// When it was last said.
#[derive(Default)]
pub(super) struct Damage(Mutex<Option<Instant>>);

impl Damage {
    /// Whether it is to be said, by this caller alone.
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
    async fn it_is_said_once_a_minute() {
        let damage = Damage::default();
        assert!(damage.is_due() && !damage.is_due());
        tokio::time::advance(PAUSE / 2).await;
        assert!(!damage.is_due());
        tokio::time::advance(PAUSE / 2).await;
        assert!(damage.is_due() && !damage.is_due());
    }
}
