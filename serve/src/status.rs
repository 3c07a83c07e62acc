//! `GET /v1/status`: what is wrong, and how many events are where. `GET /v1/changes`: the same whenever it changes, as server-sent events.
//!
//! One task looks at the broker for all listeners, and only while there are any. A listener holds the last status alone.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::State,
    http::{
        HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse as _, Response},
};
use futures_util::stream;
use hatchery_admin::status::Document;
use tokio::{
    sync::watch,
    time::{Instant, Interval, interval_at, sleep},
};

use crate::{
    answer::answer,
    api::{Api, Told},
    problem::Problem,
    room::Place,
    tokens::Caller,
};

/// The media type of the events.
pub(crate) const EVENTS: &str = "text/event-stream";
/// How long after a look the next one begins.
const EVERY: Duration = Duration::from_secs(5);
/// How often a listener hears something, so that both ends notice a connection that is gone.
const ALIVE: Duration = Duration::from_secs(10);

pub(crate) async fn show(State(api): State<Arc<Api>>) -> Result<Response, Problem> {
    let status = api.status().await?;
    Ok(answer(StatusCode::OK, &Document::of(&status)))
}

/// Looks at the broker while somebody listens, until the stop.
pub(crate) async fn look(api: Arc<Api>) {
    let looking = async {
        loop {
            if api.changes.told.receiver_count() == 0 {
                // The last event is old by the time somebody comes, and is not told then.
                api.changes.told.send_replace(None);
                api.changes.someone.notified().await;
                continue;
            }
            let seen = seen(&api).await;
            api.changes.told.send_if_modified(|told| {
                let is_new = told.as_ref().is_none_or(|told| told.says != seen.says);
                if is_new {
                    *told = Some(seen);
                }
                is_new
            });
            sleep(EVERY).await;
        }
    };
    api.stop.run_until_cancelled(looking).await;
}

async fn seen(api: &Api) -> Told {
    let (name, said) = match api.status().await {
        Ok(status) => ("status", serde_json::to_value(Document::of(&status))),
        Err(problem) => ("problem", serde_json::to_value(&problem)),
    };
    // Texts and numbers, which are always JSON.
    let mut says = said.unwrap_or_default();
    let event = format!("event: {name}\ndata: {says}\n\n").into();
    if let Some(fields) = says.as_object_mut() {
        fields.remove("at");
    }
    Told { event, says }
}

/// A listener.
struct Listener {
    api: Arc<Api>,
    caller: Caller,
    told: watch::Receiver<Option<Told>>,
    alive: Interval,
    _place: Place,
}

impl Listener {
    /// Returns the next piece of the stream; `None` at its end, when the server stops or the token is none any more.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            let changed = tokio::select! {
                biased;
                () = self.api.stop.cancelled() => return None,
                changed = self.told.changed() => changed.is_ok(),
                _ = self.alive.tick() => false,
            };
            if !self.api.knows(&self.caller) {
                return None;
            }
            let event = self.told.borrow_and_update().as_ref().filter(|_| changed).map(|told| told.event.clone());
            if let Some(piece) = event.or_else(|| (!changed).then(|| Bytes::from_static(b":\n\n"))) {
                return Some((Ok(piece), self));
            }
        }
    }
}

pub(crate) async fn listen(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let place = api.listeners.take(&caller).await?;
    let mut told = api.changes.told.subscribe();
    told.mark_changed();
    api.changes.someone.notify_one();
    let alive = interval_at(Instant::now() + ALIVE, ALIVE);
    let listener = Listener { api, caller, told, alive, _place: place };
    let body = Body::from_stream(stream::unfold(listener, Listener::next));
    let headers =
        [(CONTENT_TYPE, HeaderValue::from_static(EVENTS)), (CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((headers, body).into_response())
}
