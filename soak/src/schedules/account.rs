//! Accounts for the runs of schedules, by the notes of the handlers alone.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Kind, Schedule, place};
use crate::harness::{Note, Step, finished_twice};

/// How long after a roll-out the first number of a new chain may be drawn, in ms: until the applies that have read the former file
/// have ended, and those after them.
const ROLLING: i64 = 60_000;

/// Two runs of one schedule at a time: the two ids.
type Pair = (String, String);

/// The account of all schedules. Each list is empty in a run without faults.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Number of instants of the fixed schedules that have to run.
    pub(crate) instants: usize,
    /// Instants without a finished run.
    pub(crate) missing: Vec<String>,
    /// Runs of a schedule that does not exist, or for no instant of theirs.
    pub(crate) strangers: Vec<String>,
    /// Runs that began before their instant.
    pub(crate) early: Vec<String>,
    /// How late the runs of fixed schedules began, in microseconds: the first run of each instant.
    pub(crate) late: Vec<i64>,
    /// Events with several finished runs, with the workers that finished them in this order.
    pub(crate) twice: BTreeMap<String, Vec<u32>>,
    /// Number of finished runs of sequential schedules.
    pub(crate) numbers: usize,
    /// Sequential events whose number is not one higher than that of the event before, and that began no new chain after a roll-out.
    pub(crate) gaps: Vec<String>,
    /// Number of sequential chains that a roll-out began.
    pub(crate) begun: usize,
    /// Sequential events that began after one with a higher number.
    pub(crate) backwards: Vec<String>,
    /// Runs of one sequential schedule at a time.
    pub(crate) beside: Vec<Pair>,
}

/// One run.
struct Run<'a> {
    note: &'a Note,
    position: i64,
    ended: Option<i64>,
}

/// The limits of an account.
pub(crate) struct Period<'a> {
    /// The first instant of each schedule, in ms since 1970.
    pub(crate) first: &'a BTreeMap<String, i64>,
    /// The instant before which all have to run, in ms since 1970.
    pub(crate) end: i64,
    /// The times of the roll-outs, in ms since 1970.
    pub(crate) roll_outs: &'a [i64],
}

impl Account {
    pub(crate) fn take(schedules: &[Schedule], notes: &[Note], period: &Period<'_>) -> Self {
        let mut account = Self { twice: finished_twice(notes), ..Self::default() };
        let mut ends: BTreeMap<(u32, &str), Vec<i64>> = BTreeMap::new();
        for note in notes.iter().filter(|note| note.step == Step::Done) {
            ends.entry((note.by, &note.id)).or_default().push(note.at);
        }
        let mut runs: BTreeMap<&str, Vec<Run<'_>>> =
            schedules.iter().map(|schedule| (schedule.name.as_str(), Vec::new())).collect();
        for note in notes.iter().filter(|note| note.step == Step::Begun) {
            let ended = ends.get(&(note.by, note.id.as_str())).and_then(|ends| ends.iter().find(|at| **at >= note.at));
            let run = place(&note.id).map(|(name, position)| (name, Run { note, position, ended: ended.copied() }));
            match run.and_then(|(name, run)| Some((runs.get_mut(name)?, run))) {
                Some((of, run)) => of.push(run),
                None => account.strangers.push(note.id.clone()),
            }
        }
        for schedule in schedules {
            let mut of = runs.remove(schedule.name.as_str()).unwrap_or_default();
            of.sort_by_key(|run| run.note.at);
            match schedule.kind {
                Kind::Fixed { every } => account.fixed(schedule, &of, i64::from(every) * 1_000, period),
                Kind::Sequential { .. } => account.sequential(&of, period),
            }
        }
        account
    }

