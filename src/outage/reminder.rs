//! Repeats a line of the log while a person has to do something.

use std::time::Duration;

use tokio::time::Instant;

/// The time between two lines.
const EACH: Duration = Duration::from_mins(1);

/// The remedy where a broker or a Redis refuses this program.
pub(super) const REFUSED: &str = "correct the user, the password or its permissions. A URL from a file (AMQP_URL_FILE, \
                                  REDIS_URL_FILE) is read again at each try; for any other, restart this program";

/// When the line was last written.
#[derive(Debug, Default)]
pub(crate) struct Reminder(Option<Instant>);

impl Reminder {
    /// Returns a reminder whose first line was written now, in other words.
    pub(super) fn begun() -> Self {
        Self(Some(Instant::now()))
    }

    /// Whether the line is to be written now: the first time, and each minute. Notes that it is.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.0.is_none_or(|said| said.elapsed() >= EACH);
        if is_due {
            *self = Self::begun();
        }
        is_due
    }
}
