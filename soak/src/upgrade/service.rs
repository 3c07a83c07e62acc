//! The service that handles the events of all workers, so that one process notes all runs.

use std::time::Duration;

use anyhow::Context as _;
use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use jiff::Timestamp;
use tokio::net::TcpListener;

use super::{
    notes::{Run, SharedNotes, Side},
    plan::{Kind, PUT_OFF},
};
use crate::harness::Chance;

/// The longest run, in milliseconds.
const PAUSE: u64 = 19;

/// Starts the service on a free port, for as long as this process runs. Returns its port.
pub(super) async fn start(seen: SharedNotes) -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    let routes = Router::new().route("/{side}/{worker}", post(handle)).with_state(seen);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(port)
}

/// Returns the URL for a worker.
pub(super) fn url(port: u16, side: Side, worker: u32) -> String {
    format!("http://127.0.0.1:{port}/{}/{worker}", side.name())
}

async fn handle(
    State(seen): State<SharedNotes>,
    Path((side, worker)): Path<(String, u32)>,
    headers: HeaderMap,
) -> (StatusCode, String) {
    let run = match run(&side, worker, &headers) {
        Ok(run) => run,
        // The account finds an event that never ran.
        Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
    };
    let kind = Kind::of(&run.event_type);
    // So the runs differ in length.
    let millis = Chance::of(&run.id).between(0, PAUSE);
    let (place, before) = seen.lock().begin(run);
    tokio::time::sleep(Duration::from_millis(millis)).await;
    seen.lock().runs[place].ended = Timestamp::now().as_microsecond();
    match kind {
        Some(Kind::Flaky) if before == 0 => (StatusCode::SERVICE_UNAVAILABLE, "the first run fails".to_owned()),
        Some(Kind::Hopeless) if before == 0 => (StatusCode::UNPROCESSABLE_ENTITY, "no such thing".to_owned()),
        Some(Kind::PutOff) if before == 0 => {
            let after = format!("{}s", PUT_OFF.as_secs());
            (StatusCode::OK, serde_json::json!({ "requeue": { "after": after, "reason": "not yet" } }).to_string())
        }
        _ => (StatusCode::OK, String::new()),
    }
}

fn run(side: &str, worker: u32, headers: &HeaderMap) -> anyhow::Result<Run> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned);
    let now = Timestamp::now().as_microsecond();
    Ok(Run {
        id: header("event-id").context("no Event-Id")?,
        event_type: header("event-type").context("no Event-Type")?,
        by: Side::BOTH.into_iter().find(|by| by.name() == side).context("another side")?,
        worker,
        attempts: header("event-attempts").context("no Event-Attempts")?.parse()?,
        has_version: header("event-version").is_some(),
        begun: now,
        ended: now,
    })
}
