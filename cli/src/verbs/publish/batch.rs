//! Publishes a batch from a file or standard input, and tells what became of each line.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::unix::fs::MetadataExt as _,
    path::Path,
    pin::Pin,
};

use anyhow::Context as _;
use hatchery::internals::words::plain;
use hatchery_admin::batch::{self, Answer, AnsweredLine, Batch, Lines, Numbered, Request};
use indicatif::ProgressBar;
use tokio::io::{AsyncBufRead, BufReader};

use super::{
    answer::{self, Account},
    relay::Relay,
};
use crate::{
    args::UsageError,
    exit::{Ended, Exit},
    output::{Format, Output},
    stop::Stop,
};

/// The input of lines, and the file for refused lines.
pub(super) struct Files {
    input: Pin<Box<dyn AsyncBufRead + Send>>,
    bytes: Option<u64>,
    rejects: Option<BufWriter<File>>,
}

impl Files {
    /// Opens both files before the first line is published.
    pub(super) fn open(input: &Path, rejects: Option<&Path>) -> anyhow::Result<Self> {
        let source = if input == Path::new("-") { Path::new("/dev/stdin") } else { input };
        if let Some(rejects) = rejects
            && let (Ok(one), Ok(other)) = (fs::metadata(source), fs::metadata(rejects))
            && (one.dev(), one.ino()) == (other.dev(), other.ino())
        {
            let same = "--batch and --rejects are the same file; the batch would be overwritten";
            return Err(UsageError(same.to_owned()).into());
        }
        let (input, bytes): (Pin<Box<dyn AsyncBufRead + Send>>, _) = if input == Path::new("-") {
            (Box::pin(BufReader::new(tokio::io::stdin())), None)
        } else {
            let file = File::open(input).with_context(|| format!("cannot read the batch {}", input.display()))?;
            let bytes = file.metadata().ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len());
            (Box::pin(BufReader::with_capacity(1 << 16, tokio::fs::File::from_std(file))), bytes)
        };
        if rejects.is_some_and(|path| fs::metadata(path).is_ok_and(|there| there.is_file() && there.len() > 0)) {
            let lines = "--rejects names a file with lines in it; publish those first, or remove it";
            return Err(UsageError(lines.to_owned()).into());
        }
        let create = |path: &Path| File::create(path).with_context(|| format!("cannot write {}", path.display()));
        Ok(Self { input, bytes, rejects: rejects.map(create).transpose()?.map(BufWriter::new) })
    }
}

/// The broker or the server that carries out the lines.
pub(super) enum Way<'a> {
    Broker(Batch<'a>),
    Server(Relay<'a>),
}

impl Way<'_> {
    fn has_room(&self) -> bool {
        match self {
            Self::Broker(batch) => batch.has_room(),
            Self::Server(relay) => relay.has_room(),
        }
    }

    fn unanswered(&self) -> usize {
        match self {
            Self::Broker(batch) => batch.unanswered(),
            Self::Server(relay) => relay.unanswered(),
        }
    }

    fn begin(&mut self, line: Numbered, request: Result<Request, String>) {
        match self {
            Self::Broker(batch) => batch.begin(line, request),
            Self::Server(relay) => relay.begin(line, request),
        }
    }

    async fn next(&mut self, is_behind: bool) -> Option<(Numbered, AnsweredLine)> {
        match self {
            Self::Broker(batch) => {
                let Answer { line, done } = batch.next(is_behind).await?;
                let answered = AnsweredLine::of(line.number, done);
                Some((line, answered))
            }
            Self::Server(relay) => relay.next(is_behind).await,
        }
    }
}

/// Publishes the lines to the end of the input. A signal, or an error of reading or writing, ends the reading; lines
/// that were read before are still answered and counted. Each line that was read is published or reported on standard
/// error.
pub(super) async fn run(files: Files, mut way: Way<'_>, output: Output) -> anyhow::Result<Exit> {
    let stop = Stop::on_signals()?;
    let mut lines = Lines::new(files.input);
    let mut report = Report::new(output, files.rejects, files.bytes);
    let (mut reading, mut ended, mut failed) = (true, false, None);
    while reading || way.unanswered() > 0 {
        let has_room = way.has_room();
        // The rejects are published again, and then a change would come before what it changes.
        let is_behind = report.rejects.is_some() && report.refused > 0;
        let step = tokio::select! {
            // Answers come first, because the program that writes the input may wait for the answer to its line.
            biased;
            () = stop.at_once.cancelled() => break,
            Some((line, answered)) = way.next(is_behind) => report.answer(&line, answered),
            () = stop.gently.cancelled(), if reading => {
                reading = false;
                Ok(())
            }
            read = lines.next(), if reading && has_room => match read {
                Ok(Some(line)) if line.cut => match stop.at_once.run_until_cancelled(report.too_long(&line, &mut lines)).await {
                    Some(written) => written,
                    None => break,
                },
                Ok(Some(line)) => {
                    let request = batch::read(&line.line).map_err(|error| error.to_string());
                    way.begin(line, request);
                    Ok(())
                }
                Ok(None) => {
                    (reading, ended) = (false, true);
                    Ok(())
                }
                Err(error) => Err(error).context("cannot read the batch"),
            },
        };
        if let Err(error) = step {
            reading = false;
            failed.get_or_insert(error);
        }
    }
    report.unanswered = way.unanswered();
    report.stopped_before = (!ended).then(|| lines.read() + 1);
    let is_begun = report.published + report.changes > 0 || report.unanswered > 0;
    let exit = report.end();
    match failed.map_or(exit, Err) {
        Err(error) if is_begun => Err(Ended::untold(error)),
        exit => exit,
    }
}

