//! `POST /v1/events/{type}/cancel`, `reschedule` and `run-now`: changes events that wait.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Path, Request, State, rejection::PathRejection},
    http::StatusCode,
    response::Response,
};
use hatchery_admin::batch::{Change, ChangeKind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    answer::{answer, event_type},
    api::Api,
    body,
    problem::Problem,
};

/// How long the choice of events may be, in bytes.
const MOST: usize = 16 * 1024;

/// What became of the events.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ChangedEvents {
    /// The number of events by result, in the words of `topology events cancel`, `reschedule` and `run-now`.
    results: BTreeMap<&'static str, u64>,
    /// The ids of the events that were changed, as far as Redis knows them.
    ids: Vec<String>,
}

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
    let changed = api.work.finish(async move { Ok(change.make(&events).await?) }).await?;
    Ok(answer(StatusCode::OK, &ChangedEvents { results: changed.results, ids: changed.ids }))
}
