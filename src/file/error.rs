//! The errors of `topology.yaml`, each with its place in the file.

use std::{fmt, ops::Range};

use crate::domain::words::may_be_url;

/// The most findings that `Display` shows. More would hide the first ones.
const SHOWN: usize = 30;

/// Why a file was refused, with every finding in the order of the file.
///
/// Displayed as one line a finding. `topology validate` also draws the lines of the file.
///
/// ```
/// let text = "version: 1\nname: billing\ntypes:\n  mail: { prefech: 10 }\n";
/// let error = hatchery::file::read(text, "topology.yaml").expect_err("a slip of the pen");
///
/// let [finding] = error.findings() else { panic!("one mistake") };
/// assert_eq!((finding.line, finding.column), (4, 11));
/// assert_eq!(finding.help, "write `prefetch`");
/// assert!(error.to_string().starts_with("topology.yaml:4:11: "), "{error}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    refusal: Refusal,
    path: String,
    text: String,
    findings: Vec<Finding>,
}

/// Why a file was refused, in one word.
///
/// ```
/// use hatchery::Refusal;
///
/// let read = |text| hatchery::file::read(text, "topology.yaml").expect_err("refused");
/// assert_eq!(read("name: [").refusal(), Refusal::Syntax);
/// assert_eq!(read("name: billing").refusal(), Refusal::Content);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The file is larger than the limit, and was not parsed.
    Size,
    /// The file is nested deeper than the limit, or has too many entries or aliases.
    Limit,
    /// The file is not YAML, or not exactly one document.
    Syntax,
    /// The file is YAML, but not a valid topology.
    Content,
}

/// One mistake in the file and its place. Displayed as one line, `line:column: message`, which editors and pipelines parse.
///
/// ```
/// let text = "version: 1\nname: billing\ntypes: { mail: { concurrency: none } }\n";
/// let error = hatchery::file::read(text, "topology.yaml").expect_err("no number");
/// for finding in error.findings() {
///     assert_eq!(&text[finding.range.clone()], "none");
///     assert!(finding.to_string().starts_with("3:31: "), "{finding}");
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The mistake.
    pub message: String,
    /// The text to write instead.
    pub help: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The character in the line, counted from 1.
    pub column: usize,
    /// The range of bytes with the mistake. A byte order mark at the start of the file is not counted.
    pub range: Range<usize>,
}

/// A finding before its line and column are computed from its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Draft {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) message: String,
    pub(super) help: String,
}

impl Draft {
    pub(super) fn new(range: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { start: range.start, end: range.end, message: message.into(), help: help.into() }
    }
}

impl FileError {
    /// Sorts the findings by place and removes duplicates: a mistake behind a YAML alias is found at each use.
    pub(super) fn new(refusal: Refusal, path: &str, text: &str, mut drafts: Vec<Draft>) -> Self {
        drafts.sort();
        drafts.dedup();
        let starts: Vec<usize> =
            std::iter::once(0).chain(text.bytes().zip(1..).filter(|(b, _)| *b == b'\n').map(|(_, at)| at)).collect();
        let findings = drafts.into_iter().map(|draft| draft.place(text, &starts)).collect();
        Self { refusal, path: path.to_owned(), text: text.to_owned(), findings }
    }

    /// Returns why the file was refused, in one word.
    ///
    /// ```
    /// let error = hatchery::file::read("", "topology.yaml").expect_err("it is empty");
    /// assert_eq!(error.refusal(), hatchery::Refusal::Content);
    /// ```
    #[must_use]
    pub const fn refusal(&self) -> Refusal {
        self.refusal
    }

    /// Returns all findings, in the order of the file. There is at least one.
    ///
    /// ```
    /// let text = "version: 1\nname: two words\ntypes: { mail: { prefetch: 0 } }\n";
    /// let error = hatchery::file::read(text, "topology.yaml").expect_err("two mistakes");
    /// let lines: Vec<usize> = error.findings().iter().map(|finding| finding.line).collect();
    /// assert_eq!(lines, [2, 3]);
    /// ```
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the file's path as the caller gave it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the text of the file, for a program that shows the lines with the mistakes.
    ///
    /// The text may hold a secret if the path was that of another file by mistake.
    ///
    /// ```
    /// let error = hatchery::file::read("name: billing", "topology.yaml").expect_err("not all of it");
    /// assert_eq!(error.text(), "name: billing");
    /// ```
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl std::error::Error for FileError {}

/// Prints one line a finding, in the format of a compiler.
impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, finding) in self.findings.iter().take(SHOWN).enumerate() {
            let separator = if place == 0 { "" } else { "\n" };
            write!(f, "{separator}{}:{finding}", self.path)?;
        }
        match self.findings.len().checked_sub(SHOWN) {
            Some(more @ 1..) => write!(f, "\n… and {more} more"),
            _ => Ok(()),
        }
    }
}

impl Draft {
    fn place(self, text: &str, starts: &[usize]) -> Finding {
        let from = floor(text, self.start);
        let to = floor(text, self.end).max(from);
        let line = starts.partition_point(|start| *start <= from);
        let start = starts.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let column = text[start..from].chars().count() + 1;
        // A message may quote part of the file, and the file may consist of a URL with a password.
        let (message, help) = if may_be_url(text[from..to].lines().next().unwrap_or_default()) {
            let message = "no URL belongs here; it is not repeated, because it may contain a password";
            (message.to_owned(), "give the path of a topology.yaml".to_owned())
        } else {
            (self.message, self.help)
        };
        Finding { message, help, line, column, range: from..to }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.line, self.column, self.message, self.help)
    }
}

/// Returns the nearest boundary between characters at or before this byte.
pub(super) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

/// Quotes text from the file for a message: shortened, with control characters escaped.
pub(super) fn quote(text: &str) -> String {
    const LONGEST: usize = 60;
    if may_be_url(text) {
        return "a text that is not repeated".to_owned();
    }
    let mut short: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    // `escape_debug` also escapes quotes, which need no escape here.
    short = short.replace("\\\"", "\"").replace("\\'", "'");
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    format!("`{short}`")
}
