//! `GET /v1/events/{type}`: what the register knows of events.

use std::sync::Arc;

use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::{StatusCode, Uri},
    response::Response,
};
use hatchery_admin::{
    batch::selected,
    event_view::{EventView, view},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    answer::{answer, event_type},
    api::Api,
    problem::Problem,
    query,
};

/// What the register knows.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KnownEvents {
    /// The events, also those that have ended, while the register remembers them.
    events: Vec<EventView>,
}

/// Which events.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedEvents {
    /// The object that the events are about.
    reference: Option<String>,
    /// The id of the one event.
    id: Option<String>,
}

pub(crate) async fn show(
    State(api): State<Arc<Api>>,
    path: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, Problem> {
    let event_type = event_type(path)?;
    let NamedEvents { reference, id } = query::read(&uri)?;
    let known = api.events.show(&selected(event_type, reference, id)?).await?;
    if known.is_empty() {
        return Err(Problem::new(StatusCode::NOT_FOUND, "nothing is known of such an event"));
    }
    Ok(answer(
        StatusCode::OK,
        &KnownEvents { events: known.iter().map(|event| view(event, api.backend.topology())).collect() },
    ))
}