    fn fixed(&mut self, schedule: &Schedule, runs: &[Run<'_>], every: i64, period: &Period<'_>) {
        let first = period.first.get(&schedule.name).copied().unwrap_or(period.end);
        let mut ended = BTreeSet::new();
        let mut begun = BTreeSet::new();
        for Run { note, position, ended: at } in runs {
            if position % every != 0 || *position < first {
                self.strangers.push(note.id.clone());
            }
            let late = note.at - position * 1_000;
            if late < 0 {
                self.early.push(note.id.clone());
            }
            if begun.insert(*position) {
                self.late.push(late);
            }
            if at.is_some() {
                ended.insert(*position);
            }
        }
        let mut instant = first;
        while instant < period.end {
            self.instants += 1;
            if !ended.contains(&instant) {
                self.missing.push(format!("{} at {instant}", schedule.name));
            }
            instant += every;
        }
    }

    fn sequential(&mut self, runs: &[Run<'_>], period: &Period<'_>) {
        let mut last: Option<&Run<'_>> = None;
        let mut until: Option<(i64, &str)> = None;
        let mut finished = BTreeSet::new();
        for run in runs {
            self.numbers += usize::from(run.ended.is_some());
            // An event that was finished and not settled runs again, beside the chain. The account of such events explains it.
            if finished.contains(&run.position) {
                continue;
            }
            finished.extend(run.ended.map(|_| run.position));
            if let Some((ended, id)) = until
                && run.note.at < ended
                && id != run.note.id
            {
                self.beside.push((id.to_owned(), run.note.id.clone()));
            }
            until = until.max(run.ended.map(|ended| (ended, run.note.id.as_str())));
            let Some(before) = last.replace(run) else { continue };
            match run.position - before.position {
                0 | 1 => {}
                ..0 => self.backwards.push(run.note.id.clone()),
                2.. => {
                    let is_new = |at: &i64| (*at..*at + ROLLING).contains(&run.position);
                    if period.roll_outs.iter().any(is_new) {
                        self.begun += 1;
                    } else {
                        self.gaps.push(run.note.id.clone());
                    }
                }
            }
        }
        // The chain goes on only after a finished run, and a killed run has to be repeated.
        let newest = runs.iter().map(|run| run.position).max();
        let unfinished = runs.iter().filter(|run| !finished.contains(&run.position) && Some(run.position) != newest);
        let ids: BTreeSet<&String> = unfinished.map(|run| &run.note.id).collect();
        self.missing.extend(ids.into_iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(by: u32, step: Step, id: &str, at: i64) -> Note {
        Note { by, step, event_type: "work-0".to_owned(), id: id.to_owned(), attempts: 0, at }
    }

    fn run(by: u32, id: &str, at: i64) -> [Note; 2] {
        [note(by, Step::Begun, id, at), note(by, Step::Done, id, at + 10)]
    }

    fn account(kind: Kind, notes: &[Note], roll_outs: &[i64]) -> Account {
        let schedules = [Schedule { name: "s".to_owned(), kind, event_type: "work-0" }];
        let first = BTreeMap::from([("s".to_owned(), 1_000)]);
        Account::take(&schedules, notes, &Period { first: &first, end: 4_000, roll_outs })
    }

    #[test]
    fn each_instant_needs_a_finished_run() {
        let at = |second: i64| format!("s@1970-01-01T00:00:0{second}Z");
        let notes = [
            run(1, &at(1), 1_000_500).to_vec(),
            vec![note(1, Step::Begun, &at(2), 2_000_000)],
            run(1, &at(3), 2_999_999).to_vec(),
            run(2, &at(3), 3_000_001).to_vec(),
        ];
        let account = account(Kind::Fixed { every: 1 }, &notes.concat(), &[]);
        assert_eq!((account.instants, account.missing), (3, vec!["s at 2000".to_owned()]));
        assert_eq!((account.late, account.early), (vec![500, 0, -1], vec![at(3)]));
        assert_eq!(account.twice, BTreeMap::from([(at(3), vec![1, 2])]));
    }

    #[test]
    fn numbers_rise_by_one_but_after_a_roll_out() {
        let kind = Kind::Sequential { every: 1 };
        let notes = |numbers: &[i64]| -> Vec<Note> {
            let runs = numbers.iter().zip(0..);
            runs.flat_map(|(number, at)| run(1, &format!("s#{number}"), at * 1_000)).collect()
        };
        let good = account(kind, &notes(&[5, 6, 6, 7, 100, 101]), &[90]);
        assert_eq!((good.begun, good.gaps.len(), good.backwards.len(), good.beside.len()), (1, 0, 0, 0));
        let again = account(kind, &notes(&[5, 6, 7, 5, 8]), &[90]);
        assert_eq!((again.gaps.len(), again.backwards.len(), again.twice.len()), (0, 0, 1));
        let bad = account(kind, &notes(&[5, 7, 6]), &[90]);
        assert_eq!((bad.gaps.len(), bad.backwards.len()), (1, 1));
        let beside = [run(1, "s#5", 100).to_vec(), run(2, "s#6", 105).to_vec()].concat();
        assert_eq!(account(kind, &beside, &[]).beside, [("s#5".to_owned(), "s#6".to_owned())]);
    }
}
