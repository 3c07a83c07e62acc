//! Counts, times and names as the sentences of `status` have them.

use hatchery::internals::words::plain;
use jiff::Timestamp;

use crate::verbs::events::relative;

/// Returns a count with its noun: `1 event`, `2 deliveries`.
pub(super) fn count(n: u64, what: &str) -> String {
    match (n, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        (_, None) => format!("{n} {what}s"),
    }
}

pub(super) fn are(n: u64, what: &str) -> String {
    format!("{} {}", count(n, what), if n == 1 { "is" } else { "are" })
}

pub(super) fn wait(events: u64) -> String {
    format!("{} {}", count(events, "event"), if events == 1 { "waits" } else { "wait" })
}

/// Returns a number of seconds in the two largest units.
pub(super) fn in_words(seconds: u64) -> String {
    let later = Timestamp::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let words = relative(Timestamp::UNIX_EPOCH, later, 2);
    words.strip_prefix("in ").map_or_else(|| "0s".to_owned(), str::to_owned)
}

/// Quotes a word for a shell, if it needs that.
pub(super) fn quoted(word: &str) -> String {
    let word = plain(word);
    let is_simple = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=".contains(c);
    if !word.is_empty() && word.chars().all(is_simple) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
