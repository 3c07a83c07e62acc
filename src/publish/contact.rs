//! Whether the register answers a publisher.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    domain::trouble::Trouble,
    outage::{RegisterHealth, Side},
    ports::RegisterError,
};

/// How long a publisher does not ask the register again after a call without an answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Contact {
    /// Where the register is, without the password.
    url: String,
    /// Until then the register is not asked.
    away: Mutex<Option<Instant>>,
    pub(super) health: RegisterHealth,
}

impl Contact {
    pub(super) fn new(url: String) -> Self {
        Self { url, away: Mutex::new(None), health: RegisterHealth::new(Side::Publisher) }
    }

    /// Whether the register did not answer a moment ago.
    pub(super) fn is_away(&self) -> bool {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        away.is_some_and(|until| Instant::now() < until)
    }

    /// Notes the end of a call that was made at `asked`.
    pub(super) fn ended(&self, asked: Instant, error: Option<&RegisterError>) {
        match error {
            // A key that cannot be read is about its reference alone.
            None | Some(RegisterError::Unreadable { .. }) => self.health.answered(asked),
            Some(error) => self.failed(asked, error),
        }
    }

    /// Notes that a call that was made at `asked` had no answer within this time.
    pub(super) fn is_slow(&self, asked: Instant, limit: Duration) {
        self.failed(asked, &self.late(limit));
    }

    fn failed(&self, asked: Instant, error: &RegisterError) {
        if self.health.failed(asked, error) {
            *self.away.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + ASK_AGAIN);
        }
    }

    fn late(&self, limit: Duration) -> RegisterError {
        let reason = format!("no answer within {limit:?}");
        RegisterError::Unreachable { url: self.url.clone(), trouble: Trouble::Slow, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_that_does_not_answer_in_time_is_named() {
        let error = Contact::new("memory".to_owned()).late(Duration::from_millis(250));
        assert_eq!(error.to_string(), "Redis at memory is slow: no answer within 250ms");
    }
}
