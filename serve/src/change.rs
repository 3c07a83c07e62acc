//! `POST /v1/events/{type}/cancel`, `reschedule` and `run-now`: changes events that wait.

use std::sync::Arc;

use axum::{
    extract::{Path, Request, State, rejection::PathRejection},
    http::StatusCode,
    response::Response,
};
use hatchery_admin::batch::{Change, ChangeKind};

use crate::{
    answer::{answer, event_type},
    api::Api,
    body,
    problem::Problem,
};

/// How long the choice of events may be, in bytes.
const MOST: usize = 16 * 1024;

pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    path: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    change(ChangeKind::Cancel, api, path, request).await
}

pub(crate) async fn reschedule(
    State(api): State<Arc<Api>>,
    path: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    change(ChangeKind::Reschedule, api, path, request).await
}

pub(crate) async fn run_now(
    State(api): State<Arc<Api>>,
    path: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    change(ChangeKind::RunNow, api, path, request).await
}

async fn change(
    kind: ChangeKind,
    api: Arc<Api>,
    path: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let event_type = event_type(path)?;
    let (head, body) = request.into_parts();
    body::require_json(&head.headers)?;
    body::length(&head.headers, MOST)?;
    let change = Change::of(kind, event_type, &body::read(body, MOST).await?)?;
    let events = api.events.clone();
    match api.work.finish(async move { Ok(change.carry_out(&events).await?) }).await? {
        (changed, None) => Ok(answer(StatusCode::OK, &changed)),
        (changed, Some(unchanged)) => Err(Problem::from(unchanged).with(changed)),
    }
}
