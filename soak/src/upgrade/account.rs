//! Accounts for the events, by what was published and what ran alone.

use std::collections::HashMap;

use super::{
    notes::{Run, Sent, Side},
    plan::{KINDS, Kind, REFERENCES},
};
use crate::harness::{Changes, backwards};

/// The events of one kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) sent: usize,
    pub(super) runs: usize,
    /// Events with too few runs; changes that neither ran nor were replaced by a change that ran.
    pub(super) lost: usize,
    /// Events with too many runs.
    pub(super) twice: usize,
    /// Runs before the time of the event, or too soon after the run before.
    pub(super) early: usize,
    /// Events whose runs had other attempts than they should.
    pub(super) attempts: usize,
    /// Runs out of order; older changes after newer ones.
    pub(super) order: usize,
}

/// The account of all events.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) rows: Vec<Row>,
    /// Runs of events that nobody published.
    pub(super) strangers: usize,
    pub(super) cancelled: usize,
    /// Cancelled events that began after the cancel had returned.
    pub(super) ran_after_cancel: usize,
    /// Changes without a version.
    pub(super) unversioned: usize,
    /// Events that were published by one side, and first run by the other: from the release to this tree, and back.
    pub(super) crossed: [usize; 2],
    /// Events with two runs, by one side and then by the other, likewise.
    pub(super) handed: [usize; 2],
}

impl Account {
    /// `is_over` tells whether the hopeless events were replayed.
    pub(super) fn take(sent: &[Sent], runs: &[Run], is_over: bool) -> Self {
        let mut of: HashMap<&str, Vec<&Run>> = HashMap::new();
        for run in runs.iter().filter(|run| Kind::of(&run.event_type).is_some()) {
            of.entry(&run.id).or_default().push(run);
        }
        let mut account = Self::default();
        for kind in KINDS {
            let sent: Vec<(&Sent, Vec<&Run>)> = sent
                .iter()
                .filter(|sent| sent.kind == kind)
                .map(|sent| (sent, of.remove(&*sent.id()).unwrap_or_default()))
                .collect();
            let row = account.row(kind, &sent, is_over);
            account.rows.push(row);
        }
        account.strangers = of.values().map(Vec::len).sum();
        account
    }

    fn row(&mut self, kind: Kind, sent: &[(&Sent, Vec<&Run>)], is_over: bool) -> Row {
        let runs = sent.iter().map(|(_, runs)| runs.len()).sum();
        let mut row = Row { kind, sent: sent.len(), runs, lost: 0, twice: 0, early: 0, attempts: 0, order: 0 };
        let mut expected = kind.attempts();
        if kind == Kind::Hopeless && !is_over {
            expected = &expected[..1];
        }
        for (sent, runs) in sent {
            if let Some(at) = sent.cancelled {
                self.cancelled += 1;
                self.ran_after_cancel += runs.iter().filter(|run| run.begun > at).count();
            }
            let may_be_none = kind == Kind::Change || sent.cancelled.is_some();
            row.lost += usize::from(runs.len() < expected.len() && !(may_be_none && runs.is_empty()));
            row.twice += usize::from(runs.len() > expected.len());
            let pairs = || runs.iter().zip(runs.iter().skip(1));
            let pause = i64::try_from(kind.pause().as_micros()).unwrap_or(i64::MAX);
            row.early += runs.iter().filter(|run| run.begun < sent.due).count();
            row.early += pairs().filter(|(one, next)| next.begun < one.ended + pause).count();
            let attempts: Vec<u32> = runs.iter().map(|run| run.attempts).collect();
            row.attempts += usize::from(runs.len() == expected.len() && attempts != expected);
            cross(&mut self.crossed, sent.by, runs.first().map(|run| run.by));
            for (one, next) in pairs() {
                cross(&mut self.handed, one.by, Some(next.by));
            }
        }
        match kind {
            Kind::Line => row.order = overtaken(sent),
            Kind::Change => self.changes(&mut row, sent),
            _ => {}
        }
        row
    }

    /// Compares the changes of each publisher, in the order in which they were published.
    fn changes(&mut self, row: &mut Row, sent: &[(&Sent, Vec<&Run>)]) {
        for publisher in publishers(sent) {
            let of = || sent.iter().filter(|(sent, _)| sent.publisher == publisher);
            let unversioned: Vec<bool> = of().map(|(_, runs)| runs.iter().any(|run| !run.has_version)).collect();
            self.unversioned += unversioned.iter().filter(|unversioned| **unversioned).count();
            // A change without a version competes with none, so it may run after a newer one.
            let mut calls: Vec<(i64, u32)> = of()
                .zip(&unversioned)
                .filter(|(_, unversioned)| !**unversioned)
                .flat_map(|((sent, runs), _)| runs.iter().map(|run| (run.begun, sent.place)))
                .collect();
            calls.sort_unstable();
            let calls: Vec<u32> = calls.into_iter().map(|(_, place)| place).collect();
            let ran: Vec<u32> = of().filter(|(_, runs)| !runs.is_empty()).map(|(sent, _)| sent.place).collect();
            row.order += Changes::take(REFERENCES, &unversioned, &calls).backwards;
            row.lost += Changes::take(REFERENCES, &unversioned, &ran).lost;
        }
    }

