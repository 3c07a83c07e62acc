//! `GET /v1/events/{type}`: what the register knows of events.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    http::{StatusCode, Uri},
    response::Response,
};
use hatchery_admin::{batch::selected, location::KnownEvent};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    answer::{answer, event_type},
    api::Api,
    problem::Problem,
    query,
    tokens::Caller,
};

/// What the register knows.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KnownEvents {
    /// The events, also those that have ended, while the register remembers them.
    events: Vec<KnownEvent>,
}

/// Which events.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedEvents {
    /// The object that the events are about.
    reference: Option<String>,
    /// The id of the one event.
    id: Option<String>,
    /// `true`: also where the events are, from the counts of queues; takes up to twelve seconds.
    #[serde(default)]
    place: bool,
}

pub(crate) async fn show(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, Problem> {
    let event_type = event_type(path)?;
    let NamedEvents { reference, id, place } = query::read(&uri)?;
    let known = api.events.show(&selected(event_type, reference, id)?).await?;
    if known.is_empty() {
        return Err(Problem::new(StatusCode::NOT_FOUND, "nothing is known of such an event"));
    }
    let _place = if place { Some(api.asking.take(&caller).await?) } else { None };
    Ok(answer(StatusCode::OK, &KnownEvents { events: api.known(known, place).await? }))
}
