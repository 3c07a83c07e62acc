//! May a type take and start events? Each loop asks once a turn, and does as it is told.
//!
//! A new reason to wait is a signal, a [`Cause`] and a row of the table in the tests. A permit (`isolation.rs`) and the claim ask again
//! before an event starts.

use std::sync::Arc;

use futures_util::future::OptionFuture;
use tokio::{sync::watch, time::Instant};

use super::{breaker::Halt, cause::Cause, lane::Lane, switches::Switch};
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
    /// Nothing starts, and the consumer is cancelled. What has not started stays in memory, because each return counts for RabbitMQ.
    Paused { cause: Cause },
    /// Nothing starts, and the consumer is cancelled. What has not started goes back, but a probe keeps its consumer and its event.
    Leave { cause: Cause },
    /// The worker stops.
    Stop,
}

impl Intake {
    /// Returns how many events may start.
    pub(super) const fn starts(&self) -> usize {
        match self {
            Self::Open { starts } | Self::Probe { starts, .. } => *starts,
            Self::Hold { .. } | Self::Paused { .. } | Self::Leave { .. } | Self::Stop => 0,
        }
    }

    /// Returns why the consumer is a probe, if it is to be one. While a breaker is half-open, a worker may start several events.
    pub(super) const fn probe(&self) -> Option<&Cause> {
        match self {
            Self::Probe { cause: Cause::Breaker, .. } => None,
            Self::Probe { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// Whether a pause or the circuit breaker keeps the events from starting. None of them is a suspect.
    pub(super) const fn is_held(&self) -> bool {
        matches!(
            self,
            Self::Paused { .. } | Self::Hold { cause: Cause::Breaker } | Self::Probe { cause: Cause::Breaker, .. }
        )
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
    switch: Option<Cause>,
    /// Always up for a type without a register.
    register: Health,
    handler: Option<HandlerOutage>,
    /// `None` if the type has no breaker, or it is closed.
    breaker: Option<Halt>,
    is_isolated: bool,
    /// How many events may run beside those that run.
    free: usize,
}

/// Decides. Also returns when to ask again although no signal changes, and how many events could start but for the breaker.
fn decide(signals: Signals, now: Instant) -> (Intake, Option<Instant>, usize) {
    let Signals { stops, switch, register, handler, breaker, is_isolated, free } = signals;
    if stops {
        return (Intake::Stop, None, 0);
    }
    if let Some(cause) = switch {
        return (Intake::Paused { cause }, None, 0);
    }
    if register == Health::Down {
        return (Intake::Leave { cause: Cause::Register }, None, 0);
    }
    let is_late = |at: &Instant| *at > now;
    let again = handler.iter().flat_map(|outage| [outage.next, outage.long_from]).filter(is_late).min();
    let is_early = handler.as_ref().is_some_and(|outage| outage.next > now);
    let most = if handler.is_some() || register == Health::Probing { 1 } else { free };
    let granted = match breaker {
        None => usize::MAX,
        Some(Halt::AllBut { grants }) => grants,
        Some(Halt::All | Halt::Unknown) => 0,
    };
    let could_start = if is_isolated || is_early { 0 } else { free.min(most) };
    let starts = could_start.min(granted);
    let intake = match handler {
        // Nothing is tried, so nothing is known of the handler, and no call tells more of Redis.
        _ if matches!(breaker, Some(Halt::All)) => Intake::Hold { cause: Cause::Breaker },
        _ if register == Health::Probing => Intake::Probe { starts, cause: Cause::RegisterIsBack },
        Some(HandlerOutage { long_from, reason, .. }) if long_from <= now => {
            Intake::Probe { starts, cause: Cause::Handler(reason) }
        }
        _ if is_isolated => Intake::Hold { cause: Cause::Isolation },
        Some(HandlerOutage { reason, .. }) if is_early => Intake::Hold { cause: Cause::Handler(reason) },
        // Only until the next look, so the consumer stays as it is.
        _ if matches!(breaker, Some(Halt::Unknown)) => Intake::Hold { cause: Cause::Breaker },
        _ if breaker.is_some() => Intake::Probe { starts, cause: Cause::Breaker },
        _ => Intake::Open { starts },
    };
    (intake, again, could_start)
}

/// The gate of one type.
pub(super) struct Gate {
    lane: Arc<Lane>,
    switch: Switch,
    register: watch::Receiver<OutageHistory>,
    handler: watch::Receiver<bool>,
    breaker: Option<watch::Receiver<()>>,
    isolated: watch::Receiver<usize>,
    /// Whether the loop knows that the worker stops.
    stops: bool,
}

impl Gate {
    pub(super) fn new(lane: &Arc<Lane>) -> Self {
        let (register, isolated) = (lane.common.health.subscribe(), lane.common.isolation.subscribe());
        let (switch, handler) = (lane.switch.clone(), lane.health.subscribe());
        let breaker = lane.breaker.as_ref().map(|breaker| breaker.subscribe());
        Self { lane: Arc::clone(lane), switch, register, handler, breaker, isolated, stops: false }
    }

    /// Asks. `free`: how many events may run beside those that run. Also returns when to ask again although nothing
    /// [changes](Self::changed), and how many events could start but for the breaker.
    pub(super) fn ask(&mut self, free: usize) -> (Intake, Option<Instant>, usize) {
        let now = Instant::now();
        self.stops = self.lane.common.stop.is_cancelled();
        let register = self.register.borrow_and_update().health();
        if let Some(changes) = &mut self.breaker {
            changes.mark_unchanged();
        }
        let signals = Signals {
            stops: self.stops,
            switch: self.switch.look(),
            register: if self.lane.spec.register { register } else { Health::Up },
            handler: if *self.handler.borrow_and_update() { self.lane.health.outage() } else { None },
            breaker: self.lane.breaker.as_ref().and_then(|breaker| breaker.halt(now)),
            is_isolated: *self.isolated.borrow_and_update() > 0,
            free,
        };
        decide(signals, now)
    }

    /// Waits until a signal changes.
    pub(super) async fn changed(&mut self) {
        tokio::select! {
            () = self.lane.common.stop.cancelled(), if !self.stops => {}
            () = self.switch.changed() => {}
            _ = self.register.changed() => {}
            _ = self.handler.changed() => {}
            _ = self.isolated.changed() => {}
            Some(_) = OptionFuture::from(self.breaker.as_mut().map(watch::Receiver::changed)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::{
        Cause::{Breaker, Handler, Isolation, Register, RegisterIsBack, SwitchesUnread},
        Health::*,
        Intake::{Hold, Leave, Open, Probe, Stop},
        *,
    };
    use crate::domain::switches::Pause;

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

    fn pause() -> Arc<Pause> {
        let text = r#"{"of":"all","by":"person","reason":"R","since":"2026-06-01T12:00:00Z"}"#;
        Arc::new(serde_json::from_str(text).expect("a pause"))
    }

    fn paused() -> Cause {
        Cause::Paused(pause())
    }

    fn unread() -> Cause {
        SwitchesUnread("no right".into())
    }

    #[rstest]
    #[case::open(false, None, Up, well, false, Open { starts: 7 }, None)]
    #[case::a_stop_comes_first(true, None, Down, outage(-1, -1), true, Stop, None)]
    #[case::paused(false, Some(paused()), Up, well, false, Intake::Paused { cause: paused() }, None)]
    #[case::a_pause_comes_first(false, Some(paused()), Down, outage(2, 0), true, Intake::Paused { cause: paused() }, None)]
    #[case::paused_and_redis_is_back(false, Some(paused()), Probing, well, false, Intake::Paused { cause: paused() }, None)]
    #[case::not_read(false, Some(unread()), Up, well, false, Intake::Paused { cause: unread() }, None)]
    #[case::a_stop_while_paused(true, Some(paused()), Up, well, false, Stop, None)]
    #[case::no_redis(false, None, Down, outage(-1, -1), true, Leave { cause: Register }, None)]
    #[case::redis_is_back(false, None, Probing, well, false, Probe { starts: 1, cause: RegisterIsBack }, None)]
    #[case::redis_back_and_one_runs_alone(false, None, Probing, well, true, Probe { starts: 0, cause: RegisterIsBack }, None)]
    #[case::one_runs_alone(false, None, Up, well, true, Hold { cause: Isolation }, None)]
    #[case::no_handler_for_a_moment(false, None, Up, outage(2, 9), false, Hold { cause: refused() }, Some(2))]
    #[case::no_handler_for_a_moment_and_one_is_tried(false, None, Up, outage(0, 9), false, Open { starts: 1 }, Some(9))]
    #[case::no_handler_redis_back(false, None, Probing, outage(2, 9), false, Probe { starts: 0, cause: RegisterIsBack }, Some(2))]
    #[case::no_handler_for_long(false, None, Up, outage(2, 0), false, Probe { starts: 0, cause: refused() }, Some(2))]
    #[case::no_handler_for_long_and_one_is_tried(false, None, Up, outage(0, -9), false, Probe { starts: 1, cause: refused() }, None)]
    #[case::no_handler_for_long_and_one_runs_alone(false, None, Up, outage(0, -9), true, Probe { starts: 0, cause: refused() }, None)]
    #[case::no_handler_for_long_redis_back(false, None, Probing, outage(0, -9), false, Probe { starts: 1, cause: RegisterIsBack }, None)]
    fn an_intake_follows_from_the_signals(
        #[case] stops: bool,
        #[case] switch: Option<Cause>,
        #[case] register: Health,
        #[case] handler: impl Fn(Instant) -> Option<HandlerOutage>,
        #[case] is_isolated: bool,
        #[case] expected: Intake,
        #[case] again: Option<u64>,
    ) {
        let now = Instant::now() + Duration::from_hours(1);
        let handler = handler(now);
        let signals = Signals { stops, switch, register, handler, breaker: None, is_isolated, free: 7 };
        let again = again.map(|seconds| now + Duration::from_secs(seconds));
        let starts = expected.starts();
        assert_eq!(decide(signals.clone(), now), (expected.clone(), again, starts));
        let (full, ..) = decide(Signals { free: 0, ..signals }, now);
        assert_eq!(full.starts(), 0, "nothing more may run");
        assert_eq!(std::mem::discriminant(&full), std::mem::discriminant(&expected));
    }

    #[rstest]
    #[case::open(Halt::All, Up, well, false, Hold { cause: Breaker }, None)]
    #[case::not_known(Halt::Unknown, Up, well, false, Hold { cause: Breaker }, None)]
    #[case::not_known_and_no_handler(Halt::Unknown, Up, outage(0, -9), false, Probe { starts: 0, cause: refused() }, None)]
    #[case::half_open(Halt::AllBut { grants: 3 }, Up, well, false, Probe { starts: 3, cause: Breaker }, None)]
    #[case::half_open_with_many_grants(Halt::AllBut { grants: 9 }, Up, well, false, Probe { starts: 7, cause: Breaker }, None)]
    #[case::half_open_elsewhere(Halt::AllBut { grants: 0 }, Up, well, false, Probe { starts: 0, cause: Breaker }, None)]
    #[case::half_open_and_one_runs_alone(Halt::AllBut { grants: 3 }, Up, well, true, Hold { cause: Isolation }, None)]
    #[case::open_and_no_redis(Halt::All, Down, well, false, Leave { cause: Register }, None)]
    #[case::open_and_redis_is_back(Halt::All, Probing, well, false, Hold { cause: Breaker }, None)]
    #[case::half_open_and_redis_is_back(Halt::AllBut { grants: 3 }, Probing, well, false, Probe { starts: 1, cause: RegisterIsBack }, None)]
    #[case::open_and_no_handler_for_long(Halt::All, Up, outage(2, 0), false, Hold { cause: Breaker }, Some(2))]
    #[case::half_open_and_no_handler_for_a_moment(Halt::AllBut { grants: 3 }, Up, outage(0, 9), false, Probe { starts: 1, cause: Breaker }, Some(9))]
    #[case::half_open_and_no_handler_for_long(Halt::AllBut { grants: 3 }, Up, outage(0, 0), false, Probe { starts: 1, cause: refused() }, None)]
    fn an_intake_follows_from_the_breaker(
        #[case] halt: Halt,
        #[case] register: Health,
        #[case] handler: impl Fn(Instant) -> Option<HandlerOutage>,
        #[case] is_isolated: bool,
        #[case] expected: Intake,
        #[case] again: Option<u64>,
    ) {
        let now = Instant::now() + Duration::from_hours(1);
        let handler = handler(now);
        let signals =
            Signals { stops: false, switch: None, register, handler, breaker: Some(halt), is_isolated, free: 7 };
        let again = again.map(|seconds| now + Duration::from_secs(seconds));
        let (.., but_for_it) = decide(Signals { breaker: None, ..signals.clone() }, now);
        assert_eq!(decide(signals.clone(), now), (expected, again, but_for_it));
        let (full, _, could_start) = decide(Signals { free: 0, ..signals }, now);
        assert_eq!((full.starts(), could_start), (0, 0), "nothing more may run");
    }
}
