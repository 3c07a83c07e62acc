//! `GET /v1/status`: what is wrong, and how many events are where.

use std::{sync::Arc, time::Duration};

use axum::{extract::State, http::StatusCode, response::Response};
use hatchery_admin::status::Document;
use tokio::time::timeout;

use crate::{answer::answer, api::Api, problem::Problem};

/// How long a request waits for the looks before it. One look takes up to twelve seconds.
const TURN: Duration = Duration::from_mins(1);

pub(crate) async fn status(State(api): State<Arc<Api>>) -> Result<Response, Problem> {
    let late = |_| Problem::for_now(format!("other requests have asked for the status for {} s", TURN.as_secs()));
    // Nobody closes the semaphore.
    let _turn = timeout(TURN, api.looks.acquire()).await.map_err(late)?;
    match api.backend.status().await {
        Ok(status) => Ok(answer(StatusCode::OK, &Document::of(&status))),
        Err(error) => Err(Problem::for_now(error.to_string())),
    }
}
