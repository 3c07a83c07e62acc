//! Letters as text.

use hatchery::internals::words::plain;
use jiff::Timestamp;

use crate::text::shortened;

/// Returns a time of a letter for people.
pub(super) fn time(time: Option<&str>) -> String {
    let time = time.and_then(|time| time.parse::<Timestamp>().ok());
    time.map_or_else(|| "-".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// Cuts a text of a stranger to this width, on one line. An ellipsis marks the cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    shortened(plain(text).into_owned(), width)
}
