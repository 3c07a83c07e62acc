//! Notes of several processes in one file. Each note is one write, so a `kill -9` loses no note that was written.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    str::FromStr,
};

/// The step of an event that a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A handler has finished the event; the settlement follows.
    Done,
    /// A handler reports a failure.
    Failed,
    /// The publish was confirmed.
    Confirmed,
    /// The publish was not confirmed.
    Unconfirmed,
}

/// A line of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The process that wrote it.
    pub(crate) by: u32,
    pub(crate) what: What,
    /// The event's number.
    pub(crate) number: u32,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            What::Done => "done",
            What::Failed => "failed",
            What::Confirmed => "confirmed",
            What::Unconfirmed => "unconfirmed",
        };
        write!(f, "{} {what} {}", self.by, self.number)
    }
}

impl FromStr for Note {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Self> {
        let bad = || io::Error::other(format!("no note: {line}"));
        let words: Vec<&str> = line.split(' ').collect();
        let [by, what, number] = words[..] else { return Err(bad()) };
        let what = match what {
            "done" => What::Done,
            "failed" => What::Failed,
            "confirmed" => What::Confirmed,
            "unconfirmed" => What::Unconfirmed,
            _ => return Err(bad()),
        };
        Ok(Self { by: by.parse().map_err(|_| bad())?, what, number: number.parse().map_err(|_| bad())? })
    }
}

/// Appends the notes of one process to the file.
pub(crate) struct Pen {
    by: u32,
    file: File,
}

impl Pen {
    pub(crate) fn open(path: &Path, by: u32) -> io::Result<Self> {
        Ok(Self { by, file: OpenOptions::new().append(true).create(true).open(path)? })
    }

    /// Appends a note in one write, which the writes of other processes cannot interrupt.
    pub(crate) fn note(&self, what: What, number: u32) -> io::Result<()> {
        self.write(&Note { by: self.by, what, number })
    }

    /// Appends a line in one write.
    pub(crate) fn write(&self, line: &impl fmt::Display) -> io::Result<()> {
        (&self.file).write_all(format!("{line}\n").as_bytes())
    }
}

/// Reads the file as it grows.
pub(crate) struct Notes<N = Note> {
    path: PathBuf,
    offset: u64,
    pub(crate) all: Vec<N>,
}

impl<N: FromStr<Err = io::Error>> Notes<N> {
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        File::create(&path)?;
        Ok(Self { path, offset: 0, all: Vec::new() })
    }

    /// Reads the new whole lines, and returns their notes.
    pub(crate) fn read(&mut self) -> io::Result<&[N]> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut new = Vec::new();
        file.read_to_end(&mut new)?;
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let before = self.all.len();
        for line in String::from_utf8_lossy(&new[..whole]).lines() {
            self.all.push(line.parse()?);
        }
        self.offset += whole as u64;
        Ok(&self.all[before..])
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_are_read_and_each_once() -> io::Result<()> {
        let folder = tempfile::TempDir::new()?;
        let mut notes: Notes = Notes::new(folder.path().join("notes"))?;
        let pens = [Pen::open(notes.path(), 1)?, Pen::open(notes.path(), 2)?];
        pens[0].note(What::Failed, 7)?;
        pens[1].note(What::Done, 8)?;
        (&pens[0].file).write_all(b"1 do")?;
        let expected = [Note { by: 1, what: What::Failed, number: 7 }, Note { by: 2, what: What::Done, number: 8 }];
        assert_eq!(notes.read()?, expected);
        (&pens[0].file).write_all(b"ne 9\n")?;
        assert_eq!(notes.read()?, [Note { by: 1, what: What::Done, number: 9 }]);
        assert_eq!((notes.read()?.len(), notes.all.len()), (0, 3));
        Ok(())
    }
}
