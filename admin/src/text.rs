//! Words that the findings and the screens of the command line have in common.

use std::fmt::Display;

use hatchery::internals::words::plain;
use jiff::Timestamp;

/// Returns a time relative to now, in at most this many of the largest units.
#[must_use]
pub fn relative(now: Timestamp, time: Timestamp, units: usize) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let away = time.duration_since(now);
    let mut left = away.unsigned_abs().as_secs();
    let said = UNITS.iter().map(|(unit, name)| {
        let count = left / unit;
        left %= unit;
        (count, name)
    });
    let said = said.skip_while(|(count, _)| *count == 0).take(units).filter(|(count, _)| *count > 0);
    let said = said.map(|(count, name)| format!("{count}{name}")).collect::<Vec<_>>().join(" ");
    match (said.is_empty(), away.is_negative()) {
        (true, _) => "now".to_owned(),
        (false, true) => format!("{said} ago"),
        (false, false) => format!("in {said}"),
    }
}

/// Returns a number with its noun: `1 event`, `2 events`, `3 tries`.
#[must_use]
pub fn count<N: Copy + Display + From<u8> + PartialEq>(n: N, word: &str) -> String {
    match word.strip_suffix('y') {
        _ if n == N::from(1) => format!("1 {word}"),
        Some(stem) => format!("{n} {stem}ies"),
        None => format!("{n} {word}s"),
    }
}

/// Formats thousandths as a percentage: `12.5%`.
pub(crate) fn percent(thousandths: u64) -> String {
    let (whole, tenths) = (thousandths / 10, thousandths % 10);
    if tenths == 0 { format!("{whole}%") } else { format!("{whole}.{tenths}%") }
}

/// Quotes a word for a shell, if it needs that.
#[must_use]
pub fn quoted(word: &str) -> String {
    let word = plain(word);
    let is_simple = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=".contains(c);
    if !word.is_empty() && word.chars().all(is_simple) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[rstest]
    #[case(0, 2, "now")]
    #[case(5, 1, "in 5s")]
    #[case(60, 2, "in 1m")]
    #[case(3_725, 2, "in 1h 2m")]
    #[case(3_725, 1, "in 1h")]
    #[case(-90, 2, "1m 30s ago")]
    #[case(86_400 * 400 + 60, 2, "in 400d")]
    fn a_time_is_shown_relative_to_now(#[case] seconds: i64, #[case] units: usize, #[case] expected: &str) {
        assert_eq!(relative(at(1_000_000_000), at(1_000_000_000 + seconds), units), expected);
    }

    #[rstest]
    #[case(0, "event", "0 events")]
    #[case(1, "try", "1 try")]
    #[case(2, "try", "2 tries")]
    fn a_number_is_followed_by_its_noun(#[case] n: u64, #[case] word: &str, #[case] expected: &str) {
        assert_eq!(count(n, word), expected);
    }
}
