//! Two recordings differ in their numbers alone.

/// Replaces each digit, because the numbers of two recordings differ.
pub(super) fn without_digits(text: &str) -> String {
    text.replace(|c: char| c.is_ascii_digit(), "0")
}
