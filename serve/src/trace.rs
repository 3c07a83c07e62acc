//! `GET /v1/trace`: what has happened to an event, to a reference, or in a type.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, Uri},
    response::Response,
};
use hatchery::internals::ttl::say;
use hatchery_admin::{
    batch::selected,
    notation::{Moment, parse_since},
    trace::{History, Trace, Traced, recorded},
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{answer::answer, api::Api, problem::Problem, query, tokens::Caller};

/// What to trace.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TracedEvents {
    /// The event's id.
    id: Option<String>,
    /// The object that the events are about.
    reference: Option<String>,
    /// The type of the events.
    r#type: Option<String>,
    /// Only records since this time, or of the last so long: `2026-06-01T09:00:00Z`, `1h`.
    #[schemars(with = "Option<Moment>")]
    since: Option<String>,
    /// `true`: also the pauses and breakers that may concern the events.
    #[serde(default)]
    others: bool,
    /// `true`: also where the events are now.
    #[serde(default)]
    place: bool,
}

pub(crate) async fn trace(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let TracedEvents { id, reference, r#type, since, others, place } = query::read(&uri)?;
    let mut asked = Trace { id, reference, event_type: r#type, since: None, others };
    if asked.is_of_type() && asked.event_type.is_none() {
        return Err(Problem::wrong("one of `id`, `reference` and `type` is missing"));
    }
    let topology = api.backend.topology();
    let events = recorded(topology).map_err(|error| Problem::new(StatusCode::CONFLICT, error.to_string()))?.into();
    let since = since.as_deref().map(parse_since).transpose();
    asked.since = since.map_err(|error| Problem::bad(format!("`since`: {error}")))?;
    let keep = Some(say(topology.life_cycle.keep));
    let _place = api.asking.take(&caller).await?;
    let mut known = Vec::new();
    for name in asked.types(topology) {
        let which = selected(name.to_string(), asked.reference.clone(), asked.id.clone())?;
        known.extend(api.events.show(&which).await?);
    }
    if asked.id.is_some() {
        asked = asked.with_known(known.iter().map(|event| event.reference.as_ref().map(ToString::to_string)));
    }
    let now = api.known(known, place).await?;
    let traced = api.backend.trace(asked).await.map_err(|error| Problem::for_now(error.to_string()))?;
    let Traced { records, oldest, more } = traced;
    Ok(answer(StatusCode::OK, &History { records, more, now, oldest, events, keep }))
}
