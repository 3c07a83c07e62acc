//! `GET /v1/status`: what is wrong, and how many events are where.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use hatchery_admin::status::Document;

use crate::{answer::answer, api::Api, problem::Problem};

pub(crate) async fn status(State(api): State<Arc<Api>>) -> Result<Response, Problem> {
    let status = api.status().await?;
    Ok(answer(StatusCode::OK, &Document::of(&status)))
}
