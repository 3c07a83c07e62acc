//! Why a line of a batch is refused.

use hatchery::internals::words::{is_url_with_password, unless_url};

/// The reason why a line is no event.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The line is not UTF-8 from this byte on.
    #[error("not UTF-8 at byte {0}")]
    NotText(usize),
    /// The JSON is no event.
    #[error("not an event: {}", in_this_line(.0))]
    Json(#[from] serde_json::Error),
    /// The line is not a JSON object.
    #[error("not a JSON object")]
    NotAnObject,
    /// The payload is not base64.
    #[error("payload_base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// The properties are not what a discard has written.
    #[error("properties: not what `topology dead-letter discard` writes")]
    Properties,
    /// Both fields are there.
    #[error("`{0}` and `{1}` exclude each other")]
    Both(&'static str, &'static str),
    /// Neither field is there.
    #[error("one of `{0}` and `{1}` is missing")]
    Neither(&'static str, &'static str),
    /// The field is not there.
    #[error("not an event: missing field `{0}`")]
    Missing(&'static str),
    /// The field belongs to another request.
    #[error("`{0}` does not belong here")]
    NotHere(&'static str),
    /// The field has a text that may be a secret.
    #[error("`{0}` has a URL, or a text that may have a password, and takes none")]
    Misplaced(&'static str),
}

/// Removes serde's own line number from an error, because it is 1 in every line of a batch.
fn in_this_line(error: &serde_json::Error) -> String {
    unless_url(&error.to_string()).replace(" at line 1 column ", " at column ")
}

/// Refuses a URL with a password in a field that does not keep it secret.
pub(super) fn misplaced<const N: usize>(fields: [(&'static str, &Option<String>); N]) -> Result<(), LineError> {
    let has_url = |field: &Option<String>| field.as_deref().is_some_and(is_url_with_password);
    match fields.into_iter().find(|(_, field)| has_url(field)) {
        Some((name, _)) => Err(LineError::Misplaced(name)),
        None => Ok(()),
    }
}
