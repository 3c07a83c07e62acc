//! A JSON Pointer (RFC 6901).

use std::{fmt, str::FromStr};

use serde_json::{Value, value::RawValue};

/// A place in a message. `/employee/number` is the member `number` of the member `employee`; `/changes/0` is the first
/// item of a list. The whole message is `/` or an empty text: a member without a name at the top has no pointer here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer(Vec<String>);

/// Why a text is no pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// The text does not begin with `/`.
    #[error("does not begin with `/`")]
    Relative,
    /// A `~` stands before another character than `0` and `1`.
    #[error("has a `~` that is neither `~0` (a `~`) nor `~1` (a `/`)")]
    Tilde,
}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, PointerError> {
        if matches!(text, "" | "/") {
            return Ok(Self(Vec::new()));
        }
        let Some(tokens) = text.strip_prefix('/') else { return Err(PointerError::Relative) };
        let token = |token: &str| {
            let escapes = token.split('~').skip(1);
            let is_valid = escapes.clone().all(|after| after.starts_with(['0', '1']));
            is_valid.then(|| token.replace("~1", "/").replace("~0", "~")).ok_or(PointerError::Tilde)
        };
        tokens.split('/').map(token).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        self.0.iter().try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}

impl Pointer {
    /// Returns the pointer to the whole message.
    #[must_use]
    pub const fn whole() -> Self {
        Self(Vec::new())
    }

    /// Tells whether this is the whole message.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells whether this place is a part of another one.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.len() > other.0.len() && self.0.starts_with(&other.0)
    }

    /// Returns the value at this place. `None` if there is none.
    #[must_use]
    pub fn of<'v>(&self, message: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(message, |value, token| match value {
            Value::Object(members) => members.get(token),
            Value::Array(items) => items.get(index(token)?),
            _ => None,
        })
    }

    /// Returns the text of the value at this place, exactly as it stands in the message: the numbers keep all their
    /// digits, and the members their order.
    #[must_use]
    pub fn text_of<'t>(&self, message: &'t str) -> Option<&'t str> {
        let whole: &RawValue = serde_json::from_str(message).ok()?;
        self.0.iter().try_fold(whole.get(), |text, token| raw_member(text, token))
    }
}

fn raw_member<'t>(text: &'t str, token: &str) -> Option<&'t str> {
    match text.as_bytes().first()? {
        b'{' => {
            let members: std::collections::HashMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            members.get(token).map(|value| value.get())
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            items.get(index(token)?).map(|value| value.get())
        }
        _ => None,
    }
}

/// Reads the number of an item. A sign, or a zero in front, makes it none.
fn index(token: &str) -> Option<usize> {
    let is_plain = token.bytes().all(|byte| byte.is_ascii_digit()) && (token == "0" || !token.starts_with('0'));
    is_plain.then(|| token.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("", Some(r#"{"a/b":1,"m~n":2,"":{"":3},"list":[10,{"x":11}],"k":{"k":4}}"#))]
    #[case("/", Some(r#"{"a/b":1,"m~n":2,"":{"":3},"list":[10,{"x":11}],"k":{"k":4}}"#))]
    #[case("/a~1b", Some("1"))]
    #[case("/m~0n", Some("2"))]
    #[case("//", Some("3"))]
    #[case("/list/0", Some("10"))]
    #[case("/list/1/x", Some("11"))]
    #[case("/k/k", Some("4"))]
    #[case("/list/2", None)]
    #[case("/list/01", None)]
    #[case("/list/+1", None)]
    #[case("/list/-", None)]
    #[case("/list/99999999999999999999", None)]
    #[case("/k/k/k", None)]
    #[case("/nothing", None)]
    fn a_pointer_finds_its_place(#[case] pointer: &str, #[case] found: Option<&str>) {
        let text = r#"{"a/b":1,"m~n":2,"":{"":3},"list":[10,{"x":11}],"k":{"k":4}}"#;
        let pointer: Pointer = pointer.parse().expect("a pointer");
        let value: Value = serde_json::from_str(text).expect("JSON");
        let expected: Option<Value> = found.map(|found| serde_json::from_str(found).expect("JSON"));
        assert_eq!(pointer.of(&value), expected.as_ref());
        assert_eq!(pointer.text_of(text), found);
    }

    #[rstest]
    #[case("kind", PointerError::Relative)]
    #[case("#/kind", PointerError::Relative)]
    #[case("/a~", PointerError::Tilde)]
    #[case("/a~2b", PointerError::Tilde)]
    fn a_text_that_is_no_pointer_is_refused(#[case] text: &str, #[case] error: PointerError) {
        assert_eq!(text.parse::<Pointer>(), Err(error));
    }

    #[test]
    fn a_part_keeps_its_text() {
        let text = r#"{ "employee": { "number" : 12345678901234567890123, "b": 1.50, "a": "ä" } }"#;
        let pointer: Pointer = "/employee".parse().expect("a pointer");
        assert_eq!(pointer.text_of(text), Some(r#"{ "number" : 12345678901234567890123, "b": 1.50, "a": "ä" }"#));
    }

    proptest! {
        #[test]
        fn a_pointer_is_written_as_it_is_read(tokens in proptest::collection::vec("[a-z~/0-9 ä]{0,4}", 1..5)) {
            let pointer = Pointer(tokens.clone());
            let read: Pointer = pointer.to_string().parse().expect("a pointer");
            // A single name that is empty cannot be told from the whole message.
            prop_assert!(read == pointer || tokens == [""]);
        }

        #[test]
        fn any_text_is_a_pointer_or_an_error(text in ".{0,20}", body in ".{0,40}") {
            if let Ok(pointer) = text.parse::<Pointer>() {
                let _ = pointer.text_of(&body);
                let _ = pointer.of(&json!({ "a": [text] }));
            }
        }
    }
}
