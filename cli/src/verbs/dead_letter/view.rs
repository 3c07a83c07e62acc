//! Letters as text.

use std::borrow::Cow;

use hatchery::internals::words::plain;
use jiff::Timestamp;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns a time of a letter for people.
pub(super) fn time(time: Option<&str>) -> String {
    let time = time.and_then(|time| time.parse::<Timestamp>().ok());
    time.map_or_else(|| "-".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// Returns a count with its noun.
pub(super) fn letters(count: u64) -> String {
    if count == 1 { "1 letter".to_owned() } else { format!("{count} letters") }
}

/// Cuts a text of a stranger to this width, on one line. An ellipsis marks the cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    let text: Cow<'_, str> = plain(text);
    if text.width() <= width {
        return text.into_owned();
    }
    let mut taken = 1;
    let fits = |character: &char| {
        taken += character.width().unwrap_or(0);
        taken <= width
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_and_cannot_act_on_the_terminal() {
        assert_eq!(cut("connection refused", 12), "connection …");
        assert_eq!(cut("ok", 12), "ok");
        assert!(!cut("a\u{1b}[2J\nb", 80).contains(['\u{1b}', '\n']));
    }
}
