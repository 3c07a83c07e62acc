//! `POST /v1/events/{type}/cancel`, `reschedule` and `run-now`: changes events that wait.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::Response,
    routing::{MethodRouter, post},
};
use hatchery_admin::batch::{Change, ChangeKind};

use crate::{
    answer::{Named, answer, event_type},
    api::Api,
    body,
    problem::Problem,
};

/// How long the choice of events may be, in bytes.
const MOST: usize = 16 * 1024;

/// Returns the route of a change.
pub(crate) fn route(kind: ChangeKind) -> MethodRouter<Arc<Api>> {
    post(async move |State(api): State<Arc<Api>>, path: Named, request: Request| change(kind, api, path, request).await)
}

async fn change(kind: ChangeKind, api: Arc<Api>, path: Named, request: Request) -> Result<Response, Problem> {
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
