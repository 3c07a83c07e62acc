//! Watches the clock of this machine beside Redis's: a log line, a metric, and a report for `topology status`.

use std::time::Duration;

use jiff::SignedDuration;
use metrics::gauge;

use super::lane::Common;
use crate::{
    domain::time::{self, TOLERANCE},
    meter,
};

/// How long a report is kept. A worker repeats it every ten seconds.
const KEPT: Duration = Duration::from_mins(1);

pub(super) struct ClockWatch {
    /// How far ahead the clock was when the log said so; zero if it was right.
    said: SignedDuration,
}

impl ClockWatch {
    pub(super) const fn new() -> Self {
        Self { said: SignedDuration::ZERO }
    }

    pub(super) async fn look(&mut self, common: &Common) {
        let Some(ahead) = common.clock.ahead() else { return };
        gauge!(meter::CLOCK_OFFSET).set(ahead.as_secs_f64());
        let is_wrong = time::is_wrong(ahead);
        let wrong = if is_wrong { ahead } else { SignedDuration::ZERO };
        if wrong.saturating_sub(self.said).unsigned_abs() > TOLERANCE {
            self.said = wrong;
            if is_wrong {
                let by = time::words(ahead);
                tracing::warn!("the clock of this machine is {by} Redis's; this worker follows Redis's clock");
            } else {
                tracing::warn!("the clock of this machine is right again");
            }
        }
        if is_wrong && let Err(error) = common.register.report_clock(ahead, KEPT).await {
            tracing::debug!(%error, "`topology status` is not told of the wrong clock");
        }
    }
}
