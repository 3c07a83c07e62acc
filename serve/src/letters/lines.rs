//! The letters that a discard would remove, as lines. The client saves them before it names those to remove.

use hatchery_admin::dead_letters::{Letter, LetterLine, digest, line};

/// How many bytes the lines of an answer have together at most, unless one alone has more.
const BYTES: usize = 32 * 1024 * 1024;

/// The lines of an answer.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) all: Vec<LetterLine>,
    bytes: usize,
    /// Whether a letter had no room.
    pub(super) more: bool,
}

impl Lines {
    /// Adds a letter if it has room, and all before it had.
    pub(super) fn add(&mut self, letter: &Letter) {
        let text = line(letter).ok().and_then(|line| String::from_utf8(line).ok());
        let fits = |line: &String| self.all.is_empty() || self.bytes + line.len() <= BYTES;
        match text.filter(|line| !self.more && fits(line)) {
            Some(line) => {
                self.bytes += line.len();
                self.all.push(LetterLine { digest: digest(line.as_bytes()), line });
            }
            None => self.more = true,
        }
    }
}
