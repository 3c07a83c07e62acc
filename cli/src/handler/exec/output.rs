//! Reads the output of a program. Only the last line counts; all of it goes to a [`Sink`].

use std::{
    io, mem,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::net::unix::pipe::Receiver;
use tokio_util::task::AbortOnDropHandle;

use super::output_log::Sink;

/// The longest line that is kept whole, in bytes. Of a longer one the end is kept, and enough of its beginning to
/// recognise an answer.
const LINE: usize = 64 * 1024;
const BEGINNING: usize = 1024;
const CHUNK: usize = 16 * 1024;

/// Standard output or standard error of a program. All of it is read, so that the program never blocks.
pub(super) struct Output {
    shared: Arc<PipeReader>,
    reading: AbortOnDropHandle<()>,
}

struct PipeReader {
    pipe: Receiver,
    /// The bytes read. The lock is held while the pipe is read, so that the bytes keep their order.
    lines: Mutex<Lines>,
    sink: Sink,
}

/// A printed line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Its text without the space around it; if the line is too long, its end.
    pub(super) text: String,
    /// The beginning of a line that is too long.
    pub(super) beginning: Option<String>,
}

impl Output {
    /// Reads the pipe as long as a process has it open for writing, and this value lives.
    pub(super) fn read(pipe: OwnedFd, sink: Sink) -> io::Result<Self> {
        let shared = Arc::new(PipeReader { pipe: Receiver::from_owned_fd(pipe)?, lines: Mutex::default(), sink });
        let reading = Arc::clone(&shared);
        let reading = AbortOnDropHandle::new(tokio::spawn(async move { reading.read().await }));
        Ok(Self { shared, reading })
    }

    /// Waits until no process has the pipe open for writing.
    pub(super) async fn closed(&mut self) {
        if !self.reading.is_finished() {
            // The task does not panic, and is not aborted before this value is dropped.
            let _ = (&mut self.reading).await;
        }
    }

    /// Returns the last line that is not blank, of the output so far. Bytes that are still in the pipe are read first.
    pub(super) fn last_line(&self) -> Line {
        let mut lines = self.shared.lines();
        // Only as many bytes are read as the pipe holds now, so a program that prints endlessly does not block this.
        let mut left = rustix::io::ioctl_fionread(&self.shared.pipe).unwrap_or_default();
        let mut buffer = [0; CHUNK];
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            match rustix::io::read(&self.shared.pipe, &mut buffer[..most]) {
                Ok(read @ 1..) => {
                    self.shared.take(&mut lines, &buffer[..read]);
                    left = left.saturating_sub(read as u64);
                }
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) | Err(_) => break,
            }
        }
        lines.last()
    }
}

impl PipeReader {
    async fn read(&self) {
        let mut buffer = vec![0; CHUNK];
        while self.pipe.readable().await.is_ok() {
            let mut lines = self.lines();
            match self.pipe.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => self.take(&mut lines, &buffer[..read]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(_) => return,
            }
        }
    }

    fn take(&self, lines: &mut Lines, chunk: &[u8]) {
        lines.add(chunk);
        self.sink.take(chunk);
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last whole line that is not blank, and the line that has not ended yet.
#[derive(Default)]
struct Lines {
    last: Kept,
    current: Kept,
}

/// The kept part of a line. Leading space is removed, so a blank line is empty.
#[derive(Default)]
struct Kept {
    end: Vec<u8>,
    /// The beginning, if the line is too long; else empty.
    beginning: Vec<u8>,
}

impl Lines {
    fn add(&mut self, chunk: &[u8]) {
        for (n, part) in chunk.split(|byte| *byte == b'\n').enumerate() {
            if n > 0 {
                self.end();
            }
            self.current.add(part);
        }
    }

    /// Makes the line that has ended the last one, unless it is blank.
    fn end(&mut self) {
        let ended = mem::take(&mut self.current);
        if !ended.end.is_empty() {
            self.last = ended;
        }
    }

    fn last(&self) -> Line {
        if self.current.end.is_empty() { self.last.line() } else { self.current.line() }
    }
}

impl Kept {
    fn add(&mut self, part: &[u8]) {
        let part = if self.end.is_empty() { part.trim_ascii_start() } else { part };
        self.end.extend_from_slice(part);
        if self.end.len() > LINE && self.beginning.is_empty() {
            self.beginning = self.end[..BEGINNING].to_vec();
        }
        if self.end.len() > 2 * LINE {
            self.end.drain(..self.end.len() - LINE);
        }
    }

    fn line(&self) -> Line {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Line {
            text: text(&self.end[self.end.len().saturating_sub(LINE)..]),
            beginning: (!self.beginning.is_empty()).then(|| text(&self.beginning)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rstest::rstest;

    use super::*;
    use crate::handler::{
        exec::output_log::{HandlerOutput, OutputLog, Stream},
        tests::run,
    };

    fn nowhere() -> Sink {
        let (said, _) = OutputLog::new(&run(""), HandlerOutput::Discard);
        Sink::Log(said, Stream::Out)
    }

    async fn last_line(output: Vec<u8>) -> Line {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let writing = std::thread::spawn(move || writer.write_all(&output));
        let mut output = Output::read(reader.into(), nowhere()).expect("it is read");
        output.closed().await;
        output.closed().await;
        writing.join().expect("it ends").expect("it is written");
        output.last_line()
    }

    #[rstest]
    #[case("", "")]
    #[case("one", "one")]
    #[case("one\n", "one")]
    #[case("one\ntwo\n\n  \n", "two")]
    #[case("one\r\n  two\r\n", "two")]
    #[tokio::test]
    async fn the_last_line_that_is_not_blank_counts(#[case] output: &str, #[case] expected: &str) {
        let line = last_line(output.into()).await;
        assert_eq!(line, Line { text: expected.to_owned(), beginning: None });
    }

    #[rstest]
    #[case(LINE + 1)]
    #[case(3_000_000)]
    #[tokio::test]
    async fn both_ends_of_a_very_long_line_are_kept(#[case] length: usize) {
        let output = [b"\n  the beginning".to_vec(), vec![b'a'; length], b"the end".to_vec()].concat();
        let line = last_line(output).await;
        assert!(line.text.len() <= LINE && line.text.ends_with("the end"), "{} bytes", line.text.len());
        assert!(line.beginning.is_some_and(|text| text.starts_with("the beginninga")));
    }

    #[tokio::test]
    async fn the_last_line_may_still_be_in_the_pipe() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let output = Output::read(reader.into(), nowhere()).expect("it is read");
        // The reading task has not run yet, because this test's runtime has one thread.
        writer.write_all(b"one\ntwo").expect("it is written");
        assert_eq!(output.last_line().text, "two");
        assert_eq!(output.last_line().text, "two");
    }
}
