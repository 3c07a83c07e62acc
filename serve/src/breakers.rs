//! `GET /v1/breakers` and `POST /v1/breakers/{type}/close`: the circuit breakers.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use hatchery_admin::breakers::{BreakerList, BreakerView, Breakers, ClosedBreaker};

use crate::{
    answer::{Named, answer, event_type},
    api::Api,
    problem::Problem,
};

pub(crate) async fn list(State(api): State<Arc<Api>>) -> Result<Response, Problem> {
    let breakers = Breakers(api.events.clone());
    let (infos, now) = (breakers.list().await?, breakers.now());
    let breakers = infos.iter().map(|info| BreakerView::of(info, now)).collect();
    Ok(answer(StatusCode::OK, &BreakerList { breakers }))
}

pub(crate) async fn close(State(api): State<Arc<Api>>, path: Named) -> Result<Response, Problem> {
    let event_type = event_type(path)?;
    let (breakers, of) = (Breakers(api.events.clone()), event_type.clone());
    let changed = api.work.finish(async move { Ok(breakers.close(&of).await?) }).await?;
    Ok(answer(StatusCode::OK, &ClosedBreaker { event_type, changed }))
}
