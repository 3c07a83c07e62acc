//! What the handlers have written so far, and what is still to come.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
};

use crate::account::{Fate, Outcome, Published, Run};

/// The handlers' own output, read as it grows.
pub(crate) struct Handled {
    path: PathBuf,
    offset: u64,
    pub(crate) runs: Vec<Run>,
}

impl Handled {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, runs: Vec::new() }
    }

    /// Reads what is new, up to the last whole line.
    pub(crate) fn read(&mut self) -> anyhow::Result<()> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut new = Vec::new();
        file.read_to_end(&mut new)?;
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let text = String::from_utf8_lossy(&new[..whole]);
        // A line that is none was written about an event of somebody else's, whose id or reference has a tab.
        self.runs.extend(text.lines().filter_map(run));
        self.offset += whole as u64;
        Ok(())
    }
}

/// Reads a line of `handler.sh`.
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

/// How far it has come.
pub(crate) struct Progress {
    /// Events whose handler has said the last word, or that a newer one stands for.
    pub(crate) finished: usize,
    /// Runs that failed.
    pub(crate) failed: usize,
    /// Events that a handler has still to be seen with.
    pub(crate) pending: usize,
}

impl Progress {
    /// `tries` is how often an event is tried in all. Raw messages that are no events never meet a handler.
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
