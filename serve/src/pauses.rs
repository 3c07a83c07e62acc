//! `GET` and `POST /v1/pauses`, and `POST /v1/pauses/end`: what people have paused.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use hatchery::Word;
use hatchery_admin::{
    ChangedPauses, Name, PauseLine, Paused, Until,
    notation::{Span, Time},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{answer::answer, api::Api, body, problem::Problem, tokens::Caller};

/// How long a request may be, in bytes.
const MOST: usize = 16 * 1024;
/// The reason where the request has none.
const REASON: &str = "paused by hand";

/// What is paused.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Pauses {
    /// The pauses that last, those of the file included.
    pauses: Vec<PauseLine>,
}

/// What to pause: one of `type`, `source`, `schedule` and `all`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPause {
    /// A type.
    r#type: Option<String>,
    /// A source.
    source: Option<String>,
    /// A schedule.
    schedule: Option<String>,
    /// All types and sources.
    #[serde(default)]
    all: bool,
    /// The reason, for people.
    reason: Option<String>,
    /// When the pause ends by itself, such as `2026-06-01T09:00:00Z`.
    until: Option<Time>,
    /// How long the pause lasts, such as `2h`, instead of `until`.
    r#for: Option<Span>,
}

/// What to resume: one of `type`, `source`, `schedule` and `all`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndedPause {
    /// A type.
    r#type: Option<String>,
    /// A source.
    source: Option<String>,
    /// A schedule.
    schedule: Option<String>,
    /// The pause of all types and sources. It ends no pause of a single one.
    #[serde(default)]
    all: bool,
}

pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let _place = api.asking.take(&caller).await?;
    let pauses = api.backend.pauses().await?;
    Ok(answer(StatusCode::OK, &Pauses { pauses: pauses.iter().map(PauseLine::from).collect() }))
}

pub(crate) async fn pause(State(api): State<Arc<Api>>, request: Request) -> Result<Response, Problem> {
    let NewPause { r#type, source, schedule, all, reason, until, r#for } = body::json(request, MOST).await?;
    let what = named(r#type, source, schedule, all)?;
    let until = match (until, r#for) {
        (Some(_), Some(_)) => return Err(Problem::wrong("`until` and `for` exclude each other")),
        (Some(Time(at)), None) => Some(Until::At(at)),
        (None, Some(Span(after))) => Some(Until::After(after)),
        (None, None) => None,
    };
    let reason = reason.filter(|reason| !reason.is_empty()).unwrap_or_else(|| REASON.to_owned());
    let backend = Arc::clone(&api.backend);
    let switched = api.work.finish(async move { Ok(backend.pause(what, reason, until).await?) }).await?;
    Ok(answer(StatusCode::OK, &ChangedPauses::from(&switched)))
}

pub(crate) async fn end(State(api): State<Arc<Api>>, request: Request) -> Result<Response, Problem> {
    let EndedPause { r#type, source, schedule, all } = body::json(request, MOST).await?;
    let (what, backend) = (named(r#type, source, schedule, all)?, Arc::clone(&api.backend));
    let switched = api.work.finish(async move { Ok(backend.resume(what).await?) }).await?;
    Ok(answer(StatusCode::OK, &ChangedPauses::from(&switched)))
}

fn named(
    event_type: Option<String>,
    source: Option<String>,
    schedule: Option<String>,
    all: bool,
) -> Result<Paused, Problem> {
    let name = |name: String| name.parse::<Word>().map(Name).map_err(|error| Problem::wrong(error.to_string()));
    match (event_type, source, schedule, all) {
        (Some(of), None, None, false) => name(of).map(Paused::Type),
        (None, Some(of), None, false) => name(of).map(Paused::Source),
        (None, None, Some(of), false) => name(of).map(Paused::Schedule),
        (None, None, None, true) => Ok(Paused::All),
        _ => Err(Problem::wrong("give one of `type`, `source`, `schedule` and `all`")),
    }
}
