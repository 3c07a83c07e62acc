//! May a type take and start events? Each loop asks once a turn, and does as it is told.
//!
//! A new reason to wait is a signal, a [`Cause`] and a row of the table in the tests.

use std::sync::Arc;

use tokio::{sync::watch, time::Instant};

use super::lane::Lane;
use crate::outage::{HandlerOutage, Health, OutageHistory};

/// What a type may take and start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Intake {
    /// So many events may start.
    Open { starts: usize },
    /// The consumer takes one event at a time, to find out whether the cause is over.
    Probe { starts: usize, cause: Cause },
    /// Nothing starts. The consumer stays, and its prefetch bounds what waits.
    Hold { cause: Cause },
    /// Nothing starts, the consumer is cancelled, and what has not started goes back. A probe keeps its consumer and its event.
    Leave { cause: Cause },
    /// The worker stops.
    Stop,
}

/// Why a type does not run as usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Redis does not answer.
    Register,
    /// Redis answers pings again. Whether it answers a claim shows with the first event.
    RegisterIsBack,
    /// The handler is unavailable, for this reason.
    Handler(String),
    /// An event waits to run alone.
    Isolation,
}

impl Intake {
    /// Returns how many events may start.
    pub(super) const fn starts(&self) -> usize {
        match self {
            Self::Open { starts } | Self::Probe { starts, .. } => *starts,
            Self::Hold { .. } | Self::Leave { .. } | Self::Stop => 0,
        }
    }

