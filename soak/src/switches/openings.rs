//! The openings of a circuit breaker, worked out from the notes of the handlers alone.

use std::collections::{BTreeMap, VecDeque};

use crate::harness::{Note, Step};

/// The settings of the breaker. Times are microseconds.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) errors: usize,
    pub(super) window: i64,
    pub(super) cooldown: i64,
    pub(super) probes: usize,
}

/// The end of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resumed {
    /// `topology breaker close` was called.
    ByHand,
    /// The probes went well.
    ByProbes,
}

/// An opening. Times are microseconds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Opening {
    /// How long after the end of the last error an event started, before the probes or the close.
    pub(super) late: i64,
    /// The rounds of probes that failed.
    pub(super) failed_rounds: u32,
    /// The longest time after a failed probe at which an event started, before the next probes or the close.
    pub(super) late_again: i64,
    /// The starts beyond the probes of a round.
    pub(super) beyond: usize,
    pub(super) resumed: Option<Resumed>,
}

enum Phase {
    /// The ends of the errors of the last window, of runs that have started since this time.
    Closed { since: i64, errors: VecDeque<i64> },
    /// Since this time nothing should start, until the cooldown is over.
    Open { since: i64, until: i64 },
    /// So many probes have started since this time, and so many went well.
    HalfOpen { since: i64, started: usize, good: usize },
}

/// The breaker of a type as its notes show it. A run starts with its note `Begun`, and ends with the next one of its event.
pub(super) struct Openings {
    rules: Rules,
    phase: Phase,
    /// When the runs that have not ended have started.
    begun: BTreeMap<String, i64>,
    pub(super) all: Vec<Opening>,
}

impl Openings {
    pub(super) const fn new(rules: Rules) -> Self {
        let phase = Phase::Closed { since: i64::MIN, errors: VecDeque::new() };
        Self { rules, phase, begun: BTreeMap::new(), all: Vec::new() }
    }

