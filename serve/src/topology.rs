//! `GET /v1/topology` and `GET /v1/topology.svg`: the picture of the topology, with how many messages are where.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{
        StatusCode,
        header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE},
    },
    response::{IntoResponse as _, Response},
};
use hatchery_admin::{
    Name, PauseLine, Paused,
    graph::{Drawing, Picture, svg},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{answer::answer, api::Api, problem::Problem, tokens::Caller};

/// The media type of a picture.
pub(crate) const SVG: &str = "image/svg+xml";
/// A browser draws the picture with its own style, and nothing else of it runs or is fetched.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox";

/// The topology, and how many messages are where.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Shown {
    /// The picture, as `topology graph -o json` prints it. With many types, those with equal settings share their nodes.
    #[serde(flatten)]
    drawing: Drawing,
    /// The types.
    types: Vec<TypeShown>,
    /// The queues on the broker, by their full names.
    queues: Vec<QueueShown>,
}

/// A type.
#[derive(Serialize, JsonSchema)]
struct TypeShown {
    /// Its name.
    r#type: String,
    /// Whether it uses the register in Redis.
    register: bool,
    /// The pause that holds it.
    pause: Option<PauseLine>,
}

/// A queue. The figures are some seconds old; `null` means that the broker does not tell.
#[derive(Serialize, JsonSchema)]
struct QueueShown {
    /// Its name.
    queue: String,
    /// The messages that wait.
    ready: Option<u64>,
    /// The messages that are delivered and not acknowledged.
    unacknowledged: Option<u64>,
    /// The consumers.
    consumers: Option<u64>,
}

pub(crate) async fn show(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let _place = api.asking.take(&caller).await?;
    let _turn = api.look().await?;
    let topology = api.backend.topology();
    let (pauses, counts) = (api.backend.pauses().await?, api.backend.counts().await?);
    let types = topology.types.iter().map(|(name, spec)| {
        let of = Paused::Type(Name(name.clone()));
        let pause = pauses.iter().find(|pause| pause.holds(&of)).map(PauseLine::from);
        TypeShown { r#type: name.to_string(), register: spec.register, pause }
    });
    let queues = counts.into_iter().map(|(queue, counts)| QueueShown {
        queue,
        ready: counts.waiting(),
        unacknowledged: counts.messages_unacknowledged,
        consumers: counts.consumers,
    });
    let drawing = Drawing::from(&Picture::new(topology));
    Ok(answer(StatusCode::OK, &Shown { drawing, types: types.collect(), queues: queues.collect() }))
}

pub(crate) async fn picture(State(api): State<Arc<Api>>) -> Response {
    let headers = [(CONTENT_TYPE, SVG), (CONTENT_SECURITY_POLICY, POLICY)];
    (headers, svg(&Picture::new(api.backend.topology()))).into_response()
}
