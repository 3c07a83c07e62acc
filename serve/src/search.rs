//! `GET /v1/events`: finds events that wait, run, are retried or were dead-lettered.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, Uri},
    response::Response,
};
use futures_util::TryStreamExt as _;
use hatchery::Filter;
use hatchery_admin::{
    event_view::{EventView, view},
    notation::Moment,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use crate::{answer::answer, api::Api, problem::Problem, query, tokens::Caller};

/// How many events a list has if the request does not say.
const USUAL: u32 = 100;
/// How many events a list has at most.
const MOST: u32 = 1_000;
/// How long to look. A filter that few events match may have to look at millions.
const LONGEST: Duration = Duration::from_secs(10);

/// Which events. An event must match all fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    r#type: Option<String>,
    reference: Option<String>,
    reference_prefix: Option<String>,
    state: Option<String>,
    due_before: Option<Moment>,
    due_after: Option<Moment>,
    attempts: Option<u32>,
    reason: Option<String>,
    limit: Option<u32>,
}

/// The events that were found.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EventList {
    /// The events, the next one first.
    events: Vec<EventView>,
    /// Whether there may be more events than these.
    more: bool,
}

pub(crate) async fn search(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let asked: Asked = query::read(&uri)?;
    let limit = asked.limit.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::bad(format!("`limit` is 1 to {MOST}")));
    }
    let _place = api.asking.take(&caller).await?;
    let limit = usize::try_from(limit).unwrap_or_default();
    let mut found = Box::pin(api.events.search(&filter(asked)?));
    let (mut events, until) = (Vec::new(), Instant::now() + LONGEST);
    let more = loop {
        match timeout_at(until, found.try_next()).await {
            Ok(event) => match event? {
                Some(_) if events.len() == limit => break true,
                Some(event) => events.push(view(&event)),
                None => break false,
            },
            Err(_) => break true,
        }
    };
    Ok(answer(StatusCode::OK, &EventList { events, more }))
}

fn filter(asked: Asked) -> Result<Filter, Problem> {
    let mut filter = Filter::default().attempts(asked.attempts.unwrap_or(0));
    if let Some(name) = asked.r#type {
        filter = filter.event_type(name);
    }
    if let Some(reference) = asked.reference {
        filter = filter.reference(reference);
    }
    if let Some(prefix) = asked.reference_prefix {
        filter = filter.reference_prefix(prefix);
    }
    if let Some(state) = asked.state {
        filter = filter.state(state.parse().map_err(|error: hatchery::StateError| Problem::bad(error.to_string()))?);
    }
    if let Some(Moment(time)) = asked.due_before {
        filter = filter.due_before(time);
    }
    if let Some(Moment(time)) = asked.due_after {
        filter = filter.due_from(time);
    }
    if let Some(text) = asked.reason {
        filter = filter.reason(text);
    }
    Ok(filter)
}
