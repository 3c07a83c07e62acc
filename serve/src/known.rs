//! `GET /v1/events/{type}`: what the register knows of events.

use std::sync::Arc;

use axum::{
    extract::{Path, RawQuery, State, rejection::PathRejection},
    http::StatusCode,
    response::Response,
};
use hatchery_admin::{
    batch::selected,
    event_view::{EventView, view},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    answer::{answer, event_type},
    api::Api,
    problem::Problem,
};

/// What the register knows.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KnownEvents {
    /// The events, also those that have ended, while the register remembers them.
    events: Vec<EventView>,
}

pub(crate) async fn show(
    State(api): State<Arc<Api>>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let event_type = event_type(path)?;
    let (mut reference, mut id) = (None, None);
    for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let field = match &*name {
            "reference" => &mut reference,
            "id" => &mut id,
            _ => return Err(Problem::new(StatusCode::BAD_REQUEST, "the query has `id` and `reference` alone")),
        };
        if field.replace(value.into_owned()).is_some() {
            return Err(Problem::new(StatusCode::BAD_REQUEST, format!("`{name}` is there twice")));
        }
    }
    let known = api.events.show(&selected(event_type, reference, id)?).await?;
    if known.is_empty() {
        return Err(Problem::new(StatusCode::NOT_FOUND, "nothing is known of such an event"));
    }
    Ok(answer(StatusCode::OK, &KnownEvents { events: known.iter().map(view).collect() }))
}
