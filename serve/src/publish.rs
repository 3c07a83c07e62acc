//! `POST /v1/events`: publishes one event, or a batch.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use hatchery::NewEvent;
use hatchery_admin::batch::event;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::timeout;

use crate::{
    answer::{JSON, answer},
    api::Api,
    batch,
    body::{self, media_type},
    problem::Problem,
    room::Taken,
    tokens::Caller,
};

/// How long the broker may take to confirm an event: not as long as most clients wait for an answer.
const CONFIRM: Duration = Duration::from_secs(10);
/// The room for the fields beside the payload, in bytes.
const FIELDS: usize = 64 * 1024;

/// The event was published: the broker has confirmed it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Published {
    /// The event's id.
    id: String,
    /// `true` if Redis gave no version: the event competes with no other event of its reference.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unversioned: bool,
    /// The state of the event that Redis knew by this id before: `waiting`, `running`, `retry`, `dead-letter`, `handled` or `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

pub(crate) async fn publish(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    match media_type(&head.headers).as_deref() {
        Some(JSON) => one(&api, &caller, &head.headers, body).await,
        Some(batch::NDJSON) => batch::begin(api, caller, &head.headers, body).await,
        _ => {
            let detail = "send one event with `content-type: application/json`, or a batch with `application/x-ndjson`";
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
        }
    }
}

async fn one(api: &Api, caller: &Caller, headers: &HeaderMap, body: Body) -> Result<Response, Problem> {
    // The largest payload in base64.
    let most = api.max_payload().div_ceil(3).saturating_mul(4).saturating_add(FIELDS);
    if let Err(problem) = body::length(headers, most) {
        body::drop_rest(body).await;
        return Err(problem);
    }
    let mut room = api.room.begin();
    let event = event(&body::read_into(&mut room, body, most).await?)?;
    caller.may_publish(event.event_type())?;
    let known = api.lookup.states(&[Some(&event)]).await.pop().flatten();
    let (event, id) = event.identified();
    let published = confirmed(api, event, room).await.map_err(|problem| problem.of(id))?;
    let status = if known.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok(answer(status, &Published { state: known.map(hatchery::State::as_str), ..published }))
}

/// Publishes an event. It is published to its end also if the client goes away.
async fn confirmed(api: &Api, event: NewEvent, room: Taken) -> Result<Published, Problem> {
    api.require_publishing().await?;
    let publishing = api.publisher.publish(event);
    let publishing = api.work.begin(async move {
        let published = publishing.await;
        drop(room);
        published
    });
    let Ok(Ok(published)) = timeout(CONFIRM, publishing).await else {
        let limit = CONFIRM.as_secs();
        return Err(Problem::for_now(format!("not confirmed within {limit} s; it may have arrived all the same")));
    };
    let published = published?;
    Ok(Published { id: published.id, unversioned: published.unversioned, state: None })
}