    /// Returns the openings that follow from the notes of a type, in order, and from the times at which it was closed by hand.
    pub(super) fn of<'a>(rules: Rules, notes: impl Iterator<Item = &'a Note>, closes: &[i64]) -> Vec<Opening> {
        let (mut openings, mut closes) = (Self::new(rules), closes.iter().peekable());
        for note in notes {
            while let Some(at) = closes.next_if(|at| **at <= note.at) {
                openings.close(*at);
            }
            openings.take(note);
        }
        closes.for_each(|at| openings.close(*at));
        openings.all
    }

    /// Returns since when the breaker is open, while no probes are due.
    pub(super) const fn is_open(&self, now: i64) -> Option<i64> {
        match self.phase {
            Phase::Open { since, until } if now < until => Some(since),
            _ => None,
        }
    }

    /// A person closes the breaker.
    pub(super) fn close(&mut self, at: i64) {
        self.resume(at, Resumed::ByHand);
    }

    /// Takes the next note of the type.
    pub(super) fn take(&mut self, note: &Note) {
        if note.step == Step::Begun {
            self.begun.insert(note.id.clone(), note.at);
            self.start(note.at);
        } else if let Some(begun) = self.begun.remove(&note.id) {
            self.end(begun, note.at, note.step == Step::Failed);
        }
    }

    fn start(&mut self, at: i64) {
        let Some(opening) = self.all.last_mut() else { return };
        match &mut self.phase {
            Phase::Closed { .. } => {}
            Phase::Open { until, .. } if at >= *until => {
                self.phase = Phase::HalfOpen { since: at, started: 1, good: 0 };
            }
            Phase::Open { since, .. } if opening.failed_rounds == 0 => opening.late = at - *since,
            Phase::Open { since, .. } => opening.late_again = opening.late_again.max(at - *since),
            Phase::HalfOpen { started, .. } => {
                *started += 1;
                opening.beyond += usize::from(*started > self.rules.probes);
            }
        }
    }

    fn end(&mut self, begun: i64, at: i64, is_error: bool) {
        let Rules { errors: most, window, cooldown, probes } = self.rules;
        match &mut self.phase {
            Phase::Closed { since, errors } if is_error && begun >= *since => {
                errors.push_back(at);
                while errors.front().is_some_and(|first| *first <= at - window) {
                    errors.pop_front();
                }
                if errors.len() >= most {
                    self.all.push(Opening::default());
                    self.phase = Phase::Open { since: at, until: at + cooldown };
                }
            }
            Phase::HalfOpen { since, .. } if is_error && begun >= *since => {
                let Some(opening) = self.all.last_mut() else { return };
                opening.failed_rounds += 1;
                let times = 2_i64.saturating_pow(opening.failed_rounds).min(10);
                self.phase = Phase::Open { since: at, until: at + cooldown * times };
            }
            Phase::HalfOpen { since, good, .. } if begun >= *since => {
                *good += 1;
                if *good >= probes {
                    self.resume(at, Resumed::ByProbes);
                }
            }
            // A run from before the breaker opened or closed tells nothing.
            Phase::Closed { .. } | Phase::Open { .. } | Phase::HalfOpen { .. } => {}
        }
    }

    fn resume(&mut self, at: i64, resumed: Resumed) {
        if let (Some(opening), Phase::Open { .. } | Phase::HalfOpen { .. }) = (self.all.last_mut(), &self.phase) {
            opening.resumed = Some(resumed);
            self.phase = Phase::Closed { since: at, errors: VecDeque::new() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { errors: 3, window: 1_000, cooldown: 100, probes: 2 };

    /// The notes of one run, of an event of its own.
    fn run(begun: i64, ended: i64, step: Step) -> [Note; 2] {
        let id = format!("{begun}-{ended}");
        [(Step::Begun, begun), (step, ended)].map(|(step, at)| Note {
            by: 1,
            step,
            event_type: "plain".to_owned(),
            id: id.clone(),
            attempts: 0,
            at,
        })
    }

    fn openings(runs: &[[Note; 2]], closes: &[i64]) -> Vec<Opening> {
        let mut notes = runs.concat();
        notes.sort_by_key(|note| note.at);
        Openings::of(RULES, notes.iter(), closes)
    }

    fn three_errors(at: i64) -> Vec<[Note; 2]> {
        (0..3).map(|n| run(at + 2 * n, at + 2 * n + 1, Step::Failed)).collect()
    }

    #[test]
    fn errors_within_the_window_open_it_and_a_hand_closes_it() {
        let apart: Vec<_> = (0..9).map(|n| run(600 * n, 600 * n + 1, Step::Failed)).collect();
        assert_eq!(openings(&apart, &[]), []);
        let mut runs = three_errors(0);
        runs.extend([run(4, 900, Step::Done), run(40, 41, Step::Done), run(70, 71, Step::Done)]);
        // They have started before the close, so they count neither as late nor as errors of the next window.
        runs.extend([run(60, 80, Step::Failed), run(90, 91, Step::Failed), run(92, 93, Step::Failed)]);
        let expected = Opening { late: 55, resumed: Some(Resumed::ByHand), ..Opening::default() };
        assert_eq!(openings(&runs, &[65]), [expected]);
    }

    #[test]
    fn good_probes_close_it_and_a_bad_one_opens_it_for_twice_as_long() {
        let mut runs = three_errors(0);
        runs.extend([run(110, 111, Step::Done), run(112, 113, Step::Failed), run(300, 302, Step::Done)]);
        runs.push(run(313, 314, Step::Done));
        let expected = Opening { failed_rounds: 1, late_again: 187, ..Opening::default() };
        assert_eq!(openings(&runs, &[]), [expected], "300 is too early for a probe");
        runs.push(run(315, 316, Step::Done));
        runs.extend(three_errors(320));
        let all = openings(&runs, &[]);
        assert_eq!((all.len(), all[0].resumed, all[0].beyond), (2, Some(Resumed::ByProbes), 0));
        assert_eq!((all[0].late, all[1].resumed), (0, None));
    }

    #[test]
    fn more_starts_than_probes_are_counted() {
        let mut runs = three_errors(0);
        runs.extend([110, 111, 112].map(|begun| run(begun, 200, Step::Done)));
        let all = openings(&runs, &[]);
        assert_eq!((all[0].beyond, all[0].resumed), (1, Some(Resumed::ByProbes)));
    }
}