    /// Returns why the consumer is a probe, if it is to be one.
    pub(super) const fn probe(&self) -> Option<&Cause> {
        match self {
            Self::Probe { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// Whether other workers may be able to handle the events, because the handler of this one has been unavailable for long.
    pub(super) const fn is_for_others(&self) -> bool {
        matches!(self, Self::Probe { cause: Cause::Handler(_), .. })
    }
}

/// What is known at one time.
#[derive(Clone)]
struct Signals {
    stops: bool,
    /// Always up for a type without a register.
    register: Health,
    handler: Option<HandlerOutage>,
    is_isolated: bool,
    /// How many events may run beside those that run.
    free: usize,
}

/// Decides. Also returns when to ask again although no signal changes.
fn decide(signals: Signals, now: Instant) -> (Intake, Option<Instant>) {
    let Signals { stops, register, handler, is_isolated, free } = signals;
    if stops {
        return (Intake::Stop, None);
    }
    if register == Health::Down {
        return (Intake::Leave { cause: Cause::Register }, None);
    }
    let is_late = |at: &Instant| *at > now;
    let again = handler.iter().flat_map(|outage| [outage.next, outage.long_from]).filter(is_late).min();
    let is_early = handler.as_ref().is_some_and(|outage| outage.next > now);
    let most = if handler.is_some() || register == Health::Probing { 1 } else { free };
    let starts = if is_isolated || is_early { 0 } else { free.min(most) };
    let intake = match handler {
        _ if register == Health::Probing => Intake::Probe { starts, cause: Cause::RegisterIsBack },
        Some(HandlerOutage { long_from, reason, .. }) if long_from <= now => {
            Intake::Probe { starts, cause: Cause::Handler(reason) }
        }
        _ if is_isolated => Intake::Hold { cause: Cause::Isolation },
        Some(HandlerOutage { reason, .. }) if is_early => Intake::Hold { cause: Cause::Handler(reason) },
        _ => Intake::Open { starts },
    };
    (intake, again)
}

/// The gate of one type.
pub(super) struct Gate {
    lane: Arc<Lane>,
    register: watch::Receiver<OutageHistory>,
    handler: watch::Receiver<bool>,
    isolated: watch::Receiver<usize>,
    /// Whether the loop knows that the worker stops.
    stops: bool,
}

impl Gate {
    pub(super) fn new(lane: &Arc<Lane>) -> Self {
        let (register, isolated) = (lane.common.health.subscribe(), lane.common.isolation.subscribe());
        Self { lane: Arc::clone(lane), register, handler: lane.health.subscribe(), isolated, stops: false }
    }

    /// Asks. `free`: how many events may run beside those that run. Also returns when to ask again although nothing
    /// [changes](Self::changed).
    pub(super) fn ask(&mut self, free: usize) -> (Intake, Option<Instant>) {
        self.stops = self.lane.common.stop.is_cancelled();
        let register = self.register.borrow_and_update().health();
        let signals = Signals {
            stops: self.stops,
            register: if self.lane.spec.register { register } else { Health::Up },
            handler: if *self.handler.borrow_and_update() { self.lane.health.outage() } else { None },
            is_isolated: *self.isolated.borrow_and_update() > 0,
            free,
        };
        decide(signals, Instant::now())
    }

    /// Waits until a signal changes.
    pub(super) async fn changed(&mut self) {
        tokio::select! {
            () = self.lane.common.stop.cancelled(), if !self.stops => {}
            _ = self.register.changed() => {}
            _ = self.handler.changed() => {}
            _ = self.isolated.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::{Cause::*, Health::*, Intake::*, *};

    /// The seconds from now until the next run may start, and until the outage is a long one.
    fn outage(next: i64, long_from: i64) -> impl Fn(Instant) -> Option<HandlerOutage> {
        let at = |now: Instant, seconds: i64| {
            let by = Duration::from_secs(seconds.unsigned_abs());
            if seconds < 0 { now - by } else { now + by }
        };
        move |now| {
            let (next, long_from) = (at(now, next), at(now, long_from));
            Some(HandlerOutage { next, long_from, reason: "refused".to_owned() })
        }
    }

    fn well(_: Instant) -> Option<HandlerOutage> {
        None
    }

    fn refused() -> Cause {
        Handler("refused".to_owned())
    }

    #[rstest]
    #[case::open(false, Up, well, false, Open { starts: 7 }, None)]
    #[case::a_stop_comes_first(true, Down, outage(-1, -1), true, Stop, None)]
    #[case::no_redis(false, Down, outage(-1, -1), true, Leave { cause: Register }, None)]
    #[case::redis_is_back(false, Probing, well, false, Probe { starts: 1, cause: RegisterIsBack }, None)]
    #[case::redis_is_back_and_one_runs_alone(false, Probing, well, true, Probe { starts: 0, cause: RegisterIsBack }, None)]
    #[case::one_runs_alone(false, Up, well, true, Hold { cause: Isolation }, None)]
    #[case::no_handler_for_a_moment(false, Up, outage(2, 9), false, Hold { cause: refused() }, Some(2))]
    #[case::no_handler_for_a_moment_and_one_is_tried(false, Up, outage(0, 9), false, Open { starts: 1 }, Some(9))]
    #[case::no_handler_for_a_moment_and_redis_is_back(false, Probing, outage(2, 9), false, Probe { starts: 0, cause: RegisterIsBack }, Some(2))]
    #[case::no_handler_for_long(false, Up, outage(2, 0), false, Probe { starts: 0, cause: refused() }, Some(2))]
    #[case::no_handler_for_long_and_one_is_tried(false, Up, outage(0, -9), false, Probe { starts: 1, cause: refused() }, None)]
    #[case::no_handler_for_long_and_one_runs_alone(false, Up, outage(0, -9), true, Probe { starts: 0, cause: refused() }, None)]
    #[case::no_handler_for_long_and_redis_is_back(false, Probing, outage(0, -9), false, Probe { starts: 1, cause: RegisterIsBack }, None)]
    fn an_intake_follows_from_the_signals(
        #[case] stops: bool,
        #[case] register: Health,
        #[case] handler: impl Fn(Instant) -> Option<HandlerOutage>,
        #[case] is_isolated: bool,
        #[case] expected: Intake,
        #[case] again: Option<u64>,
    ) {
        let now = Instant::now() + Duration::from_hours(1);
        let signals = Signals { stops, register, handler: handler(now), is_isolated, free: 7 };
        let again = again.map(|seconds| now + Duration::from_secs(seconds));
        assert_eq!(decide(signals.clone(), now), (expected.clone(), again));
        let (full, _) = decide(Signals { free: 0, ..signals }, now);
        assert_eq!(full.starts(), 0, "nothing more may run");
        assert_eq!(std::mem::discriminant(&full), std::mem::discriminant(&expected));
    }
}
