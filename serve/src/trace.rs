//! `GET /v1/trace`: what has happened to an event, to a reference, or in a type.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, Uri},
    response::Response,
};
use hatchery::{LifeCycleRecord, internals::life_cycle::Told, jiff::Timestamp};
use hatchery_admin::{
    batch::selected,
    event_view::{EventView, view},
    notation::{Moment, Span},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    answer::answer,
    api::Api,
    backend::{Trace, Traced},
    problem::Problem,
    query,
    tokens::Caller,
};

/// What to trace.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    id: Option<String>,
    reference: Option<String>,
    r#type: Option<String>,
    since: Option<String>,
}

/// What has happened.
#[derive(Serialize, JsonSchema)]
pub(crate) struct History {
    /// The records, in the order in which the broker learned of them.
    records: Vec<LifeCycleRecord>,
    /// Whether there may be more records than these.
    more: bool,
    /// What Redis knows of the events now. Empty if only a type was asked for.
    now: Vec<EventView>,
    /// When the oldest record of the stream was told; `null` if the stream is empty.
    #[schemars(with = "Option<String>")]
    oldest: Option<Timestamp>,
    /// `all` or `failures`: what the stream is told.
    events: &'static str,
}

pub(crate) async fn trace(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let Asked { id, reference, r#type, since } = query::read(&uri)?;
    if id.is_none() && reference.is_none() && r#type.is_none() {
        return Err(Problem::bad("one of `id`, `reference` and `type` is missing"));
    }
    let topology = api.backend.topology();
    let events = match topology.life_cycle.events {
        Told::All => "all",
        Told::Failures => "failures",
        Told::Off => {
            let detail = "the file has `life-cycle: off`, so nothing records what happens to events";
            return Err(Problem::new(StatusCode::CONFLICT, detail));
        }
    };
    let since = since.map(since_of).transpose()?;
    let _place = api.asking.take(&caller).await?;
    let mut now = Vec::new();
    if id.is_some() || reference.is_some() {
        let is_asked = |name: &str| r#type.as_deref().is_none_or(|of| of == name);
        // An id does not tell its type.
        for (name, _) in topology.types.iter().filter(|(name, spec)| spec.register && is_asked(name.as_str())) {
            let which = selected(name.to_string(), reference.clone(), id.clone())?;
            now.extend(api.events.show(&which).await?.iter().map(view));
        }
    }
    let asked = Trace { id, reference, event_type: r#type, since };
    let Traced { records, oldest, more } =
        api.backend.trace(asked).await.map_err(|error| Problem::for_now(error.to_string()))?;
    Ok(answer(StatusCode::OK, &History { records, more, now, oldest, events }))
}

/// Reads a time, or how long ago it was.
fn since_of(text: String) -> Result<Timestamp, Problem> {
    let bad = |error: &dyn std::fmt::Display| Problem::bad(format!("`since`: {error}"));
    match Span::try_from(text.clone()) {
        Ok(Span(ago)) => Timestamp::now().checked_sub(ago).map_err(|error| bad(&error)),
        Err(_) => Moment::try_from(text).map(|Moment(at)| at).map_err(|error| bad(&error)),
    }
}
