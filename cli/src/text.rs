//! Text for the columns of a terminal: sentences are folded, and cells are cut.

use hatchery::internals::words::acts;
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
    shortened(text.chars().map(|c| if acts(c) { '\u{fffd}' } else { c }).collect(), width)
}

/// Cuts a text in which nothing acts on a terminal.
pub(crate) fn shortened(text: String, width: usize) -> String {
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

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