struct Report {
    output: Output,
    rejects: Option<BufWriter<File>>,
    bar: ProgressBar,
    published: u64,
    changes: u64,
    refused: u64,
    unversioned: u64,
    /// Number of lines that may or may not have reached the broker.
    unanswered: usize,
    /// The first line that was not read, if the input was not read to its end.
    stopped_before: Option<u64>,
}

impl Report {
    fn new(output: Output, rejects: Option<BufWriter<File>>, bytes: Option<u64>) -> Self {
        let bar = output.progress(bytes, "publishing");
        Self {
            output,
            rejects,
            bar,
            published: 0,
            changes: 0,
            refused: 0,
            unversioned: 0,
            unanswered: 0,
            stopped_before: None,
        }
    }

    fn answer(&mut self, line: &Numbered, answered: AnsweredLine) -> anyhow::Result<()> {
        self.bar.inc(line.line.len() as u64 + 1);
        if let Some(why) = answered.error {
            self.refuse(line.number, &why)?;
            if let Some(rejects) = &mut self.rejects {
                // Flushed at once, so that the rejects are complete if the process is killed.
                let line = rejects.write_all(&line.line).and_then(|()| rejects.write_all(b"\n"));
                line.and_then(|()| rejects.flush()).context("cannot write the rejects")?;
            }
            return Ok(());
        }
        match answered.results {
            Some(_) => self.changes += 1,
            None => self.published += 1,
        }
        self.unversioned += u64::from(answered.unversioned);
        self.say(answered)
    }

    /// Writes the answer to a line, with `-o ndjson`.
    fn say(&self, line: AnsweredLine) -> anyhow::Result<()> {
        if self.output.format == Format::Ndjson {
            self.output.json(&answer::Line::Batch(line))?;
        }
        Ok(())
    }

    fn refuse(&mut self, number: u64, why: &str) -> anyhow::Result<()> {
        self.refused += 1;
        if self.output.format == Format::Ndjson {
            self.say(AnsweredLine::of(number, Err(why.to_owned().into())))?;
        } else {
            self.bar.suspend(|| self.output.note(&format!("line {number}: {}", plain(why))));
        }
        Ok(())
    }

    /// Refuses a line that is longer than any event. Its parts are written to the rejects as they are read, and no
    /// other line is written meanwhile.
    async fn too_long<R: AsyncBufRead + Unpin>(&mut self, line: &Numbered, lines: &mut Lines<R>) -> anyhow::Result<()> {
        self.refuse(line.number, "the line is longer than any event")?;
        let mut nowhere = io::sink();
        let rejects: &mut (dyn Write + Send) = match &mut self.rejects {
            Some(rejects) => rejects,
            None => &mut nowhere,
        };
        rejects.write_all(&line.line).context("cannot write the rejects")?;
        lines.rest(rejects).await.context("cannot copy the rest of a long line to the rejects")?;
        rejects.write_all(b"\n").and_then(|()| rejects.flush()).context("cannot write the rejects")
    }

    fn end(self) -> anyhow::Result<Exit> {
        self.bar.finish_and_clear();
        if self.unversioned > 0 {
            let text =
                format!("Redis gave no version for {} events: they compete with no other event", self.unversioned);
            self.output.warn(&text);
        }
        if self.unanswered > 0 {
            self.output.warn(&format!("{} lines were not answered: they may be published or not", self.unanswered));
        }
        if let Some(line) = self.stopped_before {
            self.output.warn(&format!("stopped before line {line}: this line and those after it are not published"));
        }
        match self.output.format {
            Format::Text => {
                self.output.print(&counted(self.published, self.changes, self.refused))?;
            }
            Format::Json => {
                self.output.json(&answer::Answer::Batch(Account {
                    published: self.published,
                    changes: Some(self.changes).filter(|changes| *changes > 0),
                    refused: self.refused,
                    unanswered: Some(self.unanswered).filter(|unanswered| *unanswered > 0),
                    stopped_before_line: self.stopped_before,
                }))?;
            }
            // Each line had an answer of its own.
            Format::Ndjson => {}
        }
        let done = self.refused == 0 && self.unanswered == 0 && self.stopped_before.is_none();
        Ok(if done { Exit::Done } else { Exit::Partly })
    }
}

/// Returns the answer for a batch.
pub(super) fn counted(published: u64, changes: u64, refused: u64) -> String {
    let changes = if changes > 0 { format!("{changes} cancelled or rescheduled, ") } else { String::new() };
    format!("{published} published, {changes}{refused} refused\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_is_rejected_whole() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("rejects");
        let rejects = BufWriter::new(File::create(&path).expect("a file"));
        let mut report = Report::new(Output::new(Format::Text, true, false), Some(rejects), None);
        let long = vec![b'x'; 25 << 20];
        let mut lines = Lines::new(&long[..]);
        let line = lines.next().await.expect("memory can be read").expect("a line");
        assert!(line.cut && line.line.len() < long.len());
        report.too_long(&line, &mut lines).await.expect("it is written");
        assert!(fs::read(&path).expect("a file") == [&long[..], b"\n"].concat(), "the whole line");
        assert_eq!(report.refused, 1);
        assert!(lines.next().await.expect("memory can be read").is_none());
    }
}
