//! What a program prints, of which the last line counts.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio_util::task::AbortOnDropHandle;

/// The longest line that counts. Of a longer one the end is kept.
const LINE: usize = 64 * 1024;

/// One of a program's outputs, of which everything is read, so that the program never waits.
pub(super) struct Output {
    lines: Arc<Mutex<Lines>>,
    reading: AbortOnDropHandle<()>,
}

impl Output {
    /// Reads it as long as somebody has it open, and this value lives.
    pub(super) fn read(output: Option<impl AsyncRead + Unpin + Send + 'static>) -> Self {
        let lines = Arc::new(Mutex::new(Lines::default()));
        let reading = AbortOnDropHandle::new(tokio::spawn(read(output, Arc::clone(&lines))));
        Self { lines, reading }
    }

    /// Waits until nobody has it open any more.
    pub(super) async fn closed(&mut self) {
        if !self.reading.is_finished() {
            // It neither panics nor is aborted before this value is dropped.
            let _ = (&mut self.reading).await;
        }
    }

    /// The last line with anything in it, of what was read so far.
    pub(super) fn last_line(&self) -> String {
        lock(&self.lines).last()
    }
}

async fn read(output: Option<impl AsyncRead + Unpin>, lines: Arc<Mutex<Lines>>) {
    let Some(output) = output else { return };
    let mut reader = BufReader::new(output);
    while let Ok(chunk) = reader.fill_buf().await
        && !chunk.is_empty()
    {
        lock(&lines).add(chunk);
        let length = chunk.len();
        reader.consume(length);
    }
}

fn lock(lines: &Mutex<Lines>) -> MutexGuard<'_, Lines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last whole line with anything in it, and the one that has not ended; each of bounded length.
#[derive(Default)]
struct Lines {
    last: Vec<u8>,
    current: Vec<u8>,
}

impl Lines {
    fn add(&mut self, chunk: &[u8]) {
        for (n, part) in chunk.split(|byte| *byte == b'\n').enumerate() {
            if n > 0 {
                self.end();
            }
            self.current.extend_from_slice(part);
            if self.current.len() > 2 * LINE {
                self.current.drain(..self.current.len() - LINE);
            }
        }
    }

    /// The line that has ended becomes the last one, unless it is blank.
    fn end(&mut self) {
        if !self.current.trim_ascii().is_empty() {
            mem::swap(&mut self.last, &mut self.current);
        }
        self.current.clear();
    }

    fn last(&self) -> String {
        let blank = self.current.trim_ascii().is_empty();
        let line = if blank { &self.last } else { &self.current };
        String::from_utf8_lossy(&line[line.len().saturating_sub(LINE)..]).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    async fn last_line(output: &'static [u8]) -> String {
        let mut output = Output::read(Some(output));
        output.closed().await;
        output.closed().await;
        output.last_line()
    }

    #[rstest]
    #[case("", "")]
    #[case("one", "one")]
    #[case("one\n", "one")]
    #[case("one\ntwo\n\n  \n", "two")]
    #[case("one\r\ntwo\r\n", "two")]
    #[tokio::test]
    async fn the_last_line_with_anything_in_it_counts(#[case] output: &'static str, #[case] expected: &str) {
        assert_eq!(last_line(output.as_bytes()).await, expected);
    }

    #[tokio::test]
    async fn of_a_line_without_end_the_end_is_kept() {
        let output = [vec![b'a'; 3_000_000], b"the end".to_vec()].concat();
        let line = last_line(output.leak()).await;
        assert!(line.len() <= LINE && line.ends_with("the end"), "{} bytes", line.len());
    }
}
