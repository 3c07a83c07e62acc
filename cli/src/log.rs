//! The log on standard error, as text or as JSON. No line shows a password, and none controls a terminal.

use std::{
    fmt::{self, Debug, Write as _},
    io,
};

use anstyle::Style;
use hatchery::internals::words::{acts, plain};
use tracing::{Level, Metadata, Subscriber, field::Field};
use tracing_subscriber::{
    EnvFilter, Layer,
    field::MakeExt as _,
    filter::{FilterExt as _, filter_fn},
    fmt::format::{Writer, debug_fn},
    layer::SubscriberExt as _,
    registry::LookupSpan,
    util::SubscriberInitExt as _,
};

use crate::output;

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people
    #[default]
    Text,
    /// An object a line, with the fields of the text
    Json,
}

/// Starts the log, at the level that `RUST_LOG` sets, or else at `level`.
pub(crate) fn start(level: &str, format: LogFormat, is_colored: bool) {
    let asked = std::env::var("RUST_LOG").ok().filter(|asked| !asked.is_empty());
    let filter = asked.and_then(|asked| EnvFilter::try_new(asked).ok()).unwrap_or_else(|| EnvFilter::new(level));
    let filter = filter.and(filter_fn(is_shown));
    let log = tracing_subscriber::registry();
    match format {
        LogFormat::Text => log.with(text(io::stderr, is_colored).with_filter(filter)).init(),
        LogFormat::Json => log.with(json(io::stderr).with_filter(filter)).init(),
    }
}

fn text<S, W>(output: fn() -> W, is_colored: bool) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: io::Write + 'static,
{
    let fields = debug_fn(write_field).delimited(" ");
    tracing_subscriber::fmt::layer().with_writer(output).with_ansi(is_colored).fmt_fields(fields)
}

fn json<S, W>(output: fn() -> W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: io::Write + 'static,
{
    let lines = move || Escaped(output());
    tracing_subscriber::fmt::layer().json().flatten_event(true).with_span_list(false).with_writer(lines)
}

/// Writes one field of a log line. A routing key, an id or an error may hold text that a stranger wrote, so control
/// characters and newlines are escaped in every field.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let value = format!("{value:?}");
    let value = plain(&value);
    if field.name() == "message" {
        return writer.write_str(&value);
    }
    let style = if writer.has_ansi_escapes() { output::DIM } else { Style::new() };
    write!(writer, "{style}{}={style:#}{value}", field.name())
}

/// Returns whether the log may show this. Spans are for tracing systems: the lines name their events themselves. The AMQP
/// library's trace holds every byte that is sent, and with them the password, so it is never shown, whatever `RUST_LOG`
/// says.
fn is_shown(of: &Metadata<'_>) -> bool {
    let is_amqp = ["lapin", "amq_protocol"].iter().any(|library| of.target().starts_with(library));
    !of.is_span() && (!is_amqp || *of.level() < Level::TRACE)
}

/// Escapes the characters that JSON lets through and terminals obey or hide, such as U+009B. Each write is one line.
struct Escaped<W>(W);

impl<W: io::Write> io::Write for Escaped<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut shown = String::with_capacity(line.len());
        for character in String::from_utf8_lossy(line).chars() {
            if acts(character) && character != '\n' {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a string does not fail.
                    let _ = write!(shown, "\\u{unit:04x}");
                }
            } else {
                shown.push(character);
            }
        }
        self.0.write_all(shown.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use serde_json::Value;

    use super::*;

    static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

    struct Kept;

    impl io::Write for Kept {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).extend(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_of_json_has_the_fields_and_no_control_character_of_a_stranger() {
        let log = tracing_subscriber::registry().with(json(|| Kept));
        tracing::subscriber::with_default(log, || {
            tracing::info!(id = "a\u{1b}[2J\u{9b}2J\nb\u{202e}\u{e0001}", attempts = 3, "event runs again");
        });
        let line = String::from_utf8(WRITTEN.lock().expect("no panic").clone()).expect("text");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(!line.trim_end().contains(acts), "{line:?}");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(line["message"], "event runs again");
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["id"], "a\u{1b}[2J\u{9b}2J\nb\u{202e}\u{e0001}");
        assert_eq!(line["attempts"], 3);
        assert!(line["timestamp"].is_string() && line["target"].is_string(), "{line}");
    }
}
