//! Text for the columns of a terminal: sentences are folded, cells are cut, and times are relative to now.

use jiff::Timestamp;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The least width of a screen, even of a narrower terminal.
pub(crate) const LEAST: usize = 60;

/// Returns a sentence as lines of at most `columns`. A pipe gets it on one line, so that programs find it.
pub(crate) fn sentence(text: &str, columns: usize) -> String {
    folded(text, columns).join("\n") + "\n"
}

/// Folds text that stands beside a head of this many columns, so that its lines are below each other.
pub(crate) fn beside(head: usize, text: &str, columns: usize) -> String {
    folded(text, columns.max(LEAST) - head).join(&format!("\n{:head$}", ""))
}

/// Folds text at spaces into lines of at most `room` columns. A longer word is divided.
pub(crate) fn folded(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word;
        loop {
            let line = lines.last_mut().expect("there is one");
            let gap = usize::from(!line.is_empty());
            if line.width() + gap + word.width() <= room {
                line.push_str(&" "[..gap]);
                line.push_str(word);
                break;
            }
            if line.is_empty() {
                let end =
                    word.char_indices().map(|(at, _)| at).find(|at| word[..*at].width() >= room).unwrap_or(word.len());
                line.push_str(&word[..end]);
                word = &word[end..];
                if word.is_empty() {
                    break;
                }
            }
            lines.push(String::new());
        }
    }
    lines
}

/// Cuts a text to this width. An ellipsis marks the cut. Characters that act on a terminal are replaced.
pub(crate) fn cut(text: &str, width: usize) -> String {
    let text: String = text.chars().map(|c| if acts(c) { '\u{fffd}' } else { c }).collect();
    if text.width() <= width {
        return text;
    }
    let (mut kept, mut taken) = (String::new(), 1);
    for character in text.chars() {
        taken += character.width().unwrap_or(0);
        if taken > width {
            break;
        }
        kept.push(character);
    }
    kept.push('…');
    kept
}

/// Returns whether a character controls a terminal, reverses the direction of the text after it, or is invisible. Two
/// references that differ only in an invisible character would look the same.
fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns a time relative to now, in at most this many of the largest units.
pub(crate) fn relative(now: Timestamp, time: Timestamp, units: usize) -> String {
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
    #[case("short", 5, "short")]
    #[case("longer", 5, "long…")]
    #[case("größer", 5, "größ…")]
    #[case("a\u{1b}[31m", 9, "a\u{fffd}[31m")]
    #[case("a\u{202e}b\u{200b}", 9, "a\u{fffd}b\u{fffd}")]
    #[case("従業員", 6, "従業員")]
    #[case("従業員", 5, "従業…")]
    #[case("従業員", 4, "従…")]
    #[case("e\u{301}tude", 5, "e\u{301}tude")]
    fn a_cell_is_cut(#[case] text: &str, #[case] width: usize, #[case] expected: &str) {
        assert_eq!(cut(text, width), expected);
    }

    #[test]
    fn a_sentence_is_folded_at_spaces_and_never_cut() {
        assert_eq!(sentence("one two three", 7), "one two\nthree\n");
        assert_eq!(sentence("overlong word", 5), "overl\nong\nword\n");
        assert_eq!(sentence("従業員 1", 6), "従業員\n1\n");
        assert_eq!(sentence("one two three", usize::MAX), "one two three\n");
    }
}
