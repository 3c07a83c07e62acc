//! The file of discarded letters, which `topology publish --batch` takes.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{Mutex, PoisonError},
};

use anyhow::Context as _;
use hatchery_admin::dead_letters::{Letter, line};

/// A file that letters are written to. It is continued if it exists.
pub(super) struct LetterFile(Mutex<File>);

impl LetterFile {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        // Payloads may be secret, so others cannot read a new file.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        Ok(Self(Mutex::new(file.with_context(|| format!("cannot write {}", path.display()))?)))
    }

    /// Writes letters, and returns once they are on the disk.
    pub(super) fn write(&self, letters: &[Letter]) -> io::Result<()> {
        let mut lines = Vec::new();
        for letter in letters {
            lines.extend(line(letter)?);
            lines.push(b'\n');
        }
        self.append(&lines)
    }

    /// Writes lines, and returns once they are on the disk.
    pub(super) fn append(&self, lines: &[u8]) -> io::Result<()> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(lines)?;
        file.sync_data()
    }
}
