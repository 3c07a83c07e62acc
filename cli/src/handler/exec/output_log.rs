//! The output of a program in the log: line by line as it is printed, with the event's type and id, and bounded.

use std::{
    collections::VecDeque,
    io::{self, Write as _},
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use hatchery::{EventType, Run};

/// The longest part of a line that is logged, in bytes.
const LINE: usize = 1_000;

/// The lines of one run that are logged as they are printed. A program that prints without end must not fill the disk.
const LINES: usize = 100;

/// Of the lines beyond that, so many of the last ones are logged if the run fails.
const LAST: usize = 20;

/// Where the output of a program goes
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HandlerOutput {
    /// To standard output and standard error of `topology work`, unchanged
    Inherit,
    /// To the log, line by line with type and id; at most 100 lines a run, and the last 20 of a run that fails
    #[default]
    Log,
    /// Nowhere, but for the last 20 lines of a run that fails, which go to the log
    Discard,
}

/// The output that a line was printed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// The destination of the bytes of one output. The search for the last line reads them too.
pub(super) enum Sink {
    Inherit(Stream),
    Log(Arc<OutputLog>, Stream),
}

impl Sink {
    /// Takes bytes as they were read.
    pub(super) fn take(&self, chunk: &[u8]) {
        // Nobody may read this process's output any more. The event is handled all the same.
        let _ = match self {
            Self::Inherit(Stream::Out) => io::stdout().lock().write_all(chunk),
            Self::Inherit(Stream::Err) => io::stderr().lock().write_all(chunk),
            Self::Log(said, stream) => {
                said.take(*stream, chunk);
                Ok(())
            }
        };
    }
}

/// The lines that the program of one run has printed.
pub(super) struct OutputLog {
    event_type: EventType,
    id: String,
    lines: Mutex<Bounded>,
}

/// Ends the log of a run: as that of a failure, unless it [succeeded](Self::succeeded). A run that reaches its time limit is
/// dropped, and its last lines are what tells why.
pub(super) struct Ending(Arc<OutputLog>);

impl OutputLog {
    pub(super) fn new(run: &Run, output: HandlerOutput) -> (Arc<Self>, Ending) {
        let is_shown = output == HandlerOutput::Log && tracing::enabled!(tracing::Level::INFO);
        let lines = Mutex::new(Bounded::new(if is_shown { LINES } else { 0 }, is_shown));
        let said = Arc::new(Self { event_type: run.event.event_type.clone(), id: run.event.id.clone(), lines });
        (Arc::clone(&said), Ending(said))
    }

    fn take(&self, stream: Stream, chunk: &[u8]) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.add(stream, chunk, &mut |stream, line| self.log(stream, line));
    }

    fn end(&self, is_failed: bool) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.end(is_failed, &mut |stream, line| self.log(stream, line), &mut |count| {
            tracing::info!(event_type = %self.event_type, id = %self.id, "{count} lines of the program's output left out");
        });
    }

    /// Logs a line. The fields stand before it: it may be long.
    fn log(&self, stream: Stream, line: &str) {
        let Self { event_type, id, .. } = self;
        match stream {
            Stream::Out => tracing::info!(%event_type, %id, stdout = %line),
            Stream::Err => tracing::info!(%event_type, %id, stderr = %line),
        }
    }
}

impl Ending {
    pub(super) fn succeeded(self) {
        self.0.end(false);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(true);
    }
}

type Each<'a> = &'a mut dyn FnMut(Stream, &str);

/// Splits two outputs into lines, and keeps what is logged of them within limits.
struct Bounded {
    partial: [Partial; 2],
    /// How many lines may still be logged as they come.
    left: usize,
    /// The last lines beyond that.
    last: VecDeque<(Stream, String)>,
    left_out: usize,
    /// Whether the log tells of lines that were left out of a run that succeeded.
    is_told: bool,
    is_over: bool,
}

/// A line that has not ended yet.
#[derive(Default)]
struct Partial {
    beginning: Vec<u8>,
    /// The bytes beyond the longest part.
    more: usize,
}

impl Bounded {
    fn new(left: usize, is_told: bool) -> Self {
        Self { partial: Default::default(), left, last: VecDeque::new(), left_out: 0, is_told, is_over: false }
    }

    fn add(&mut self, stream: Stream, chunk: &[u8], log: Each<'_>) {
        // Processes that the program has left behind may still print.
        if self.is_over {
            return;
        }
        for (n, part) in chunk.split(|byte| *byte == b'\n').enumerate() {
            if n > 0 {
                self.end_line(stream, log);
            }
            self.partial[stream as usize].add(part);
        }
    }

    /// Takes a line that has ended, unless it is blank.
    fn end_line(&mut self, stream: Stream, log: Each<'_>) {
        let Some(line) = mem::take(&mut self.partial[stream as usize]).text() else { return };
        if self.left > 0 {
            self.left -= 1;
            return log(stream, &line);
        }
        self.left_out += 1;
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back((stream, line));
    }

