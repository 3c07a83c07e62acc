//! Notes of several processes in one file. Each note is one write, so a `kill -9` loses no note that was written.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::ValueEnum;
use jiff::Timestamp;

/// The step of an event that a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// A handler starts.
    Begun,
    /// A handler has finished the event; the settlement follows.
    Done,
    /// A handler reports a failure.
    Failed,
    /// A handler puts the event off.
    Requeued,
    /// A handler gives the event up.
    Buried,
    /// The publish was confirmed.
    Confirmed,
    /// The publish was not confirmed.
    Unconfirmed,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The process that wrote it.
    pub(crate) by: u32,
    pub(crate) step: Step,
    pub(crate) event_type: String,
    /// The event's id.
    pub(crate) id: String,
    /// The attempts that the handler sees.
    pub(crate) attempts: u32,
    /// The time, in microseconds since 1970.
    pub(crate) at: i64,
}

impl Note {
    /// Returns the event's number, which is its id. Another id is not the soak's; the account counts `u32::MAX` as a
    /// stranger.
    pub(crate) fn number(&self) -> u32 {
        self.id.parse().unwrap_or(u32::MAX)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, step, event_type, id, attempts, at } = self;
        write!(f, "{by} {step:?} {event_type} {id} {attempts} {at}")
    }
}

impl FromStr for Note {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Self> {
        let bad = || io::Error::other(format!("no note: {line}"));
        let words: Vec<&str> = line.split(' ').collect();
        let [by, step, event_type, id, attempts, at] = words[..] else { return Err(bad()) };
        let step = Step::from_str(step, true).map_err(|_| bad())?;
        let (by, attempts) = (by.parse().map_err(|_| bad())?, attempts.parse().map_err(|_| bad())?);
        let (event_type, id) = (event_type.to_owned(), id.to_owned());
        Ok(Self { by, step, event_type, id, attempts, at: at.parse().map_err(|_| bad())? })
    }
}

/// Returns the notes about this step.
pub(crate) fn of(notes: &[Note], step: Step) -> impl Iterator<Item = &Note> {
    notes.iter().filter(move |note| note.step == step)
}

/// Returns the events with several finished runs, with the processes that finished them in this order.
pub(crate) fn finished_twice(notes: &[Note]) -> BTreeMap<String, Vec<u32>> {
    let mut finished: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for note in of(notes, Step::Done) {
        finished.entry(note.id.clone()).or_default().push(note.by);
    }
    finished.retain(|_, by| by.len() > 1);
    finished
}

/// Appends the notes of one process to the file.
pub(super) struct Pen {
    by: u32,
    file: File,
}

impl Pen {
    pub(super) fn open(path: &Path, by: u32) -> io::Result<Self> {
        Ok(Self { by, file: OpenOptions::new().append(true).create(true).open(path)? })
    }

    /// Appends a note in one write, which the writes of other processes cannot interrupt.
    pub(super) fn note(&self, step: Step, event_type: &str, id: &str, attempts: u32) -> io::Result<()> {
        let (by, event_type, id) = (self.by, event_type.to_owned(), id.to_owned());
        let note = Note { by, step, event_type, id, attempts, at: Timestamp::now().as_microsecond() };
        (&self.file).write_all(format!("{note}\n").as_bytes())
    }
}

/// Reads the file as it grows.
pub(super) struct Notes {
    pub(super) path: PathBuf,
    offset: u64,
}

impl Notes {
    pub(super) fn new(path: PathBuf) -> io::Result<Self> {
        File::create(&path)?;
        Ok(Self { path, offset: 0 })
    }

    /// Reads the new whole lines, and returns their notes.
    pub(super) fn read(&mut self) -> io::Result<Vec<Note>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut new = Vec::new();
        file.read_to_end(&mut new)?;
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.offset += whole as u64;
        String::from_utf8_lossy(&new[..whole]).lines().map(str::parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_are_read_and_each_once() -> io::Result<()> {
        let folder = tempfile::TempDir::new()?;
        let mut notes = Notes::new(folder.path().join("notes"))?;
        let pens = [Pen::open(&notes.path, 1)?, Pen::open(&notes.path, 2)?];
        let mut read = || -> io::Result<Vec<(u32, Step, String, u32)>> {
            Ok(notes.read()?.into_iter().map(|note| (note.by, note.step, note.id, note.attempts)).collect())
        };
        pens[0].note(Step::Failed, "work", "7", 3)?;
        pens[1].note(Step::Done, "work", "fixed-1@1970-01-01T00:00:07Z", 0)?;
        (&pens[0].file).write_all(b"1 Do")?;
        let expected = [(1, Step::Failed, "7", 3), (2, Step::Done, "fixed-1@1970-01-01T00:00:07Z", 0)];
        assert_eq!(read()?, expected.map(|(by, step, id, attempts)| (by, step, id.to_owned(), attempts)));
        (&pens[0].file).write_all(b"ne work 9 0 7000001\n")?;
        assert_eq!(read()?, [(1, Step::Done, "9".to_owned(), 0)]);
        assert!(read()?.is_empty());
        Ok(())
    }
}
