//! Folds sentences into the columns of a terminal.

use unicode_width::UnicodeWidthStr as _;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_folded_at_spaces_and_never_cut() {
        assert_eq!(sentence("one two three", 7), "one two\nthree\n");
        assert_eq!(sentence("overlong word", 5), "overl\nong\nword\n");
        assert_eq!(sentence("従業員 1", 6), "従業員\n1\n");
        assert_eq!(sentence("one two three", usize::MAX), "one two three\n");
    }
}