    fn end(&mut self, is_failed: bool, log: Each<'_>, log_left_out: &mut dyn FnMut(usize)) {
        if mem::replace(&mut self.is_over, true) {
            return;
        }
        for stream in [Stream::Out, Stream::Err] {
            self.end_line(stream, log);
        }
        if !is_failed {
            self.last.clear();
        }
        let left_out = self.left_out - self.last.len();
        if left_out > 0 && (is_failed || self.is_told) {
            log_left_out(left_out);
        }
        for (stream, line) in self.last.drain(..) {
            log(stream, &line);
        }
    }
}

impl Partial {
    fn add(&mut self, part: &[u8]) {
        let (fits, more) = part.split_at(part.len().min(LINE - self.beginning.len()));
        self.beginning.extend_from_slice(fits);
        self.more += more.len();
    }

    /// Returns the text of the line. `None` if it is blank.
    fn text(self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.beginning);
        let text = text.trim_end();
        match self.more {
            0 if text.trim_start().is_empty() => None,
            0 => Some(text.to_owned()),
            more => Some(format!("{text}… and {more} bytes more")),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Returns what is logged of this output, in chunks of this size.
    fn logged(bounds: Bounded, output: &[u8], chunk: usize, is_failed: bool) -> Vec<String> {
        let (mut bounds, lines) = (bounds, std::cell::RefCell::new(Vec::new()));
        let mut log = |_, line: &str| lines.borrow_mut().push(line.to_owned());
        for chunk in output.chunks(chunk) {
            bounds.add(Stream::Out, chunk, &mut log);
        }
        for _ in 0..2 {
            bounds.end(is_failed, &mut log, &mut |count| lines.borrow_mut().push(format!("{count} left out")));
        }
        bounds.add(Stream::Out, b"late\n", &mut log);
        lines.into_inner()
    }

    fn numbered(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("line {n}")).collect()
    }

    #[rstest]
    #[case(1)]
    #[case(3)]
    #[case(1_000)]
    fn each_line_that_is_not_blank_is_logged_once(#[case] chunk: usize) {
        let lines = logged(Bounded::new(LINES, true), b"one\r\n\n  two\n \t\nthree", chunk, false);
        assert_eq!(lines, ["one", "  two", "three"]);
    }

    #[test]
    fn the_two_outputs_do_not_mix_within_a_line() {
        let (mut bounds, mut lines) = (Bounded::new(LINES, true), Vec::new());
        for (stream, chunk) in [(Stream::Out, "on"), (Stream::Err, "tw"), (Stream::Out, "e\n"), (Stream::Err, "o\n")] {
            bounds.add(stream, chunk.as_bytes(), &mut |stream, line| lines.push((stream, line.to_owned())));
        }
        assert_eq!(lines, [(Stream::Out, "one".to_owned()), (Stream::Err, "two".to_owned())]);
    }

    #[rstest]
    #[case::no_more_than_fit(LINES, false, LINES, None, 0)]
    #[case::a_success_leaves_the_rest_out(LINES + 50, false, LINES, Some(50), 0)]
    #[case::a_failure_shows_the_last_ones(LINES + 50, true, LINES, Some(30), 20)]
    #[case::of_few_all_are_shown(LINES + 5, true, LINES, None, 5)]
    fn a_long_output_is_bounded_and_the_log_says_how_much_is_missing(
        #[case] printed: usize,
        #[case] is_failed: bool,
        #[case] first: usize,
        #[case] left_out: Option<usize>,
        #[case] last: usize,
    ) {
        let all = numbered(printed);
        let lines = logged(Bounded::new(LINES, true), all.join("\n").as_bytes(), 7, is_failed);
        let left_out = left_out.map(|count| format!("{count} left out"));
        let expected: Vec<_> = all[..first].iter().chain(&left_out).chain(&all[printed - last..]).cloned().collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn of_output_that_is_discarded_a_failure_still_shows_the_last_lines() {
        let all = numbered(50);
        let discarded = |is_failed| logged(Bounded::new(0, false), all.join("\n").as_bytes(), 100, is_failed);
        assert_eq!(discarded(false), Vec::<String>::new());
        assert_eq!(discarded(true)[0], "30 left out");
        assert_eq!(discarded(true)[1..], all[30..]);
    }

    #[test]
    fn a_line_without_end_takes_bounded_memory() {
        let mut bounds = Bounded::new(LINES, true);
        for _ in 0..1_000 {
            bounds.add(Stream::Out, &[b'x'; 10_000], &mut |_, line| panic!("{line}"));
        }
        assert!(bounds.partial[0].beginning.capacity() <= 2 * LINE);
        let mut lines = Vec::new();
        bounds.end(false, &mut |_, line| lines.push(line.to_owned()), &mut |_| ());
        assert_eq!(lines, [format!("{}… and 9999000 bytes more", "x".repeat(LINE))]);
    }
}