    /// Returns how many events are not finished yet.
    pub(super) fn open(&self) -> usize {
        self.rows.iter().map(|row| row.lost).sum()
    }
}

fn publishers(sent: &[(&Sent, Vec<&Run>)]) -> Vec<u32> {
    let mut all: Vec<u32> = sent.iter().map(|(sent, _)| sent.publisher).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Counts the runs of a publisher's events that began after a later event of it had begun.
fn overtaken(sent: &[(&Sent, Vec<&Run>)]) -> usize {
    let count = |publisher| {
        let of = sent.iter().filter(|(sent, _)| sent.publisher == publisher);
        let mut runs: Vec<(i64, u32)> =
            of.flat_map(|(sent, runs)| runs.iter().map(|run| (run.begun, sent.place))).collect();
        runs.sort_unstable();
        backwards(&runs.into_iter().map(|(_, place)| place).collect::<Vec<_>>())
    };
    publishers(sent).into_iter().map(count).sum()
}

fn cross(counts: &mut [usize; 2], from: Side, to: Option<Side>) {
    match (from, to) {
        (Side::Released, Some(Side::This)) => counts[0] += 1,
        (Side::This, Some(Side::Released)) => counts[1] += 1,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn sent(kind: Kind, place: u32) -> Sent {
        Sent { kind, publisher: 1, place, by: Side::Released, due: 0, cancelled: None }
    }

    fn run(of: &Sent, attempts: u32, begun: i64) -> Run {
        let event_type = of.kind.name().to_owned();
        Run { id: of.id(), event_type, by: Side::This, worker: 1, attempts, has_version: true, begun, ended: begun }
    }

    fn row(sent: &[Sent], runs: &[Run]) -> Row {
        let kind = sent[0].kind;
        Account::take(sent, runs, true).rows.into_iter().find(|row| row.kind == kind).expect("a row")
    }

    #[test]
    fn an_event_needs_each_of_its_runs_once() {
        let events = [sent(Kind::Flaky, 0), sent(Kind::Flaky, 1), sent(Kind::Flaky, 2), sent(Kind::Flaky, 3)];
        let runs = [
            run(&events[0], 0, SECOND),
            run(&events[0], 1, 2 * SECOND),
            run(&events[1], 0, SECOND),
            run(&events[2], 0, SECOND),
            run(&events[2], 0, 2 * SECOND),
            run(&events[3], 0, SECOND),
            run(&events[3], 1, 2 * SECOND - 1),
            run(&events[3], 1, 9 * SECOND),
        ];
        let found = row(&events, &runs);
        assert_eq!((found.lost, found.twice, found.attempts, found.early), (1, 1, 1, 1));
        let account = Account::take(&events, &runs, true);
        assert_eq!((account.crossed, account.handed), ([4, 0], [0, 0]));
    }

    #[test]
    fn a_hopeless_event_runs_again_after_its_replay_alone() {
        let event = sent(Kind::Hopeless, 0);
        let runs = [run(&event, 0, SECOND)];
        let open = |is_over| Account::take(std::slice::from_ref(&event), &runs, is_over).open();
        assert_eq!((open(false), open(true)), (0, 1));
    }

    #[test]
    fn a_cancelled_event_may_run_before_its_cancel_has_returned_and_not_after() {
        let event = |place| Sent { cancelled: Some(5 * SECOND), ..sent(Kind::Later, place) };
        let events = [event(0), event(1), event(2)];
        let account = Account::take(&events, &[run(&events[0], 0, SECOND), run(&events[1], 0, 6 * SECOND)], true);
        assert_eq!((account.cancelled, account.ran_after_cancel, account.open()), (3, 1, 0));
    }

    #[test]
    fn a_change_runs_or_is_replaced_and_none_runs_after_a_newer_one() {
        let events: Vec<Sent> = (0..3 * REFERENCES).map(|place| sent(Kind::Change, place)).collect();
        let last: Vec<Run> = events.iter().rev().take(REFERENCES as usize).map(|event| run(event, 0, SECOND)).collect();
        let found = row(&events, &last);
        assert_eq!((found.lost, found.order, found.twice), (0, 0, 0));
        let found = row(&events, &last[1..]);
        assert_eq!((found.lost, found.order), (3, 0));
        let older = [last, vec![run(&events[0], 0, 2 * SECOND), run(&events[0], 0, 3 * SECOND)]].concat();
        let found = row(&events, &older);
        assert_eq!((found.lost, found.order, found.twice), (0, 2, 1));
    }

    #[test]
    fn an_event_in_a_line_that_overtakes_an_earlier_one_is_out_of_order() {
        let events = [sent(Kind::Line, 0), sent(Kind::Line, 1)];
        assert_eq!(row(&events, &[run(&events[1], 0, 1), run(&events[0], 0, 2)]).order, 1);
        assert_eq!(row(&events, &[run(&events[0], 0, 1), run(&events[1], 0, 2)]).order, 0);
        assert_eq!(Account::take(&events[..1], &[run(&events[1], 0, 1)], true).strangers, 1);
    }
}
