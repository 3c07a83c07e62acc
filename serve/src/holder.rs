//! `GET /v1/token`: what the sender of the request may do.

use axum::{Extension, http::StatusCode, response::Response};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{answer::answer, tokens::Caller};

/// What a token may do.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Holder<'a> {
    /// The name of the token; `null` for somebody on the server's machine, who needs none.
    name: Option<&'a str>,
    /// The rights, as the file of tokens writes them: `read`, `publish`, `publish:TYPE`, `operate`.
    rights: Vec<String>,
}

pub(crate) async fn show(Extension(caller): Extension<Caller>) -> Response {
    let (name, rights) = caller.describe();
    answer(StatusCode::OK, &Holder { name, rights })
}
