//! Plans which events are published when, and computes when each is due. The functions are pure.

use std::{ops::Range, time::Duration};

use crate::runs::Run;

/// Events that are published in bursts, in this order. An event's number is its id.
#[derive(Clone)]
pub struct Plan {
    /// The number of the first event.
    pub first: u32,
    /// The events, in the order in which they are published.
    pub events: Vec<Planned>,
    /// The number of events in a burst.
    pub burst: usize,
    /// The time between two bursts.
    pub every: Duration,
}

/// An event of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// The event's type.
    pub event_type: &'static str,
    /// How long it waits.
    pub wait: Wait,
}

/// An event's delay.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// A delay that a named hatchery makes.
    Named(Duration),
    /// A delay that the ladder makes, which rounds it up to its step.
    Ladder(Duration),
}

impl Plan {
    /// Returns the numbers of the events.
    pub fn numbers(&self) -> Range<u32> {
        self.first..self.first + u32::try_from(self.events.len()).unwrap_or(u32::MAX - self.first)
    }

    /// Returns the bursts, each with the numbers of its events.
    pub fn bursts(&self) -> impl Iterator<Item = Vec<(u32, Planned)>> {
        let numbered: Vec<(u32, Planned)> = self.numbers().zip(self.events.iter().copied()).collect();
        let bursts: Vec<_> = numbered.chunks(self.burst.max(1)).map(<[_]>::to_vec).collect();
        bursts.into_iter()
    }

    /// Returns the longest delay.
    pub fn longest(&self) -> Duration {
        self.events.iter().map(|planned| planned.wait.duration()).max().unwrap_or_default()
    }

    /// Returns how late each event ran, in microseconds. An event is due when its timer should expire; time after that
    /// is spent in the broker and the worker.
    pub fn lateness<'a>(&'a self, runs: &'a [Run], step: Duration) -> impl Iterator<Item = i64> + 'a {
        runs.iter().filter_map(move |run| {
            let planned = self.events.get(usize::try_from(run.number.checked_sub(self.first)?).ok()?)?;
            Some(run.at - planned.wait.due(run, step))
        })
    }
}

impl Wait {
    /// Returns the delay.
    pub const fn duration(self) -> Duration {
        match self {
            Self::Named(wait) | Self::Ladder(wait) => wait,
        }
    }

    fn due(self, run: &Run, step: Duration) -> i64 {
        let step = i64::try_from(step.as_micros()).unwrap_or(i64::MAX);
        match self {
            Self::Named(_) => run.nbf,
            Self::Ladder(_) => {
                // The time of publishing is known only to the millisecond, so the delay may look one step longer than
                // it was. No timer ends early, so a run before the computed time shows this.
                let steps = (run.nbf - run.created + step - 1) / step;
                let due = run.created + steps * step;
                if run.at < due { due - step } else { due }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(250);

    fn plan(wait: Wait, events: usize) -> Plan {
        let events = vec![Planned { event_type: "timed", wait }; events];
        Plan { first: 100, events, burst: 2_500, every: STEP }
    }

    fn late(wait: Wait, nbf: i64, at: i64) -> Vec<i64> {
        let run = Run { number: 100, created: 1_000_000, nbf, at };
        plan(wait, 1).lateness(&[run], STEP).collect()
    }

    #[test]
    fn an_event_of_the_ladder_is_late_only_beyond_its_step() {
        let wait = Wait::Ladder(Duration::ZERO);
        assert_eq!(late(wait, 1_600_000, 1_790_000), [40_000]);
        assert_eq!(late(wait, 1_500_000, 1_500_700), [700]);
        // By the noted times the delay is 501 ms, but the event ran after two steps, so the real delay was at most 500
        // ms.
        assert_eq!(late(wait, 1_501_000, 1_502_000), [2_000]);
    }

    #[test]
    fn a_named_wait_has_no_step() {
        assert_eq!(late(Wait::Named(Duration::ZERO), 1_600_000, 1_790_000), [190_000]);
    }

    #[test]
    fn every_event_is_in_one_burst() {
        for (events, bursts) in [(1, 1), (2_501, 2), (50_000, 20)] {
            let plan = plan(Wait::Named(STEP), events);
            let all: Vec<u32> = plan.bursts().flatten().map(|(number, _)| number).collect();
            assert_eq!(all, plan.numbers().collect::<Vec<_>>());
            assert_eq!(plan.bursts().count(), bursts);
        }
    }
}
