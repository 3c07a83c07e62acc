//! Lets a request through to its operation, if its sender may call it, and tells what the sender may do.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header::AUTHORIZATION},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    answer::answer,
    api::Api,
    local,
    problem::Problem,
    tokens::{Caller, Right, Tokens},
};

/// Calls the operation, which finds the [`Caller`] among the extensions of the request.
pub(crate) async fn guard(
    State((api, right)): State<(Arc<Api>, Right)>,
    mut request: Request,
    operation: Next,
) -> Response {
    match caller(api.tokens.as_ref(), right, request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            operation.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

fn caller(tokens: Option<&Tokens>, right: Right, headers: &HeaderMap) -> Result<Caller, Problem> {
    let Some(tokens) = tokens else { return local::check(headers).map(|()| Caller(None)) };
    if right == Right::None {
        return Ok(Caller(None));
    }
    let bearer = || {
        let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    };
    let token = bearer().and_then(|token| tokens.find(token));
    let unknown = || Problem::new(StatusCode::UNAUTHORIZED, "no known token: send `Authorization: Bearer TOKEN`");
    let caller = Caller(Some(token.ok_or_else(unknown)?));
    caller.may(right)?;
    Ok(caller)
}

/// The holder of a token, and what it may do.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Holder<'a> {
    /// The name of the token; `null` for somebody on the server's machine, who needs none.
    name: Option<&'a str>,
    /// The rights, as the file of tokens writes them: `read`, `publish`, `publish:TYPE`, `operate`.
    rights: Vec<String>,
}

/// `GET /v1/token`: what the sender of the request may do.
pub(crate) async fn holder(Extension(caller): Extension<Caller>) -> Response {
    let (name, rights) = caller.describe();
    answer(StatusCode::OK, &Holder { name, rights })
}
