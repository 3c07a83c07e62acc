//! The parts of answers and of paths that the operations share.

use axum::{
    extract::{Path, rejection::PathRejection},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use hatchery::internals::words::may_be_url;
use hatchery_admin::batch::LineError;
use serde::Serialize;

use crate::problem::Problem;

/// The media type of one value.
pub(crate) const JSON: &str = "application/json";

/// Returns an answer with a value as JSON. The values are texts and numbers, which are always JSON.
pub(crate) fn answer(status: StatusCode, value: &impl Serialize) -> Response {
    (status, [(CONTENT_TYPE, JSON)], serde_json::to_vec(value).unwrap_or_default()).into_response()
}

/// The name in a path.
pub(crate) type Named = Result<Path<String>, PathRejection>;

/// Returns the type that the path names.
pub(crate) fn event_type(path: Named) -> Result<String, Problem> {
    match path {
        Ok(Path(event_type)) if may_be_url(&event_type) => Err(LineError::Misplaced("type").into()),
        Ok(Path(event_type)) => Ok(event_type),
        Err(rejection) => Err(Problem::new(StatusCode::BAD_REQUEST, rejection.body_text())),
    }
}
