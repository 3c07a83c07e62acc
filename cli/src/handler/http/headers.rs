//! The fields of an event as headers of a request.

use hatchery::internals::event::Event;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::handler::fields::{Field, fields};

/// The characters that a header cannot carry: controls, and everything that is not ASCII (which is always encoded).
const IMPOSSIBLE: &AsciiSet = CONTROLS;

/// The characters that are encoded in headers of ours: also `%`, which a decoder would take for an escape, and `+`,
/// which some decoders turn into a space.
const ESCAPED: &AsciiSet = &IMPOSSIBLE.add(b'%').add(b'+');

/// [`ESCAPED`] and the space, for a value that begins or ends with one: it would be cut off on the way.
const SPACED: &AsciiSet = &ESCAPED.add(b' ');

/// Returns the headers of a request. A field without a value has no header.
pub(super) fn headers(event: &Event, fence: Option<i64>) -> HeaderMap {
    let present = fields(event, fence).into_iter().filter_map(|Field { header, value, .. }| {
        // An encoded value is visible ASCII, so it is always valid.
        let value = HeaderValue::try_from(encode(header, &value?)).ok()?;
        Some((HeaderName::from_static(header), value))
    });
    present.collect()
}

/// Percent-encodes special characters. `Content-Type` and `Traceparent` are standard headers that no service would
/// decode, so they are encoded only where they must be.
fn encode(header: &str, value: &str) -> String {
    let set = match value {
        _ if !header.starts_with("event-") => IMPOSSIBLE,
        _ if value.starts_with(' ') || value.ends_with(' ') => SPACED,
        _ => ESCAPED,
    };
    utf8_percent_encode(value, set).to_string()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("event-reference", "a b: c=\"d\" /é", "a b: c=\"d\" /%C3%A9")]
    #[case::control("event-reason", "a\r\nSet-Cookie: x\0\t", "a%0D%0ASet-Cookie: x%00%09")]
    #[case::escape("event-id", "100%", "100%25")]
    #[case::plus("event-reference", "+49 1", "%2B49 1")]
    #[case::space_at_an_end("event-correlation-id", " a b", "%20a%20b")]
    #[case::empty("event-correlation-id", "", "")]
    #[case::everybodys("content-type", "application/x+json; a=%20", "application/x+json; a=%20")]
    #[case::impossible("content-type", "é\n", "%C3%A9%0A")]
    fn special_characters_are_encoded(#[case] header: &str, #[case] value: &str, #[case] expected: &str) {
        let encoded = encode(header, value);
        assert_eq!(encoded, expected);
        assert!(HeaderValue::from_str(&encoded).is_ok());
        assert_eq!(
            percent_encoding::percent_decode_str(&encoded).decode_utf8_lossy(),
            match header {
                "content-type" if value.contains('%') => "application/x+json; a= ",
                _ => value,
            }
        );
    }

    #[test]
    fn every_character_can_be_sent() {
        for character in (0..=0x2100).filter_map(char::from_u32) {
            for header in ["event-reference", "content-type"] {
                let encoded = encode(header, &format!("a{character}"));
                assert!(HeaderValue::from_str(&encoded).is_ok_and(|value| value.to_str().is_ok()), "{encoded}");
            }
        }
    }
}
