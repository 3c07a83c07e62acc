//! Reads the lines of a batch in bounded memory.

use std::{
    io::{self, Write},
    mem,
};

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// The longest line in bytes: the largest payload in base64, and room for the other fields.
const LONGEST: usize = 24 * 1024 * 1024;

/// One line with its number, from 1.
pub struct Numbered {
    /// The number.
    pub number: u64,
    /// The text, without its line ending.
    pub line: Vec<u8>,
    /// Whether the line is longer; [`Lines::rest`] reads its rest.
    pub cut: bool,
}

/// Reads lines from an input.
pub struct Lines<R> {
    input: R,
    number: u64,
    /// The part of a line that was read so far. It is not kept in the future, which may be dropped half-way.
    line: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    /// Reads from this input.
    #[must_use]
    pub const fn new(input: R) -> Self {
        Self { input, number: 0, line: Vec::new() }
    }

    /// Returns how many lines were read so far.
    #[must_use]
    pub const fn read(&self) -> u64 {
        self.number
    }

    /// Returns the next line that is not blank, without its line ending. Nothing is lost if the future is dropped
    /// before it is ready.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub async fn next(&mut self) -> io::Result<Option<Numbered>> {
        loop {
            let chunk = self.input.fill_buf().await?;
            let ended = chunk.is_empty();
            if ended && self.line.is_empty() {
                return Ok(None);
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let room = LONGEST - self.line.len();
            if part.len() > room {
                self.line.extend_from_slice(&part[..room]);
                self.input.consume(room);
                self.number += 1;
                return Ok(Some(Numbered { number: self.number, line: mem::take(&mut self.line), cut: true }));
            }
            self.line.extend_from_slice(part);
            let taken = end.map_or(chunk.len(), |end| end + 1);
            self.input.consume(taken);
            if end.is_none() && !ended {
                continue;
            }
            self.number += 1;
            let mut line = mem::take(&mut self.line);
            if line.ends_with(b"\r") {
                line.pop();
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(Numbered { number: self.number, line, cut: false }));
            }
        }
    }

    /// Copies the rest of a line that was cut to `to`, without its line ending.
    ///
    /// # Errors
    /// When the input cannot be read, or `to` not be written.
    pub async fn rest(&mut self, to: &mut (dyn Write + Send)) -> io::Result<()> {
        loop {
            let chunk = self.input.fill_buf().await?;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            to.write_all(part)?;
            let (ended, taken) = (end.is_some() || chunk.is_empty(), end.map_or(chunk.len(), |end| end + 1));
            self.input.consume(taken);
            if ended {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Reads the input in chunks of so many bytes.
    async fn all(input: &[u8], chunk: usize) -> Vec<(u64, Vec<u8>, bool)> {
        let mut lines = Lines::new(tokio::io::BufReader::with_capacity(chunk, input));
        let mut read = Vec::new();
        while let Some(Numbered { number, mut line, cut }) = lines.next().await.expect("memory can be read") {
            if cut {
                lines.rest(&mut line).await.expect("memory can be read");
            }
            read.push((number, line, cut));
        }
        read
    }

    #[tokio::test]
    async fn lines_keep_their_numbers_and_the_last_line_needs_no_line_ending() {
        let read = all(b"one\n\n \t\r\ntwo\r\nthree", 3).await;
        let expected = [(1, "one"), (4, "two"), (5, "three")].map(|(n, text)| (n, text.as_bytes().to_vec(), false));
        assert_eq!(read, expected);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_comes_in_parts_and_the_next_one_is_whole() {
        let input = [vec![b'x'; LONGEST + 10], b"\nnext\n".to_vec(), vec![b'x'; LONGEST + 1]].concat();
        let read = all(&input, 10_001).await;
        assert_eq!(
            read.iter().map(|(n, line, cut)| (*n, line.len(), *cut)).collect::<Vec<_>>(),
            [(1, LONGEST + 10, true), (2, 4, false), (3, LONGEST + 1, true)]
        );
    }

    #[tokio::test]
    async fn a_line_is_read_whole_although_its_reader_was_dropped_half_way() {
        let (mut writer, reader) = tokio::io::duplex(64);
        let mut lines = Lines::new(tokio::io::BufReader::new(reader));
        for part in [&b"{\"type\":"[..], b" \"mail\"", b"}\n"] {
            assert!(lines.next().now_or_never().is_none(), "the line has not ended");
            writer.write_all(part).await.expect("there is room");
        }
        let line = lines.next().await.expect("memory can be read").expect("a line");
        assert_eq!((line.number, &line.line[..]), (1, &b"{\"type\": \"mail\"}"[..]));
    }
}
