//! Follows the file that the handlers write, and counts the events that are still to come.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
};

use crate::account::{Fate, Outcome, Published, Run};

/// Reads the handlers' file as it grows.
pub(crate) struct Handled {
    path: PathBuf,
    offset: u64,
    pub(crate) runs: Vec<Run>,
}

impl Handled {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, runs: Vec::new() }
    }

    /// Reads the new lines. An incomplete last line is left for the next time.
    pub(crate) fn read(&mut self) -> anyhow::Result<()> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut new = Vec::new();
        file.read_to_end(&mut new)?;
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let text = String::from_utf8_lossy(&new[..whole]);
        // A line with other fields is about another program's event, whose id or reference has a tab; it is skipped.
        self.runs.extend(text.lines().filter_map(run));
        self.offset += whole as u64;
        Ok(())
    }
}

/// Parses a line of `handler.sh`.
fn run(line: &str) -> Option<Run> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [id, event_type, _reference, attempts, _fence, outcome, checksum, worker] = fields[..] else { return None };
    let outcome = match outcome {
        "done" => Outcome::Done,
        "failed" => Outcome::Failed,
        "dead" => Outcome::Dead,
        _ => return None,
    };
    Some(Run {
        id: id.to_owned(),
        event_type: event_type.to_owned(),
        attempts: attempts.parse().ok()?,
        outcome,
        checksum: checksum.parse().ok()?,
        worker: worker.to_owned(),
    })
}

/// The progress of the demo.
pub(crate) struct Progress {
    /// Number of due events that have had their last run, or that a newer event replaced.
    pub(crate) finished: usize,
    /// Number of failed runs.
    pub(crate) failed: usize,
    /// Number of due events that have not had their last run.
    pub(crate) pending: usize,
}

impl Progress {
    /// Computes the progress. `tries` is the number of attempts of an event. Raw messages that cannot be decoded are
    /// not counted, because no handler sees them.
    pub(crate) fn of(published: &[Published], runs: &[Run], tries: u32) -> Self {
        let over = |run: &&Run| run.outcome != Outcome::Failed || run.attempts + 1 >= tries;
        let finished: BTreeSet<&str> = runs.iter().filter(over).map(|run| run.id.as_str()).collect();
        let mut newer = BTreeSet::new();
        let mut progress = Self { finished: 0, failed: 0, pending: 0 };
        for event in published.iter().rev() {
            let replaced = event.slot.as_ref().is_some_and(|slot| !newer.insert(slot));
            if event.fate == Fate::Waiting || event.poison {
                continue;
            }
            if replaced || finished.contains(event.id.as_str()) {
                progress.finished += 1;
            } else {
                progress.pending += 1;
            }
        }
        let ours: BTreeSet<&str> = published.iter().map(|event| event.id.as_str()).collect();
        let failed = |run: &&Run| run.outcome == Outcome::Failed && ours.contains(run.id.as_str());
        progress.failed = runs.iter().filter(failed).count();
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_are_read_and_each_once() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let write = |text: &str| {
            use std::io::Write as _;
            file.as_file().write_all(text.as_bytes()).expect("it can be written");
        };
        let mut handled = Handled::new(file.path().to_owned());
        write("a\tmail\t-\t0\t7\tdone\t99\t1\nsomebody else's\nb\tmail\t-\t2\t8\tfai");
        handled.read().expect("readable");
        assert_eq!(handled.runs.len(), 1);
        write("led\t99\t2\n");
        handled.read().expect("readable");
        let [a, b] = &handled.runs[..] else { panic!("{:?}", handled.runs) };
        assert_eq!((a.id.as_str(), a.outcome, a.checksum, a.worker.as_str()), ("a", Outcome::Done, 99, "1"));
        assert_eq!((b.id.as_str(), b.outcome, b.attempts), ("b", Outcome::Failed, 2));
    }
}
